package envoyconfig_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

// TestProblems checks that each error names the file, the line, the column and what to write.
func TestProblems(t *testing.T) {
	rule := func(text string) string {
		return "domain: web\ndescriptors:\n  - key: a\n    rate_limit: " + text + "\n"
	}
	for _, tt := range []struct{ content, want string }{
		{"", "the file is empty; begin with domain:"},
		{"'''", "1:4: found unexpected end of stream"},
		{"descriptors:\n", "1:1: the field domain is missing or empty"},
		{"domain: ''\n", "1:1: the field domain is missing or empty"},
		{"0.25: web\n", `1:1: unknown field "0.25"; the file has domain, descriptors`},
		{"domain: web\ndescriptors: [a, b]\n", "2:15: a descriptor is \"a\"; it has to be a mapping"},
		{"domain: web\ndescriptors:\n  - value: x\n", "3:5: a descriptor has no key"},
		{"domain: web\ndescriptors:\n  - key: a\n    ratelimit: {}\n", `4:5: unknown field "ratelimit"; a descriptor has key, value, rate_limit`},
		{"domain: web\ndescriptors:\n  - {key: a, value: b}\n  - {key: a, value: b}\n", `4:5: the descriptor "web.a_b" is there twice`},
		{"domain: web\ndescriptors:\n  - {key: a, value: b, share_threshold: true}\n", "3:24: share_threshold is for a value that ends with *"},
		{"domain: web\ndescriptors:\n  - {key: a, shadow_mode: perhaps}\n", `3:27: shadow_mode is "perhaps"; write true or false`},
		{rule("{unit: foo, requests_per_unit: 5}"), `4:24: the unit is "foo"; write second, minute`},
		{rule("{requests_per_unit: 5}"), `4:17: the unit is ""; write second, minute`},
		{rule("{unit: unknown, requests_per_unit: 5}"), `4:24: the unit is "unknown"`},
		{rule("{unit: day, requestsperunit: 5}"), `4:29: unknown field "requestsperunit"`},
		{rule("{unit: day, requests_per_unit: -1}"), `4:48: requests_per_unit is "-1"`},
		{rule("{unit: day, requests_per_unit: 4294967296}"), "4:48: requests_per_unit is 4294967296; the most is 4294967295"},
		{rule("{unlimited: true, unit: day}"), "4:35: rate_limit has unlimited and a unit"},
		{rule("{limit: 10/sx}"), `4:25: limit: "10/sx": the unit of the period "sx" is none of ms, s, m, h, d`},
		{rule("{limit: ''}"), "4:25: limit: "},
		{rule("{limit: [5/s]}"), "4:25: limit is a list; it has to be a text\n"},
		{rule("{limit: concurrency 5}"), `4:25: limit: "concurrency 5": concurrency is for ratelimit_acquire`},
		{rule("{limit: '@api 5'}"), `4:25: limit: the policy name "api 5" is not 1 to 64 of a-z 0-9 _ . -`},
		{rule("{limit: '@'}"), `4:25: limit: the policy name "" is not`},
		{rule("{limit: '@A/api'}"), `4:25: limit: policy "A/api": `},
		{rule("{limit: 5/s, unit: day}"), "4:18: rate_limit has limit and one of unit"},
		{rule("{unit: day, requests_per_unit: 1, name: me, replaces: [{name: me}]}"), `4:79: the rate_limit "me" replaces itself`},
		{rule("{unit: day, requests_per_unit: 1, replaces: [{name: }]}"), "4:62: an item of replaces is empty"},
	} {
		dir := folder(t, "a.yaml", tt.content)
		_, err := envoyconfig.Load(dir, false)
		var problems yamlfile.Mistakes
		if !errors.As(err, &problems) || !strings.Contains(err.Error()+"\n", tt.want) || !strings.HasPrefix(err.Error(), filepath.Join(dir, "a.yaml")+":") {
			t.Errorf("%q:\n%v\nwant ...%s", tt.content, err, tt.want)
		}
	}
}

// TestDuplicate checks that a descriptor that is there twice does not hide its other mistakes.
func TestDuplicate(t *testing.T) {
	dir := folder(t, "a.yaml", "domain: web\ndescriptors:\n  - {key: a}\n  - {key: a, rate_limit: {unit: foo}, descriptors: [{value: x}]}\n")
	_, err := envoyconfig.Load(dir, false)
	var problems yamlfile.Mistakes
	if !errors.As(err, &problems) || len(problems) != 3 || !strings.Contains(problems[1].Text, `the unit is "foo"`) || !strings.Contains(problems[2].Text, "has no key") {
		t.Errorf("%v", []yamlfile.Mistake(problems))
	}
}

