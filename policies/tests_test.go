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
  part: {limit: 5/s, canary: {limit: 2/s, share: 50%, shadow: true}}
  classed: {limit: 10/s, classes: {critical: 0, default: 20, batch: 50}}
  tenant: {guarantee: 2/s, pool: 10/s, floor: 50}
  part.jobs: {limit: concurrency 2 lease=10s, canary: {limit: concurrency 1 lease=10s, share: 50%}}
`

// oneTest is the beginning of a test file, up to the list of calls.
const oneTest = "policies: p.yaml\ntests:\n- name: one\n  calls:\n"

// readTests writes a file of tests into a directory with the policies above, and reads the file.
func readTests(t *testing.T, text string) (*TestFile, error) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"p.yaml": testedPolicies, "wrong.yaml": "policies:\n  a: 1/x\n", "broken.yaml": "policies: [\n", "t.yaml": text} {
		require(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	t.Chdir(folder)
	return ReadTests("t.yaml", "")
}

func TestExamples(t *testing.T) {
	file := must[*TestFile](t)(ReadTests("../examples/policies_test.yaml", ""))
	results := must[Results](t)(file.Run(t.Context(), nil))
	for _, test := range results.Tests {
		for _, failure := range test.Failures {
			t.Errorf("%s:%d: %s: %s: %s", results.File, failure.Line, test.Name, failure.Call, failure)
		}
	}
	if len(results.Tests) < 5 || results.Calls() < 100 || results.Failed() != 0 {
		t.Errorf("%d tests, %d calls, %d failed", len(results.Tests), results.Calls(), results.Failed())
	}
	found, err := file.Policies.Findings()
	if err != nil || len(found.Wrong)+len(found.Doubtful) != 0 {
		t.Errorf("%v, %v, %v", found.Wrong, found.Doubtful, err)
	}
}

// TestFailures checks that every failed expectation is reported with its position, the call, and
// the expected and the actual value.
func TestFailures(t *testing.T) {
	golden(t, "failures.txt", func(t *testing.T, calls string) []string {
		file := must[*TestFile](t)(readTests(t, oneTest+calls))
		results, err := file.Run(t.Context(), nil)
		if err != nil || len(results.Tests) != 1 {
			t.Fatalf("%+v, %v", results, err)
		}
		var list []string
		for _, f := range results.Tests[0].Failures {
			list = append(list, fmt.Sprintf("%d:%d %s: %s", f.Line, f.Column, f.Call, f))
		}
		if failed := results.Failed(); failed != min(1, len(list)) {
			t.Errorf("%d tests failed", failed)
		}
		return list
	})
}

// TestRunsAreIndependent checks that each test has its own keys and its own start time, and can be
// selected by name.
func TestZeroTestFile(t *testing.T) {
	for _, f := range []*TestFile{nil, {}} {
		if _, err := f.Run(t.Context(), nil); err == nil || err.Error() != "the TestFile has no policies; read it with ReadTests" {
			t.Error(err)
		}
	}
}

func TestRunsAreIndependent(t *testing.T) {
	file := must[*TestFile](t)(readTests(t, `policies: p.yaml
tests:
- name: first
  start: 2030-06-01T12:00:00.5Z
  calls:
  - {at: 1h, take: [api, k], times: 2, expect: {allowed: 2}}
- name: second
  calls:
  - {take: [api, k], times: 2, expect: {allowed: 2}}
`))
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

func TestProblemsOfTests(t *testing.T) {
	golden(t, "tests.txt", func(t *testing.T, text string) []string {
		if strings.HasPrefix(text, " ") {
			text = oneTest + text
		}
		if _, err := readTests(t, text); err != nil {
			return lines(err)
		}
		return nil
	})
}

// TestTestsThatAreLargeByAliases checks that a small file whose aliases expand to a huge one is
// refused.
func TestTestsThatAreLargeByAliases(t *testing.T) {
	const expands = "aliases expand the file to more than 2097152 values; use fewer aliases"
	for _, tt := range []struct{ name, tests, want string }{
		{"calls", "- name: one\n  calls: &c [" + strings.Repeat("{reset: ["+strings.Repeat("k,", 100)+"]},", 100) + "]\n" + strings.Repeat("- {name: two, calls: *c}\n", 1000), "t.yaml:4:8926: " + expands},
		{"keys", "- name: one\n  calls:\n  - reset: &k [" + strings.Repeat("k,", 3000) + "]\n" + strings.Repeat("  - reset: *k\n", 3000), "t.yaml:702:12: " + expands},
		{"times", "- name: a\n  calls:\n  - &c {take: [api, k], times: 1000000}\n" + strings.Repeat("  - *c\n", 9) + "- name: b\n  calls:\n  - {peek: [api, k]}\n",
			"t.yaml:17:5: with this call the file makes more than 10000000 calls; give fewer times, or split the file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := readTests(t, "policies: p.yaml\ntests:\n"+tt.tests); err == nil || err.Error() != tt.want {
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
	require(t, WriteJUnit(&out, []Results{results, {File: "empty_test.yaml"}}))
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
		if again, err := span.Parse(span.Text(got)); err != nil || again != got {
			t.Errorf("%s is written as %s", text, span.Text(got))
		}
	}
}
