package policies

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/span"
)

const testedPolicies = `policies:
  api: 2/s
  calc: {limits: [resource: 10/s, consumer: 1/s]}
  try: {limit: 1/s, shadow: true}
  jobs: concurrency 1 lease=10s
`

// testFile writes a file of tests with these calls into a folder with the policies above, and reads
// it.
func testFile(t *testing.T, calls string) (*TestFile, error) {
	t.Helper()
	return readTests(t, "policies: p.yaml\ntests:\n- name: one\n  calls:\n"+calls)
}

func readTests(t *testing.T, text string) (*TestFile, error) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"p.yaml": testedPolicies, "wrong.yaml": "policies:\n  a: 1/x\n", "broken.yaml": "policies: [\n", "t.yaml": text} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	return ReadTests("t.yaml")
}

func TestExamples(t *testing.T) {
	file, err := ReadTests("../examples/policies_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	results, err := file.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range results.Tests {
		for _, failure := range test.Failures {
			t.Errorf("%s:%d: %s: %s: %s", results.File, failure.Line, test.Name, failure.Call, failure)
		}
	}
	if len(results.Tests) < 5 || results.Calls() < 100 || results.Failed() != 0 {
		t.Errorf("%d tests, %d calls, %d failed", len(results.Tests), results.Calls(), results.Failed())
	}
	found, err := file.Policies.Check()
	if err != nil || len(found.Wrong)+len(found.Doubtful) != 0 {
		t.Errorf("%v, %v, %v", found.Wrong, found.Doubtful, err)
	}
}

