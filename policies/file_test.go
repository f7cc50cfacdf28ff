package policies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

func parse(t *testing.T, text string) *File {
	t.Helper()
	file := must[*File](t)(Parse("p.yaml", []byte(text)))
	return file
}

func TestParse(t *testing.T) {
	file := parse(t, `# a comment
policies:
  short: 100/m
  api: {limit: 10/s burst=20, description: "calls: of users", shadow: true}
  calc:
    limits:
      - resource: gcra 100/m, 1000/h
      - consumer: &c 10/m
    cost: [5, 1]
    track: true
  9.again_-:
    limit: *c
    cost: 3
  part: {limit: 2/m, canary: {limit: 1/m, share: 0.1%}}
  part.shadow: {limit: 2/m, shadow: true, canary: {limit: 1/m, share: 5%}}
  part.try: {limit: 2/m, shadow: true, canary: {limit: 1/m, share: 12.5%, shadow: false}}
  part.two:
    canary:
      limits: [a: 3/m, b: *c]
      share: 100%
      shadow: true
    limits: [a: 1/m, b: 2/m]
  classed: {limit: 5/m, classes: {critical: 0, default: 20, shadow: 100}}
  any: {limit: 5/m, classes: any}
  login: {limit: 5/m, shadow: true, classes: any, penalty: 1m30s..1h, forget: 1d12h, warn: 80}
  tenant: {guarantee: 80/s, pool: 1000/s, floor: 80, track: true, canary: {guarantee: 90/s, pool: 1000/s, share: 5%}}
  tenants: {guarantee: 80/s, pool: 1000/s, canary: {guarantee: 90/s, pool: 1000/s, floor: 20, share: 5%}}
`)
	want := []functions.Policy{
		{Name: "short", Limits: []functions.PolicyLimit{{Limit: "100/m"}}},
		{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/s burst=20"}}, Shadow: true},
		{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "gcra 100/m, 1000/h"}, {Key: "consumer", Limit: "10/m"}}, Track: true},
		{Name: "9.again_-", Limits: []functions.PolicyLimit{{Limit: "10/m"}}},
		{Name: "part", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Canary: &functions.Canary{Limits: []string{"1/m"}, Share: 1}},
		{Name: "part.shadow", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Shadow: true, Canary: &functions.Canary{Limits: []string{"1/m"}, Share: 50, Shadow: true}},
		{Name: "part.try", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Shadow: true, Canary: &functions.Canary{Limits: []string{"1/m"}, Share: 125}},
		{Name: "part.two", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/m"}, {Key: "b", Limit: "2/m"}}, Canary: &functions.Canary{Limits: []string{"3/m", "10/m"}, Share: 1000, Shadow: true}},
		{Name: "classed", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Classes: map[string]int{"critical": 0, "default": 20, "shadow": 100}},
		{Name: "any", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, AnyClass: true},
		{Name: "login", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Shadow: true, AnyClass: true,
			Penalty: &functions.Penalty{First: 90 * time.Second, Max: time.Hour, Forget: 36 * time.Hour}, Warn: 80},
		{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "80/s"}, {Key: "pool", Limit: "1000/s"}}, Track: true, Borrow: true, Floor: 80,
			Canary: &functions.Canary{Limits: []string{"90/s", "1000/s"}, Share: 50, Floor: 80}},
		{Name: "tenants", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "80/s"}, {Key: "pool", Limit: "1000/s"}}, Borrow: true,
			Canary: &functions.Canary{Limits: []string{"90/s", "1000/s"}, Share: 50, Floor: 20}},
	}
	if len(file.Policies) != len(want) {
		t.Fatalf("%+v", file.Policies)
	}
	for i, policy := range file.Policies {
		if !reflect.DeepEqual(policy.Policy, want[i]) {
			t.Errorf("got %+v, want %+v", policy.Policy, want[i])
		}
	}
	if file.Policies[1].Description != "calls: of users" || !reflect.DeepEqual(file.Policies[2].Costs, []int64{5, 1}) ||
		!reflect.DeepEqual(file.Policies[3].Costs, []int64{3}) {
		t.Errorf("%+v", file.Policies)
	}
	build := must[functions.Build](t)(file.Build())
	if direct, err := functions.New(functions.WithPolicies(want...)); err != nil || build.ID() != direct.ID() {
		t.Errorf("build %s, want %s (%v)", build.ID(), direct.ID(), err)
	}
	if long := parse(t, "policies:\n  a: "+strings.Repeat("1", 1024)+"\n"); len(long.Policies) != 1 || len(long.Policies[0].Limits[0].Limit) != 1024 {
		t.Errorf("a limit of 1024 bytes: %+v", long)
	}
	if marked := parse(t, "\ufeffpolicies:\r\n  a: 1/m\r\n"); len(marked.Policies) != 1 || marked.Policies[0].Limits[0].Limit != "1/m" {
		t.Errorf("with a byte order mark and Windows line ends: %+v", marked)
	}
}

