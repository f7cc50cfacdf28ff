package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// write writes files into a new folder, which becomes the current one.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		require(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	t.Chdir(folder)
}

func TestSeveralFiles(t *testing.T) {
	write(t, map[string]string{
		"a.yaml":     "policies:\n  api: 100/m\n  b: 1000/m, 1/s\n",
		"c.yaml":     "# more\npolicies:\n  c: 5/x\n  d: 0/h\n",
		"twice.yaml": "policies:\n  e: 1/s\n\n  api: 5/m\n  b: 1/s\n",
		"wrong.yaml": "policies:\n  f: {limt: 1/s}\n",
		"tests.yaml": "policies: a.yaml\ntests:\n  - name: t\n",
		"large.yaml": "policies:\n" + many(functions.MostPolicies-1),
	})
	file, err := Read("a.yaml", "c.yaml")
	if err != nil || file.Name != "a.yaml, c.yaml" || len(file.Policies) != 4 {
		t.Fatalf("%v, %+v", err, file)
	}
	found := must[Findings](t)(file.Findings())
	got := strings.Join(append(append(lines(found.Wrong), lines(found.Doubtful)...), lines(found.Notes)...), "\n")
	for _, want := range []string{`c.yaml:3:6: policy c: "5/x": the unit of the period "x" is none of ms, s, m, h, d`, "a.yaml:3:6: policy b: ", "c.yaml:4:6: policy d: 0/h never allows"} {
		if !strings.Contains("\n"+got, "\n"+want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for names, want := range map[string]string{
		"a.yaml twice.yaml": `twice.yaml:4:3: "api" is given twice; the first is at a.yaml:2:3
twice.yaml:5:3: "b" is given twice; the first is at a.yaml:3:3`,
		"a.yaml a.yaml": `a.yaml:2:3: "api" is given twice; the first is at a.yaml:2:3
a.yaml:3:3: "b" is given twice; the first is at a.yaml:3:3`,
		"twice.yaml wrong.yaml a.yaml": `wrong.yaml:2:7: unknown field "limt"; policy f has description, limit, limits, cost, shadow, track, canary, classes, guarantee, pool, floor, tenants, penalty, forget, warn
a.yaml:2:3: "api" is given twice; the first is at twice.yaml:4:3
a.yaml:3:3: "b" is given twice; the first is at twice.yaml:5:3`,
		"a.yaml large.yaml": `a.yaml, large.yaml: 10001 policies; a build has at most 10000`,
		"tests.yaml a.yaml": `tests.yaml:1:1: this is a file of tests; name its policies, such as policies.yaml, or run the tests with the command test`,
		"a.yaml ":           `the name of a policies file is ""; write one such as policies.yaml`,
		"a.yaml none.yaml":  `open none.yaml: no such file or directory; name another file`,
	} {
		_, err := Read(strings.Split(names, " ")...)
		if err == nil {
			t.Errorf("%s is read", names)
		} else if got := strings.Join(lines(err), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", names, got, want)
		}
	}
}

func many(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "  p%d: 100/m\n", i)
	}
	return text.String()
}