// Every failed expectation is reported with its position, the call, and the expected and the actual
// value.
func TestFailures(t *testing.T) {
	for _, tt := range []struct{ name, calls, want string }{
		{"all is well", "  - {take: [api, k], expect: {allowed: true, limit: 2, remaining: 1, retry_after: 0s, reset_after: 500ms, index: 1}}\n", ""},
		{"every field", "  - {at: 1m30s, take: ['@api', k], cost: 2, expect: {allowed: false, limit: 3, remaining: 1, retry_after: 1s, reset_after: 2s, index: 2}}\n",
			`5:63 take @api k cost 2 at 1m30s: allowed: expected false, got true
5:77 take @api k cost 2 at 1m30s: limit: expected 3, got 2
5:91 take @api k cost 2 at 1m30s: remaining: expected 1, got 0
5:107 take @api k cost 2 at 1m30s: retry_after: expected 1s, got 0s
5:124 take @api k cost 2 at 1m30s: reset_after: expected 2s, got 1s
5:135 take @api k cost 2 at 1m30s: index: expected 2, got 1`},
		{"never", "  - {take: [api, k], cost: 3, expect: {retry_after: 1s}}\n  - {take: [api, k], cost: 2, expect: {retry_after: never}}\n",
			"5:53 take @api k cost 3 at 0s: retry_after: expected 1s, got never\n6:53 take @api k cost 2 at 0s: retry_after: expected never, got 0s"},
		{"how many", "  - {take: [api, k], times: 5, expect: {allowed: 3}}\n", "5:50 take @api k 5 times at 0s: allowed: expected 3 of the calls, got 2 of the calls"},
		{"more than expected", "  - {take: [api, k], times: 5, expect: {allowed: 1}}\n", "5:50 take @api k 5 times at 0s: allowed: expected 1 of the calls, got 2 of the calls"},
		{"every one", "  - {take: [api, k], times: 5, expect: {allowed: true, remaining: 0}}\n", "5:50 take @api k 5 times at 0s: allowed: expected true for every call, got false for call 3 of 5"},
		{"none", "  - {take: [api, k], times: 5, expect: {allowed: false}}\n", "5:50 take @api k 5 times at 0s: allowed: expected false for every call, got true for call 1 of 5"},
		{"a key by its name", "  - {take: [calc, r, c], times: 2, expect: {index: resource, allowed: 1}}\n", "5:52 take @calc r c 2 times at 0s: index: expected 1 (resource), got 2 (consumer)"},
		{"costs for each", "  - {take: [calc, r, c], cost: [10, 1], expect: {remaining: 1}}\n", "5:61 take @calc r c cost 10, 1 at 0s: remaining: expected 1, got 0"},
		{"as many as fit", "  - {take: [api, k], up_to: 3, expect: {allowed: true, taken: 2}}\n  - {take: [api, k], up_to: 3, expect: {allowed: true, taken: 1, retry_after: 1s}}\n" +
			"  - {take: [api, l], up_to: 1, times: 3, expect: {allowed: 2, taken: 0}}\n  - {peek: [api, m], up_to: 3, times: 2, expect: {allowed: true, taken: 3}}\n" +
			"  - {take: [try, s], up_to: 3, expect: {allowed: true, taken: 3, would_allowed: true, would_taken: 2}}\n",
			`6:50 take @api k up to 3 at 0s: allowed: expected true, got false
6:63 take @api k up to 3 at 0s: taken: expected 1, got 0
6:79 take @api k up to 3 at 0s: retry_after: expected 1s, got 500ms
8:73 peek @api m up to 3 2 times at 0s: taken: expected 3, got 2
9:100 take @try s up to 3 at 0s: would_taken: expected 2, got 1`},
		{"shadow", "  - {take: [try, k], times: 2, expect: {allowed: true, would_allowed: true, would_retry_after: 2s, would_index: 1}}\n",
			"5:71 take @try k 2 times at 0s: would_allowed: expected true, got false\n5:96 take @try k 2 times at 0s: would_retry_after: expected 2s, got 1s"},
		{"no shadow", "  - {take: [api, k], expect: {would_allowed: true}}\n", "5:46 take @api k at 0s: would_allowed: expected true, got nothing: no shadow policy had a say"},
		{"an error that was not expected", "  - {take: [calc, k]}\n",
			"5:5 take @calc k at 0s: error: expected no error, got RATELIMIT BADKEYS the number of keys is 1 and the number of limits 2; give each limit one key, in order; @calc takes resource, consumer"},
		{"no error where one was expected", "  - {take: [api, k], expect: {error: RATELIMIT BADKEYS}}\n", `5:38 take @api k at 0s: error: expected an error that begins with "RATELIMIT BADKEYS", got no error`},
		{"another error", "  - {take: [calc, k, k], expect: {error: RATELIMIT BADLIMIT}}\n", `5:42 take @calc k k at 0s: error: expected an error that begins with "RATELIMIT BADLIMIT", got RATELIMIT BADKEYS "k" is given twice; name each key once`},
		{"leases", "  - {acquire: [jobs, k, a]}\n  - {acquire: [jobs, k, b], expect: {allowed: true}}\n  - {at: 1s, renew: [jobs, k, a], expect: {reset_after: 9s}}\n  - {at: 1s, release: [jobs, k, b], expect: {changed: 1}}\n",
			"6:47 acquire @jobs k b at 0s: allowed: expected true, got false\n7:57 renew @jobs k a at 1s: reset_after: expected 9s, got 10s\n8:55 release @jobs k b at 1s: changed: expected 1, got 0"},
		{"keys without a limit", "  - {block: [a, b], for: 10m, expect: {changed: 1}}\n  - {unblock: [a, c], expect: {changed: 2}}\n  - {reset: [a, b], expect: {changed: 0}}\n  - {at: 1d, refund: [api, a], expect: {remaining: 1}}\n",
			"5:49 block a b for 10m at 0s: changed: expected 1, got 2\n6:41 unblock a c at 0s: changed: expected 2, got 1\n7:39 reset a b at 0s: changed: expected 0, got 1\n8:52 refund @api a at 1d: remaining: expected 1, got 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, err := testFile(t, tt.calls)
			if err != nil {
				t.Fatal(err)
			}
			results, err := file.Run(t.Context(), nil)
			if err != nil || len(results.Tests) != 1 {
				t.Fatalf("%+v, %v", results, err)
			}
			var lines []string
			for _, f := range results.Tests[0].Failures {
				lines = append(lines, fmt.Sprintf("%d:%d %s: %s", f.Line, f.Column, f.Call, f))
			}
			if got := strings.Join(lines, "\n"); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
			if failed := results.Failed(); (failed == 1) != (tt.want != "") {
				t.Errorf("%d tests failed", failed)
			}
		})
	}
}