// TestProblems checks that each problem has a position, and says what is wrong and what to do.
func TestProblems(t *testing.T) {
	golden(t, "policies.txt", func(t *testing.T, text string) []string {
		file, err := Parse("p.yaml", []byte(text))
		if err != nil {
			return lines(err)
		}
		found := must[Findings](t)(file.Findings())
		return lines(slices.Concat(found.Wrong, found.Doubtful, found.Notes))
	})
}

func TestFilesThatAreNotText(t *testing.T) {
	utf16 := func(high, low int) string {
		text := ""
		for _, c := range "\ufeffpolicies:\n" {
			unit := [2]byte{}
			unit[high], unit[low] = byte(c>>8), byte(c)
			text += string(unit[:])
		}
		return text
	}
	for _, tt := range []struct{ name, text, want string }{
		{"UTF-16, little endian", utf16(1, 0), "p.yaml: the file is UTF-16 or UTF-32 text; save it as UTF-8"},
		{"UTF-16, big endian", utf16(0, 1), "p.yaml: the file is UTF-16 or UTF-32 text; save it as UTF-8"},
		{"UTF-16 without a byte order mark", utf16(0, 1)[2:], "p.yaml: the file is UTF-16 or UTF-32 text; save it as UTF-8"},
		{"Latin-1", "policies:\n  a:\n    description: caf\xe9\n", "p.yaml:3:21: the byte 0xe9 is not UTF-8; save the file as UTF-8"},
		{"a control character", "policies:\n  a: 1/m\x00\n", "p.yaml:2:9: the control character 0x00 is not allowed"},
		{"10 MB", strings.Repeat("# a long comment, again and again\n", 300_000), "p.yaml: the file is larger than 2 MiB; is it the right one?"},
		{"a long limit", "policies:\n  a: " + strings.Repeat("1", 1025) + "/m\n", "p.yaml:2:6: a limit of 1027 bytes; it has at most 1024"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse("p.yaml", []byte(tt.text)); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "policies.yaml")
	if _, err := Read(name); !errors.Is(err, os.ErrNotExist) || !strings.HasSuffix(err.Error(), "no such file or directory; name another file") {
		t.Errorf("of a file that is not there: %v", err)
	}
	if _, err := Read(folder); err == nil || !strings.HasSuffix(err.Error(), "is a directory; name another file") {
		t.Errorf("of a folder: %v", err)
	}
	require(t, os.WriteFile(name, []byte("policies:\n  a: 1/m\n"), 0o600))
	if file, err := Read(name); err != nil || file.Name != name || len(file.Policies) != 1 {
		t.Errorf("%+v, %v", file, err)
	}
}

func TestTooManyPolicies(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range functions.MostPolicies + 1 {
		text.WriteString("  p" + strconv.Itoa(i) + ": 100/m\n")
	}
	_, err := Parse("p.yaml", []byte(text.String()))
	if err == nil || err.Error() != "p.yaml:2:3: 10001 policies; a build has at most 10000" {
		t.Errorf("%v", err)
	}
}

// TestProblemsAreBounded checks that only the first problems are reported if every line of a file
// is wrong, and that Parse ends for a file that refers to itself.
func TestProblemsAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		"  P%d: 1/m\n": `p.yaml:2:3: the policy name "P0" is not 1 to 64 of a-z 0-9 _ . - (and at least 50 more problems)`,
		"  p%d: 1/x\n": `p.yaml:2:7: policy p0: "1/x": the unit of the period "x" is none of ms, s, m, h, d (and at least 50 more problems)`,
	} {
		all := "policies:\n"
		for i := range 1000 {
			all += strings.ReplaceAll(text, "%d", strconv.Itoa(i))
		}
		file, err := Parse("p.yaml", []byte(all))
		if err == nil {
			var found Findings
			found, err = file.Findings()
			if err == nil {
				err = found.Wrong
			}
		}
		got := lines(err)
		if err.Error() != want || len(got) != yamlfile.MostMistakes+1 || !strings.HasSuffix(got[yamlfile.MostMistakes], ": more problems follow; correct the others first") {
			t.Errorf("got  %v\nwant %s\nlast of %d: %s", err, want, len(got), got[len(got)-1])
		}
	}
	if _, err := Parse("p.yaml", []byte("policies: &p\n  a: *p\n")); err == nil {
		t.Error("a file that contains itself is accepted")
	}
	if _, err := Parse("p.yaml", []byte("policies:\n  a: "+strings.Repeat("[", 100_000))); err == nil {
		t.Error("a deep file is accepted")
	}
}