func TestFileInANamespace(t *testing.T) {
	file := parse(t, "policies:\n  api: 100/m\n  part:\n    limit: 3/m\n    canary: {limit: 1/m, share: 50%}\n")
	in := must[*File](t)(file.In("payments"))
	build, err := in.Build()
	if err != nil || build.Policies()[0].Name != "payments/api" || file.Policies[0].Name != "api" {
		t.Errorf("%v, %+v, %+v", err, build.Policies(), file.Policies)
	}
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Unix(1_700_000_000, 0)))
	reply, err := server.Do("FCALL", "ratelimit_take", 1, "user:42", "@payments/api")
	if err != nil || fmt.Sprint(reply) != "[1 100 99 0 600 1]" {
		t.Errorf("%v, %v", reply, err)
	}
	if _, err = server.Do("FCALL", "ratelimit_take", 1, "user:42", "@api"); err == nil || !strings.Contains(err.Error(), `"@api": no such policy`) {
		t.Errorf("%v", err)
	}
	if same, err := file.In(""); err != nil || same != file {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{"..", "Payments", "a/b", "/", " ", "-a"} {
		if _, err := file.In(wrong); err == nil || !strings.HasPrefix(err.Error(), "the namespace ") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := Parse("p.yaml", []byte("policies:\n  payments/api: 1/s\n")); err == nil ||
		err.Error() != `p.yaml:2:3: the policy name "payments/api" contains a slash; write "api", and name the namespace once, above policies: namespace: payments` {
		t.Error(err)
	}
}

// A file may name its namespace. Then no flag and no other file may name another one.
func TestFilesThatNameTheirNamespace(t *testing.T) {
	write(t, map[string]string{
		"pay.yaml": "namespace: payments\npolicies:\n  api: 100/m\n", "more.yaml": "namespace: payments\npolicies:\n  jobs: 1/s\n",
		"base.yaml": "policies:\n  b: 1/s\n", "search.yaml": "namespace: search\npolicies:\n  s: 1/s\n",
	})
	file := must[*File](t)(Read("pay.yaml", "more.yaml"))
	for _, namespace := range []string{"", "payments"} {
		in := must[*File](t)(file.In(namespace))
		if in.Namespace != "payments" || in.Policies[0].Name != "payments/api" || in.Policies[1].Name != "payments/jobs" || file.Policies[0].Name != "api" {
			t.Errorf("%q: %+v", namespace, in)
		}
	}
	if _, err := file.In("search"); err == nil || err.Error() != "pay.yaml, more.yaml belongs to the namespace payments, not to search; leave out the namespace, or name the files of search" {
		t.Error(err)
	}
	for names, want := range map[string]string{
		"pay.yaml search.yaml": "search.yaml:1:1: belongs to the namespace search, and pay.yaml belongs to the namespace payments; files that are read together must belong to one namespace",
		"pay.yaml base.yaml":   "base.yaml:1:1: names no namespace, and pay.yaml belongs to the namespace payments; files that are read together must belong to one namespace",
		"base.yaml pay.yaml":   "pay.yaml:1:1: belongs to the namespace payments, and base.yaml names no namespace; files that are read together must belong to one namespace",
	} {
		if _, err := Read(strings.Split(names, " ")...); err == nil || err.Error() != want {
			t.Errorf("%s: %v", names, err)
		}
	}
	for _, wrong := range []string{"Payments", "''", "[a]", "a/b", "-a"} {
		if _, err := Parse("p.yaml", []byte("namespace: "+wrong+"\npolicies:\n  api: 1/s\n")); err == nil || !strings.HasPrefix(err.Error(), "p.yaml:1:12: ") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// TestTestsOfANamespace checks that tests select the same keys for a canary as the servers do. The
// selection depends on the full name of the policy, which includes the namespace.
func TestTestsOfANamespace(t *testing.T) {
	write(t, map[string]string{
		"a.yaml": "policies:\n  part:\n    limit: 30/m\n    canary: {limit: 20/m, share: 50%}\n",
		"b.yaml": "policies:\n  api: 5/m\n",
		"t.yaml": "policies: [a.yaml, b.yaml]\ntests:\n  - name: both\n    calls:\n      - take: [api, k]\n        expect: {limit: 5}\n      - take: [part, k]\n        expect: {limit: LIMIT}\n",
	})
	text, _ := os.ReadFile("t.yaml")
	limits := map[string]string{}
	for _, namespace := range []string{"", "payments", "search", "mail"} {
		for _, limit := range []string{"20", "30"} {
			require(t, os.WriteFile("t.yaml", []byte(strings.Replace(string(text), "LIMIT", limit, 1)), 0o600))
			file := must[*TestFile](t)(ReadTests("t.yaml", namespace))
			results := must[Results](t)(file.Run(t.Context(), regexp.MustCompile("")))
			if results.Failed() == 0 {
				limits[namespace] = limit
			}
		}
		in := must[*File](t)(must[*File](t)(Read("a.yaml")).In(namespace))
		server := embedded.Run(t, embedded.WithLibrary(must[functions.Build](t)(in.Build()).Text()))
		reply, err := server.Do("FCALL", "ratelimit_take", 1, "k", "@"+in.Policies[0].Name)
		if err != nil || fmt.Sprint(reply.([]any)[1]) != limits[namespace] {
			t.Errorf("%q: the tests say %q, and the server %v, %v", namespace, limits[namespace], reply, err)
		}
	}
	if limits[""] == limits["payments"] && limits[""] == limits["search"] && limits[""] == limits["mail"] {
		t.Errorf("the namespace never matters: %v", limits)
	}
}

var require = redistest.Require

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }
