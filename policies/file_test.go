package policies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func parse(t *testing.T, text string) *File {
	t.Helper()
	file, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
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
`)
	want := []functions.Policy{
		{Name: "short", Limits: []functions.PolicyLimit{{Limit: "100/m"}}},
		{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/s burst=20"}}, Shadow: true},
		{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "gcra 100/m, 1000/h"}, {Key: "consumer", Limit: "10/m"}}, Track: true},
		{Name: "9.again_-", Limits: []functions.PolicyLimit{{Limit: "10/m"}}},
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
	build, err := file.Build()
	if err != nil {
		t.Fatal(err)
	}
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

// Any fault in a file causes a sentence that says where it is, what it is, and what to do.
func TestWhatCannotBeRead(t *testing.T) {
	utf16 := func(high, low int) string {
		text := "\xff\xfe"
		if low == 1 {
			text = "\xfe\xff"
		}
		for _, c := range "policies:\n" {
			unit := [2]byte{}
			unit[low] = byte(c)
			unit[high] = 0
			text += string(unit[:])
		}
		return text
	}
	const form = "it has to be a mapping, field: value"
	none := func(at string) string {
		return "p.yaml:" + at + ": policies is empty; write a policy below it, as in api: 100/m. A library without policies needs no file"
	}
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", `p.yaml: the file is empty; begin with policies:`},
		{"a comment", "# x\n", `p.yaml: the file is empty; begin with policies:`},
		{"a list", "- a\n", `p.yaml:1:1: the file is a list; ` + form},
		{"a text", "policies\n", `p.yaml:1:1: the file is "policies"; ` + form},
		{"an empty mapping", "{}\n", `p.yaml:1:1: the field policies is missing; name policies below it`},
		{"another field", "polices:\n  a: 1/m\n", `p.yaml:1:1: unknown field "polices"; the file has policies`},
		{"no policy", "policies:\n", none("1:1")},
		{"no policy in braces", "\npolicies: {}\n", none("2:1")},
		{"no policy but a comment", "policies: # a: 1/m\n  # b: 1/m\n", none("1:1")},
		{"policies as a list", "policies: [a]\n", `p.yaml:1:11: policies is a list; ` + form},
		{"two documents", "policies:\n---\npolicies:\n", `p.yaml: more than one YAML document; remove what follows the line ---`},
		{"UTF-16, little end first", utf16(1, 0), `p.yaml: the file is UTF-16 or UTF-32 text; save it as UTF-8`},
		{"UTF-16, big end first", utf16(0, 1), `p.yaml: the file is UTF-16 or UTF-32 text; save it as UTF-8`},
		{"UTF-16 without a mark", utf16(0, 1)[2:], `p.yaml: the file is UTF-16 or UTF-32 text; save it as UTF-8`},
		{"Latin-1", "policies:\n  a:\n    description: caf\xe9\n", `p.yaml:3:21: the byte 0xe9 is not UTF-8; save the file as UTF-8`},
		{"a control character", "policies:\n  a: 1/m\x00\n", `p.yaml:2:9: the control character 0x00; YAML has none`},
		{"10 MB", strings.Repeat("# a long comment, again and again\n", 300_000), `p.yaml: the file is larger than 2 MiB; is it the right one?`},
		{"a shorthand for tags", "# x\n%TAG !a! tag:a\n---\npolicies:\n  a: 1/m\n", `p.yaml:2:1: the directive %TAG, which nothing in this file needs; remove the line`},
		{"tabs", "policies:\n\ta: 1/m\n", `p.yaml:2:1: a tab in the indentation; YAML takes spaces`},
		{"indented too much", "policies:\n  a: 1/m\n   b: 2/m\n", `p.yaml:3:5: a field where none can be: the indentation is wrong, or a text with a colon needs quotes`},
		{"indented in between", "policies:\n  a:\n    limit: 1/m\n   shadow: true\n", `p.yaml:4:4: the indentation fits no line above, or a text needs quotes`},
		{"an open quote", "policies:\n  a: \"1/m\n", `p.yaml:3:1: found unexpected end of stream, while scanning a quoted scalar that begins in line 2`},
		{"an open bracket", "policies: {a: 1/m\n", `p.yaml:2:1: did not find expected ',' or '}', while parsing a flow mapping that begins in line 1`},
		{"@", "policies:\n  a: @b\n", `p.yaml:2:6: a text cannot begin with @; put it in quotes, or leave the character out`},
		{"an alias of nothing", "policies:\n  a: *b\n", `p.yaml:2:6: unknown anchor 'b' referenced`},
		{"a policy twice", "policies:\n  a: 1/m\n  b: 1/m\n  a: 2/m\n", `p.yaml:4:3: "a" is given twice in policies; the first is in line 2`},
		{"a field twice", "policies:\n  a:\n    limit: 1/m\n    limit: 2/m\n", `p.yaml:4:5: "limit" is given twice in policy a; the first is in line 3`},
		{"an unknown field", "policies:\n  a:\n    limit: 1/m\n    shadows: true\n", `p.yaml:4:5: unknown field "shadows"; policy a has description, limit, limits, cost, shadow, track`},
		{"a merge key", "policies:\n  a: &a {limit: 1/m}\n  b: {<<: *a}\n", `p.yaml:3:7: unknown field "<<"; policy b has description, limit, limits, cost, shadow, track`},
		{"a name of capitals", "policies:\n  Api: 1/m\n", `p.yaml:2:3: the policy name "Api" is not 1 to 64 of a-z 0-9 _ . -`},
		{"a long name", "policies:\n  " + strings.Repeat("a", 65) + ": 1/m\n", `p.yaml:2:3: the policy name "` + strings.Repeat("a", 60) + `..." is not 1 to 64 of a-z 0-9 _ . -`},
		{"an empty name", "policies:\n  '': 1/m\n", `p.yaml:2:3: the policy name "" is not 1 to 64 of a-z 0-9 _ . -`},
		{"a mapping for a name", "policies:\n  ? {a: b}\n  : 1/m\n", `p.yaml:2:5: a name in policies is a mapping; it has to be a text`},
		{"no limit", "policies:\n  a:\n    shadow: true\n", `p.yaml:3:5: policy a has no limit; write limit: 100/m, or limits: and a list`},
		{"nothing for a policy", "policies:\n  a:\n", `p.yaml:2:5: policy a is empty; ` + form},
		{"both limits", "policies:\n  a: {limit: 1/m, limits: [b: 1/m]}\n", `p.yaml:2:19: policy a has limit and limits; keep one of them`},
		{"an empty limit", "policies:\n  a: {limit: ' '}\n", `p.yaml:2:14: an empty limit; give one such as 100/m`},
		{"no text for a limit", "policies:\n  a: {limit: }\n", `p.yaml:2:14: a limit is empty; it has to be a text`},
		{"a list for a limit", "policies:\n  a: {limit: [1/m]}\n", `p.yaml:2:14: a limit is a list; it has to be a text`},
		{"a policy for a limit", "policies:\n  a: '@b'\n", `p.yaml:2:6: the limit "@b" is a policy; a policy is made of limits such as 100/m`},
		{"a long limit", "policies:\n  a: " + strings.Repeat("1", 1025) + "/m\n", `p.yaml:2:6: a limit of 1027 bytes; it has at most 1024`},
		{"limits without an order", "policies:\n  a:\n    limits:\n      who: 1/m\n", `p.yaml:4:7: limits is a mapping, which has no order; make it a list, each limit with a dash, as in - consumer: 100/m`},
		{"limits without names", "policies:\n  a:\n    limits: [1/m]\n", `p.yaml:3:14: a limit of several is "1/m"; write the name of its key and the limit, as in consumer: 100/m`},
		{"no limits", "policies:\n  a: {limits: []}\n", `p.yaml:2:3: policy a has 0 limits; give it 1 to 16`},
		{"17 limits", "policies:\n  a: {limits: [" + strings.Repeat("b: 1/m, ", 17) + "]}\n", `p.yaml:2:3: policy a has 17 limits; give it 1 to 16`},
		{"a key twice", "policies:\n  a: {limits: [b: 1/m, b: 2/m]}\n", `p.yaml:2:24: the key name "b" is given twice`},
		{"a key's name", "policies:\n  a: {limits: [B: 1/m]}\n", `p.yaml:2:16: the key name "B" is not 1 to 64 of a-z 0-9 _ . -`},
		{"a mapping for a key's name", "policies:\n  a: {limits: [? {b: c} : 1/m]}\n", `p.yaml:2:18: the name of a key is a mapping; it has to be a text`},
		{"several limits, one without a name", "policies:\n  a: {limits: [b: 1/m, '': 1/m]}\n", `p.yaml:2:24: a limit of several has no key name; name what each is for`},
		{"yes", "policies:\n  a: {limit: 1/m, shadow: yes}\n", `p.yaml:2:27: shadow is "yes"; write true or false`},
		{"a number for a flag", "policies:\n  a: {limit: 1/m, track: 1}\n", `p.yaml:2:26: track is "1"; write true or false`},
		{"a description", "policies:\n  a: {limit: 1/m, description: [b]}\n", `p.yaml:2:32: the description is a list; it has to be a text`},
		{"a cost below 0", "policies:\n  a: {limit: 1/m, cost: -1}\n", `p.yaml:2:25: a cost is "-1"; give a whole number from 0 to 9007199254740992`},
		{"a cost of a half", "policies:\n  a: {limit: 1/m, cost: 0.5}\n", `p.yaml:2:25: a cost is "0.5"; give a whole number from 0 to 9007199254740992`},
		{"a cost above 2^53", "policies:\n  a: {limit: 1/m, cost: 9007199254740993}\n", `p.yaml:2:25: a cost is "9007199254740993"; give a whole number from 0 to 9007199254740992`},
		{"costs that do not fit", "policies:\n  a: {limit: 1/m, cost: [1, 2]}\n", `p.yaml:2:25: 2 costs and 1 limits; give one cost for all, or one for each`},
		{"several", "policies:\n  A: 1/m\n  b: {limit: 1/m, x: 1, y: 2}\n", `p.yaml:2:3: the policy name "A" is not 1 to 64 of a-z 0-9 _ . - (and 2 more)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("p.yaml", []byte(tt.text))
			var problems Problems
			if !errors.As(err, &problems) || err.Error() != tt.want {
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
	if err := os.WriteFile(name, []byte("policies:\n  a: 1/m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// A file that is wrong in every line does not fill the screen, and reading a file that refers to
// itself ends.
func TestProblemsAreBounded(t *testing.T) {
	_, err := Parse("p.yaml", []byte("policies:\n"+strings.Repeat("  Wrong: 1/m\n", 5000)))
	var problems Problems
	if !errors.As(err, &problems) || len(problems) > mostProblems {
		t.Errorf("%d problems: %v", len(problems), err)
	}
	if _, err := Parse("p.yaml", []byte("policies: &p\n  a: *p\n")); err == nil {
		t.Error("a file that holds itself was taken")
	}
	if _, err := Parse("p.yaml", []byte("policies:\n  a: "+strings.Repeat("[", 100_000))); err == nil {
		t.Error("a deep file was taken")
	}
}

// The largest allowed file becomes a library that loads in much less than the half second that a
// server allows.
func TestTheLargestFileLoads(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range functions.MostPolicies {
		text.WriteString("  " + strings.Repeat("p", 58) + strconv.Itoa(100000+i) + ": sliding_window 100/m buckets=10, 1000/h\n")
	}
	file := parse(t, text.String())
	findings, err := file.Check()
	if err != nil || len(findings.Wrong)+len(findings.Doubtful) != 0 {
		t.Errorf("%v, %v", findings, err)
	}
	build, err := file.Build()
	if err != nil {
		t.Fatal(err)
	}
	embedded.Run(t, embedded.WithLibrary(build.Text()))
}

// So does a library with about as many words and characters as a build can have.
func TestTheBuildOfMostLimitsLoads(t *testing.T) {
	list := make([]functions.Policy, functions.MostPolicies)
	for i := range list {
		list[i].Name = strconv.FormatInt(int64(i), 36)
		for k := range 14 {
			list[i].Limits = append(list[i].Limits, functions.PolicyLimit{Key: string(rune('a' + k)), Limit: "1/s"})
		}
	}
	build, err := functions.New(functions.WithPolicies(list...))
	if size := len(build.Text()); err != nil || size < 1_900_000 {
		t.Fatalf("a text of %d bytes, not close to the 2 MiB that a build may have: %v", size, err)
	}
	embedded.Run(t, embedded.WithLibrary(build.Text()))
}

// A small file whose aliases repeat the same long limits ten thousand times is refused because of
// its expanded size.
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