func TestTwoFilesWithADomain(t *testing.T) {
	dir := folder(t,
		"1.yaml", "domain: web\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
		"2.yml", "domain: web\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]\n",
		"README", "not read", ".hidden.yaml", "not: read")
	if _, err := envoyconfig.Load(dir, false); err == nil || !strings.Contains(err.Error(), `2.yml:1:9: the domain "web" is also in another file`) {
		t.Errorf("without merging: %v", err)
	}
	config, err := envoyconfig.Load(dir, true)
	if err != nil || config.Rules() != 2 {
		t.Fatalf("merged: %v, %v", config, err)
	}
	if rule, key := config.Find("web", descriptor("b=x")); rule == nil || rule.Count != 2 || key != "web|b=x" {
		t.Errorf("b: %+v, %q", rule, key)
	}
}

func TestFoldersThatCannotBeLoaded(t *testing.T) {
	empty := t.TempDir()
	named := filepath.Join(t.TempDir(), "dir")
	require(t, os.MkdirAll(filepath.Join(named, "x.yaml"), 0o700))
	loop := t.TempDir()
	require(t, os.Symlink("loop.yaml", filepath.Join(loop, "loop.yaml")))
	for dir, want := range map[string]string{
		filepath.Join(empty, "none"): "name the folder that has the .yaml files",
		empty:                        "has no file that ends in .yaml or .yml",
		named:                        "is a directory",
		loop:                         "too many levels of symbolic links",
	} {
		if _, err := envoyconfig.Load(dir, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", dir, err, want)
		}
	}
}

// TestNotices checks that there is a notice for each use of an unsupported feature.
func TestNotices(t *testing.T) {
	config := load(t, "domain: web\ndescriptors:\n  - key: a\n    detailed_metric: true\n    rate_limit: {unit: day}\n")
	if got := config.Notices(); len(got) != 2 || !strings.Contains(got[0], "config.yaml:3: detailed_metric and value_to_metric are ignored") ||
		!strings.Contains(got[1], "config.yaml:5: rate_limit has no requests_per_unit") {
		t.Errorf("%q", got)
	}
}

// TestWhatIsNotRead checks that there is a notice for each file and folder that envoyproxy/ratelimit reads, and
// Load does not.
func TestWhatIsNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b", "c.txt", ".hidden", "sub/d.yaml"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("domain: web\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	config, err := envoyconfig.Load(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	const reason = ": not read: rules are in files of the folder itself whose names end in .yaml or .yml"
	want := []string{filepath.Join(dir, "b") + reason, filepath.Join(dir, "c.txt") + reason, filepath.Join(dir, "sub") + reason}
	if got := config.Notices(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestWatcher checks that a Watcher loads a folder when its content changes. A new target of a
// symbolic link, as in a Kubernetes ConfigMap, counts as a change. A new modification time does not.
func TestWatcher(t *testing.T) {
	content := func(n string) string {
		return "domain: web\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: " + n + "}}]\n"
	}
	one, two, bad := folder(t, "a.yaml", content("1")), folder(t, "a.yaml", content("2")), folder(t, "a.yaml", "domain: [")
	dir := t.TempDir()
	link := func(to string) {
		t.Helper()
		data := filepath.Join(dir, "..data")
		_ = os.Remove(data)
		require(t, os.Symlink(to, data))
	}
	link(one)
	require(t, os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(dir, "a.yaml")))
	watcher := envoyconfig.NewWatcher(dir, false)
	check := func(what string, want uint32) {
		t.Helper()
		config, err := watcher.Reload()
		switch {
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		case want == 0 && config != nil:
			t.Fatalf("%s: loaded again", what)
		case want > 0:
			if config == nil {
				t.Fatalf("%s: not loaded", what)
			}
			if rule, _ := config.Find("web", descriptor("a=x")); rule == nil || rule.Count != want {
				t.Fatalf("%s: %+v", what, rule)
			}
		}
	}
	check("at first", 1)
	check("unchanged", 0)
	link(two)
	check("another link", 2)
	require(t, os.Chtimes(filepath.Join(two, "a.yaml"), time.Time{}, time.Unix(1, 0)))
	check("another time", 0)
	link(bad)
	if _, err := watcher.Reload(); err == nil {
		t.Fatal("no error for a bad file")
	}
	check("the bad file again", 0)
	link(two)
	check("after the bad file", 2)
}