// TestTheLargestFileLoads checks that the offline engine loads a library with the maximum number of
// policies within the engine's time limit.
func TestTheLargestFileLoads(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range functions.MostPolicies {
		text.WriteString("  " + strings.Repeat("p", 58) + strconv.Itoa(100000+i) + ": sliding_window 100/m buckets=10, 1000/h\n")
	}
	file := parse(t, text.String())
	findings, err := file.Findings()
	if err != nil || len(findings.Wrong)+len(findings.Doubtful) != 0 {
		t.Errorf("%v, %v", findings, err)
	}
	build := must[functions.Build](t)(file.Build())
	embedded.Run(t, embedded.WithLibrary(build.Text()))
}

// TestTheBuildOfMostLimitsLoads checks that a build of nearly the maximum size, with 13 limits in
// each policy, also loads in time.
func TestTheBuildOfMostLimitsLoads(t *testing.T) {
	list := make([]functions.Policy, functions.MostPolicies)
	for i := range list {
		list[i].Name = strconv.FormatInt(int64(i), 36)
		for k := range 13 {
			list[i].Limits = append(list[i].Limits, functions.PolicyLimit{Key: string(rune('a' + k)), Limit: "1/s"})
		}
	}
	build, err := functions.New(functions.WithPolicies(list...))
	if size := len(build.Text()); err != nil || size < 1_900_000 {
		t.Fatalf("a text of %d bytes, not close to the 2 MiB that a build may have: %v", size, err)
	}
	embedded.Run(t, embedded.WithLibrary(build.Text()))
}

// TestAFileThatIsLargeByAliases checks that a small file whose aliases repeat the same long limits
// ten thousand times is refused because of its expanded size.
func TestAFileThatIsLargeByAliases(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n  p0:\n    limits: &all\n")
	for i := range functions.MostPolicyLimits {
		fmt.Fprintf(&text, "    - k%d: 1/s%s burst=1\n", i, strings.Repeat(", 1/365d burst=9007199254740991", 15))
	}
	for i := range 9990 {
		fmt.Fprintf(&text, "  p%d: {limits: *all}\n", i+1)
	}
	_, err := Parse("p.yaml", []byte(text.String()))
	if want := "p.yaml:1:1: the library would have "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s...", err, want)
	}
}