// Tests do not see each other's keys, start at their own times, and can be selected.
func TestRunsAreApart(t *testing.T) {
	file, err := readTests(t, `policies: p.yaml
tests:
- name: first
  start: 2030-06-01T12:00:00.5Z
  calls:
  - {at: 1h, take: [api, k], times: 2, expect: {allowed: 2}}
- name: second
  calls:
  - {take: [api, k], times: 2, expect: {allowed: 2}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2030, 6, 1, 12, 0, 0, 500_000_000, time.UTC); !file.tests[0].start.Equal(want) {
		t.Errorf("begins at %s", file.tests[0].start)
	}
	for only, want := range map[string]int{"": 2, "sec": 1, "^f": 1, "third": 0} {
		results, err := file.Run(t.Context(), regexp.MustCompile(only))
		if err != nil || len(results.Tests) != want || results.Failed() != 0 {
			t.Errorf("%q: %+v, %v", only, results, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := file.Run(ctx, nil); err == nil || !strings.HasPrefix(err.Error(), "interrupted") {
		t.Errorf("%v", err)
	}
}

func TestTestsThatCannotBeRead(t *testing.T) {
	calls := func(text string) string {
		return "policies: p.yaml\ntests:\n- name: one\n  calls:\n" + text
	}
	endless := func(tests string) string { return "policies: p.yaml\ntests:\n" + tests }
	const endlessly = "with its aliases the file has more than 2097152 values; write out less of it by aliases"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "t.yaml: the file is empty; begin with policies: policies.yaml"},
		{"no policies", "tests: []\n", "t.yaml:1:1: the field policies is missing; name the file with the policies, relative to this one"},
		{"no tests", "policies: p.yaml\n", "t.yaml:1:1: the field tests is missing; list the tests below it"},
		{"no test", "policies: p.yaml\ntests: []\n", "t.yaml:2:8: there is no test; a file without tests proves nothing"},
		{"calls without end", endless("- name: one\n  calls: &c [" + strings.Repeat("{reset: [k]},", 1000) + "]\n" + strings.Repeat("- {name: two, calls: *c}\n", 1000)),
			"t.yaml:4:4564: " + endlessly},
		{"keys without end", endless("- name: one\n  calls:\n  - reset: &k [" + strings.Repeat("k,", 3000) + "]\n" + strings.Repeat("  - reset: *k\n", 3000)),
			"t.yaml:702:12: " + endlessly},
		{"policies that are not there", "policies: q.yaml\ntests: []\n", "open q.yaml: no such file or directory; name another file"},
		{"policies that cannot be read", "policies: broken.yaml\ntests: []\n", "broken.yaml:2:1: did not find expected node content, while parsing a flow node that begins in line 2"},
		{"policies with a wrong limit", "policies: wrong.yaml\ntests: []\n", `wrong.yaml:2:6: policy a: "1/x": the unit of the period "x" is none of ms, s, m, h, d`},
		{"a test without a name", "policies: p.yaml\ntests:\n- calls: [{reset: [k]}]\n", "t.yaml:3:3: a test without a name; say what it shows"},
		{"a test without calls", "policies: p.yaml\ntests:\n- name: one\n", "t.yaml:3:3: the test has no calls; list them below calls:"},
		{"a start", "policies: p.yaml\ntests:\n- {name: one, start: today, calls: [{reset: [k]}]}\n", `t.yaml:3:22: the start is "today"; write a time of the years 2002 to 2200, such as 2026-01-01T00:00:00Z`},
		{"an unknown field", calls("  - {take: [api, k], expects: {}}\n"), `t.yaml:5:22: unknown field "expects"; a call has at, cost, up_to, for, times, expect, take, peek, refund, acquire, renew, release, reset, block, unblock`},
		{"two calls in one", calls("  - {take: [api, k], peek: [api, k]}\n"), "t.yaml:5:22: a call is one thing, and this one is take and peek"},
		{"no call in one", calls("  - {at: 1s}\n"), "t.yaml:5:5: a call that calls nothing; give it one of take, peek, refund, acquire, renew, release, reset, block, unblock"},
		{"a policy that is not there", calls("  - {take: [apo, k]}\n"), `t.yaml:5:13: no policy "apo" in p.yaml; there are api, calc, jobs, try`},
		{"no key", calls("  - {take: [api]}\n"), "t.yaml:5:12: take takes a list of policy, key, and this one has 1"},
		{"no lease id", calls("  - {acquire: [jobs, k]}\n"), "t.yaml:5:15: acquire takes a list of policy, key, lease id, and this one has 2"},
		{"no list", calls("  - {reset: k}\n"), `t.yaml:5:13: reset is "k"; it has to be a list`},
		{"time that goes back", calls("  - {at: 2s, reset: [k]}\n  - {at: 1s, reset: [k]}\n"), "t.yaml:6:10: at 1s is before the call above, at 2s; time goes on"},
		{"too many calls", "policies: p.yaml\ntests:\n- name: a\n  calls:\n  - &c {take: [api, k], times: 1000000}\n" + strings.Repeat("  - *c\n", 9) + "- name: b\n  calls:\n  - {peek: [api, k]}\n",
			"t.yaml:17:5: with this the file makes more than 10000000 calls; give fewer times, or split the file"},
		{"a time", calls("  - {at: 1.5s, reset: [k]}\n"), `t.yaml:5:10: at: "1.5s" is no duration; write one such as 500ms, 1m30s or 2d`},
		{"a long time", calls("  - {at: 36501d, reset: [k]}\n"), `t.yaml:5:10: at: "36501d" is longer than 36500d`},
		{"a cost for none", calls("  - {reset: [k], cost: 1}\n"), "t.yaml:5:18: reset has no cost"},
		{"a cost", calls("  - {take: [api, k], cost: -1}\n"), `t.yaml:5:28: a cost is "-1"; give a whole number from 0 to 9007199254740992`},
		{"up_to for none", calls("  - {refund: [api, k], up_to: 1}\n"), "t.yaml:5:24: refund has no up_to"},
		{"up_to and a cost", calls("  - {take: [api, k], cost: 1, up_to: 2}\n"), "t.yaml:5:31: a call has cost, all or nothing, or up_to, as many as fit, and this one has both"},
		{"up_to", calls("  - {take: [api, k], up_to: many}\n"), `t.yaml:5:29: up_to is "many"; give a whole number from 0 to 9007199254740992`},
		{"up_to for each", calls("  - {take: [calc, r, c], up_to: [1, 2]}\n"), `t.yaml:5:33: up_to is a list; give a whole number from 0 to 9007199254740992`},
		{"units of a call without up_to", calls("  - {take: [api, k], expect: {taken: 1}}\n"), "t.yaml:5:31: taken is how many units a call with up_to took, and this one has none; expect allowed"},
		{"for", calls("  - {take: [api, k], for: 1s}\n"), "t.yaml:5:22: for is how long block denies the keys; take has none"},
		{"no for", calls("  - {block: [k]}\n"), "t.yaml:5:5: block without for; say how long, as in for: 10m"},
		{"no times", calls("  - {take: [api, k], times: 0}\n"), `t.yaml:5:29: times is "0"; give a whole number from 1 to 9007199254740992`},
		{"too many times", calls("  - {take: [api, k], times: 1000001}\n"), "t.yaml:5:29: times is 1000001; give at most 1000000"},
		{"a field of another verb", calls("  - {take: [api, k], expect: {changed: 1}}\n"), `t.yaml:5:31: unknown field "changed"; what to expect of take has allowed, taken, limit, remaining, retry_after, reset_after, index, would_allowed, would_taken, would_retry_after, would_index, error`},
		{"a number for one call", calls("  - {take: [api, k], expect: {allowed: 1}}\n"), `t.yaml:5:40: allowed is "1"; write true or false`},
		{"more allowed than called", calls("  - {take: [api, k], times: 2, expect: {allowed: 3}}\n"), "t.yaml:5:50: allowed is 3, and the calls are 2"},
		{"an error and more", calls("  - {take: [api, k], expect: {allowed: true, error: x}}\n"), "t.yaml:5:46: a call that ends in an error returns nothing else; expect the error alone"},
		{"a key's name", calls("  - {take: [calc, r, c], expect: {index: consumers}}\n"), `t.yaml:5:42: index is "consumers", which is neither a number nor the name of a key of the policy`},
		{"a wait", calls("  - {take: [api, k], expect: {retry_after: soon}}\n"), `t.yaml:5:44: retry_after: "soon" is no duration; write one such as 500ms, 1m30s or 2d`},
		{"never full", calls("  - {take: [api, k], expect: {reset_after: never}}\n"), `t.yaml:5:44: reset_after: "never" is no duration; write one such as 500ms, 1m30s or 2d`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := readTests(t, tt.text); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestWriteJUnit(t *testing.T) {
	results := Results{File: "a_test.yaml", Took: 1500 * time.Microsecond, Tests: []Result{
		{Name: "fine", Line: 3, Calls: 2, Took: time.Millisecond},
		{Name: `<"bad" & worse>`, Line: 9, Calls: 1, Failures: []Failure{
			{Line: 12, Column: 9, Call: "take @a <k> at 0s", Field: "remaining", Expected: "1", Got: "0"},
			{Line: 13, Column: 9, Call: "take @a <k> at 0s", Field: "index", Expected: "2", Got: "1"},
		}},
	}}
	var out bytes.Buffer
	if err := WriteJUnit(&out, []Results{results, {File: "empty_test.yaml"}}); err != nil {
		t.Fatal(err)
	}
	want := `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="2" failures="1" time="0.001500">
  <testsuite name="a_test.yaml" tests="2" failures="1" errors="0" skipped="0" time="0.001500">
    <testcase classname="a_test.yaml" name="fine" file="a_test.yaml" line="3" time="0.001000"></testcase>
    <testcase classname="a_test.yaml" name="&lt;&#34;bad&#34; &amp; worse&gt;" file="a_test.yaml" line="9" time="0.000000">
      <failure message="remaining: expected 1, got 0">a_test.yaml:12:9: take @a &lt;k&gt; at 0s: remaining: expected 1, got 0&#xA;a_test.yaml:13:9: take @a &lt;k&gt; at 0s: index: expected 2, got 1</failure>
    </testcase>
  </testsuite>
  <testsuite name="empty_test.yaml" tests="0" failures="0" errors="0" skipped="0" time="0.000000"></testsuite>
</testsuites>
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if err := xml.Unmarshal(out.Bytes(), new(junitSuites)); err != nil {
		t.Error(err)
	}
	if err := WriteJUnit(refusing{}, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestSpans(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "0s": 0, "500ms": 500, "1m30s": 90_000, "1d2h3m4s5ms": 93_784_005, "36500d": 3_153_600_000_000} {
		got, err := span.Parse(text)
		if err != nil || got.Milliseconds() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := span.Parse(spanText(want)); err != nil || again != got {
			t.Errorf("%s is written as %s", text, spanText(want))
		}
	}
}
