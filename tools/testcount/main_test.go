package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCount has a case for each rule of count. Each case changes a successful run only as far as
// its rule requires.
func TestCount(t *testing.T) {
	const servers = `[{"name":"redis-7.0","about":"Redis 7.0.15"},{"name":"redis-7","about":"none","excluded":["tests of a cluster"],"not_run":["TestIdle"]}]`
	good := []string{
		`{"Action":"start","Package":"p"}`,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"run","Package":"p","Test":"TestA/redis-7.0"}`,
		`{"Action":"run","Package":"p","Test":"TestA/redis-7.0/x"}`,
		`{"Action":"pass","Package":"p","Test":"TestA/redis-7.0/x"}`,
		`{"Action":"pass","Package":"p","Test":"TestA/redis-7.0"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p"}`,
		`{"Action":"skip","Package":"without tests"}`,
	}
	for _, tc := range []struct {
		name    string
		more    []string // events after those of the successful run
		instead []string // events that replace those of the successful run
		status  string   // exit status of go test; "" means 0
		servers string   // the servers; "" means none
		flags   []string
		want    []string // output lines; the first is the result
	}{{
		name: "all passed", servers: servers, flags: []string{"-checks-passed", "3", "-seconds", "62"},
		want: []string{"4 passed, 0 failed",
			"checks                          3 passed      0 failed",
			"L                               1 passed      0 failed",
			"  on redis-7.0                  1 passed      0 failed   Redis 7.0.15",
			"  on redis-7                    0 passed      0 failed   none",
			"     not run there: tests of a cluster",
			"62 s: 3 checks and 1 tests, on redis-7.0, redis-7"},
	}, {
		name: "a check failed", servers: servers, flags: []string{"-checks-failed", "1"},
		want: []string{"1 passed, 1 failed"},
	}, {
		name: "a subtest fails, and with it its parents", servers: servers, status: "1",
		more: []string{
			`{"Action":"fail","Package":"p","Test":"TestA/redis-7.0/y"}`, `{"Action":"fail","Package":"p","Test":"TestA/redis-7.0"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`,
		},
		want: []string{"1 passed, 1 failed", "failed: p TestA/redis-7.0/y", "  on redis-7.0                  1 passed      1 failed   Redis 7.0.15"},
	}, {
		name: "a parent fails by itself", servers: servers, status: "1",
		more: []string{`{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`},
		want: []string{"1 passed, 1 failed", "failed: p TestA"},
	}, {
		name: "a skipped test", servers: servers,
		more: []string{`{"Action":"skip","Package":"p","Test":"TestS"}`},
		want: []string{"1 passed, 1 failed", "skipped: p TestS"},
	}, {
		name: "a test that skips after its subtests", servers: servers,
		more: []string{`{"Action":"skip","Package":"p","Test":"TestA"}`},
		want: []string{"1 passed, 1 failed", "skipped: p TestA"},
	}, {
		name: "a panic, or the timeout", servers: servers, status: "1",
		more: []string{`{"Action":"run","Package":"p","Test":"TestB"}`, `{"Action":"fail","Package":"p"}`},
		want: []string{"1 passed, 1 failed", "unfinished: p TestB"},
	}, {
		name: "a package that does not build", servers: servers, status: "1",
		more: []string{
			`{"Action":"build-output","ImportPath":"q [q.test]","Output":"x.go:1: bad\n"}`, `{"Action":"build-fail","ImportPath":"q [q.test]"}`,
			`{"Action":"start","Package":"q"}`, `{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}`,
		},
		want: []string{"1 passed, 1 failed", "failed: q"},
	}, {
		name: "TestMain fails after the tests", servers: servers, status: "1",
		more: []string{`{"Action":"fail","Package":"p"}`},
		want: []string{"1 passed, 1 failed", "failed: p"},
	}, {
		name: "go test fails, and no package", servers: servers, status: "1",
		want: []string{"1 passed, 1 failed", "failed: L as a whole: go test exited with 1 after 1 tests; <nil>"},
	}, {
		name: "no test ran", servers: servers, instead: []string{`{"Action":"skip","Package":"p"}`},
		want: []string{"0 passed, 1 failed", "failed: L as a whole: go test exited with 0 after 0 tests; <nil>"},
	}, {
		name: "a test had nothing to run on", servers: servers, instead: []string{`{"Action":"pass","Package":"p","Test":"TestIdle"}`},
		want: []string{"0 passed, 1 failed", "0 s: 0 checks and 0 tests, on redis-7.0, redis-7"},
	}, {
		name: "no events", servers: servers, instead: []string{"go: cannot find main module"},
		want: []string{"0 passed, 1 failed"},
	}, {
		name: "no server was reached",
		want: []string{"1 passed, 1 failed", "0 s: 0 checks and 1 tests, on no server"},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				file := filepath.Join(dir, name)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return file
			}
			events := append(append([]string{}, good...), tc.more...)
			if tc.instead != nil {
				events = tc.instead
			}
			if tc.status == "" {
				tc.status = "0"
			}
			args := append(tc.flags, "-servers", filepath.Join(dir, "servers.json"))
			if tc.servers != "" {
				write("servers.json", tc.servers)
			}
			args = append(args, "L", tc.status, write("events", strings.Join(events, "\n")+"\n"))
			var stdout, stderr bytes.Buffer
			code := count(args, &stdout, &stderr)
			if ok := strings.HasSuffix(tc.want[0], " 0 failed"); ok != (code == 0) || stderr.Len() > 0 {
				t.Errorf("exit status %d, stderr %q", code, stderr.String())
			}
			lines := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
			if got := lines[len(lines)-2]; got != tc.want[0] {
				t.Errorf("the line before the last is %q, want %q", got, tc.want[0])
			}
			for _, want := range tc.want[1:] {
				if !strings.Contains(stdout.String(), "\n"+want+"\n") {
					t.Errorf("there is no line %q in:\n%s", want, stdout.String())
				}
			}
		})
	}
}
