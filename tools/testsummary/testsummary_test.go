package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestResults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		events []string
		want   []result
	}{{
		name: "leaves count, their parents do not",
		events: []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x/1"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x/1"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		},
		want: []result{{"p", "TestA/x/1", passed}},
	}, {
		name: "a parent that fails by itself counts",
		events: []string{
			`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		},
		want: []result{{"p", "TestA", failed}, {"p", "TestA/x", passed}},
	}, {
		name: "a failing subtest counts once",
		events: []string{
			`{"Action":"fail","Package":"p","Test":"TestA/x"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		},
		want: []result{{"p", "TestA/x", failed}},
	}, {
		name: "a skip is kept apart from a pass",
		events: []string{
			`{"Action":"skip","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		},
		want: []result{{"p", "TestA", skipped}},
	}, {
		name: "a test without an end",
		events: []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}`,
			`{"Action":"fail","Package":"p"}`,
		},
		want: []result{{"p", "TestA", unfinished}},
	}, {
		name: "a package that does not build",
		events: []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"x.go:1: bad\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		},
		want: []result{{"p", "", failed}},
	}, {
		name: "a package whose TestMain fails after its tests passed",
		events: []string{
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		},
		want: []result{{"p", "", failed}, {"p", "TestA", passed}},
	}, {
		name:   "a package without tests",
		events: []string{`{"Action":"skip","Package":"p"}`},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCollector()
			for _, text := range tc.events {
				c.line(text)
			}
			if got := c.results(); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("results %v, want %v", got, tc.want)
			}
		})
	}
}

// runOn runs the "run" command with the given events in place of go test, which exits with the
// given status.
func runOn(t *testing.T, status string, events ...string) (ok bool, printed, out string) {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "events")
	if err := os.WriteFile(in, []byte(strings.Join(events, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(dir, "out.json")
	var b bytes.Buffer
	ok, err := runCommand([]string{"-label", "L", "-out", out, "--", "sh", "-c", `cat "$0"; exit "$1"`, in, status}, &b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ok, b.String(), out
}

const (
	passTest = `{"Action":"pass","Package":"p","Test":"TestA/redis-7.0/x"}`
	passPkg  = `{"Action":"pass","Package":"p"}`
)

func TestRunPrintsFailuresInFullAndNothingElse(t *testing.T) {
	ok, printed, _ := runOn(t, "1",
		`{"Action":"output","Package":"p","Test":"TestA","Output":"good noise\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB/x","Output":"the reason\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB/x"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"--- FAIL: TestB\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"q","Output":"other package\n"}`,
		`{"Action":"pass","Package":"q"}`,
		`{"Action":"fail","Package":"p"}`)
	if ok {
		t.Error("a run with a failure is reported as good")
	}
	for _, want := range []string{"the reason\n", "--- FAIL: TestB\n", "failed: p TestB/x\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing from:\n%s", want, printed)
		}
	}
	for _, not := range []string{"good noise", "other package"} {
		if strings.Contains(printed, not) {
			t.Errorf("%q is printed although it did not fail:\n%s", not, printed)
		}
	}
}

func TestRunIsQuietWhenEverythingPasses(t *testing.T) {
	ok, printed, _ := runOn(t, "0", passTest, passPkg)
	want := regexp.MustCompile(`^run  L\n     ok   p: 1 tests, after \S+ s\nok   L: 1 tests \(\d+ s\)\n$`)
	if !ok || !want.MatchString(printed) {
		t.Errorf("ok %v, printed %q", ok, printed)
	}
}

func TestRunFailsWhenNothingRan(t *testing.T) {
	if ok, _, _ := runOn(t, "0", `{"Action":"skip","Package":"p"}`); ok {
		t.Error("a run without a test is reported as good")
	}
}

func TestRunFailsWhenGoTestFailsWithoutSayingWhich(t *testing.T) {
	ok, printed, _ := runOn(t, "1", "go: cannot find main module", passTest, passPkg)
	if ok || !strings.Contains(printed, "cannot find main module") {
		t.Errorf("ok %v, printed %q", ok, printed)
	}
}

func TestRunFailsOnASkip(t *testing.T) {
	ok, printed, _ := runOn(t, "0", passTest, `{"Action":"skip","Package":"p","Test":"TestS"}`, passPkg)
	if ok || !strings.Contains(printed, "skipped: p TestS") {
		t.Errorf("ok %v, printed %q", ok, printed)
	}
}

func TestTotal(t *testing.T) {
	_, _, good := runOn(t, "0", passTest, passPkg)
	_, _, bad := runOn(t, "1", `{"Action":"fail","Package":"p","Test":"TestA/redis-7.0/y"}`, `{"Action":"fail","Package":"p"}`)
	servers := filepath.Join(t.TempDir(), "servers.json")
	if err := os.WriteFile(servers, []byte(`[{"name":"redis-7.0","about":"Redis 7.0.15"},{"name":"redis-7","about":"none"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	idle := filepath.Join(t.TempDir(), "idle.json")
	if err := os.WriteFile(idle, []byte(`[{"name":"given","excluded":["tests of a cluster"],"not_run":["TestA/redis-7.0/x"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		ok   bool
		want []string
	}{
		{"all passed", []string{"-checks-passed", "3", "-seconds", "62", "-servers", servers, good}, true, []string{
			"  on redis-7.0                  1 passed      0 failed   Redis 7.0.15\n",
			"  on redis-7                    0 passed      0 failed   none\n",
			"\n4 passed, 0 failed\n62 s: 3 checks and 1 tests, on redis-7.0, redis-7\n"}},
		{"a test failed", []string{"-servers", servers, good, bad}, false, []string{
			"  on redis-7.0                  1 passed      1 failed   Redis 7.0.15\n",
			"\n1 passed, 1 failed\n0 s: 0 checks and 2 tests, on redis-7.0, redis-7\n"}},
		{"a test had nothing to run on", []string{"-servers", idle, good}, false, []string{
			"     not run there: tests of a cluster\n", "\n0 passed, 1 failed\n"}},
		{"a check failed", []string{"-checks-failed", "1", good}, false, []string{"\n1 passed, 1 failed\n"}},
		{"no test ran", []string{"-checks-passed", "3"}, false, []string{"\n3 passed, 1 failed\n"}},
		{"no server was reached", []string{"-servers", servers + ".none", good}, false, []string{"\n1 passed, 1 failed\n0 s: 0 checks and 1 tests, on no server\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			ok, err := totalCommand(tc.args, &b)
			if err != nil {
				t.Fatal(err)
			}
			if ok != tc.ok {
				t.Errorf("ok is %v, want %v", ok, tc.ok)
			}
			for _, want := range tc.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("%q is missing from:\n%s", want, b.String())
				}
			}
		})
	}
}

func TestTotalCountsAStageWithoutAnOutcome(t *testing.T) {
	var b bytes.Buffer
	ok, err := totalCommand([]string{filepath.Join(t.TempDir(), "gone.json")}, &b)
	if err != nil {
		t.Fatal(err)
	}
	if ok || !strings.Contains(b.String(), "\n0 passed, 1 failed\n") {
		t.Errorf("ok %v, printed %q", ok, b.String())
	}
}
