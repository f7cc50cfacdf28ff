package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestLoad(t *testing.T) {
	srv := withLibrary(t)
	page := filepath.Join(t.TempDir(), "load.html")
	got := run(t, []string{redisURL(srv.Addr())}, "load", "--limit", "fixed_window 10/d", "--iterations", "100", "--numbers", "2", "--concurrency", "3", "--html", page)
	if got.code != 0 || got.stderr != "" {
		t.Fatal(got)
	}
	for _, want := range []string{
		`^fixed_window 10/d, 3 workers: as many decisions as they can, over 2 numbers\nredis://127\.0\.0\.1:\d+, for .*\n\n`,
		`\ndecisions +100\n`, `\nallowed +20 +20%\n`, `\ndenied +80 +80%\n`, `\nerrors +0 +0%\n`, `\na second +\d`, `\nhalf within +\S`, `\n99.9% within +\S`, `\nall within +\S`,
		`\n\nwrote .*load.html\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(got.stdout) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	html := must[[]byte](t)(os.ReadFile(page))
	for _, want := range []string{"<td>100</td>", "<td>20</td>", "Decisions by the second", "Latency by the share"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("no %s in the page", want)
		}
	}
	if n := regexp.MustCompile(`id="`).FindAllString(string(html), -1); len(n) != 2 {
		t.Errorf("%d ids", len(n))
	}
}

func TestLoadJSON(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "calc", Track: true, Limits: []functions.PolicyLimit{
		{Key: "resource", Limit: "fixed_window 5/d"}, {Key: "consumer", Limit: "fixed_window 3/d"},
	}})))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()))
	got := run(t, []string{redisURL(srv.Addr())}, "load", "--policy", "@calc", "--key", "{a}:calc", "--key", "{a}:%", "--usage-key", "{a}:usage",
		"--iterations", "40", "--rate", "1000", "--numbers", "20", "--draw", "zipf:1.2", "--cost", "1", "--json")
	var report map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 {
		t.Fatal(got, err)
	}
	for name, want := range map[string]any{"limit": "@calc", "concurrency": 8.0, "rate": 1000.0, "decisions": 40.0, "allowed": 5.0, "denied": 35.0, "errors": 0.0, "interrupted": false} {
		if report[name] != want {
			t.Errorf("%s is %v, want %v", name, report[name], want)
		}
	}
	usage := run(t, []string{redisURL(srv.Addr())}, "usage", "{a}:usage")
	if !strings.HasPrefix(usage.stdout, "5 allowed, 35 denied, cost 5 ") {
		t.Error(usage)
	}
}

// Errors during a run are counted and reported, and make the command fail.
func TestLoadErrors(t *testing.T) {
	srv := withLibrary(t)
	require(t, admin(t, srv.Addr()).Set(t.Context(), "load:1", "foo", 0).Err())
	got := run(t, []string{redisURL(srv.Addr())}, "load", "--limit", "1000/s", "--iterations", "200", "--numbers", "2")
	if got.code != 1 || !regexp.MustCompile(`\nerrors +\d+ `).MatchString(got.stdout) || !strings.Contains(got.stderr, "of 200 decisions failed; the first: take \"load:1\": BADSTATE") {
		t.Error(got)
	}
}

// If many keys cause the same error, load prints it once, and names the missing flag.
func TestLoadErrorsOfOneKind(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Track: true, Limits: []functions.PolicyLimit{{Limit: "5/d"}}})))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()))
	got := run(t, []string{redisURL(srv.Addr())}, "load", "--policy", "api", "--iterations", "50", "--numbers", "20", "--rate", "10000")
	const why = `BADKEYS .*--usage-key\n`
	if got.code != 1 || !regexp.MustCompile(`: 10,000 decisions a second, [^"]*\n\n50 errors, the first: take "load:\d+": `+why+`$`).MatchString(got.stdout) ||
		!regexp.MustCompile(`^ratelimit: 50 of 50 decisions failed; the first: take "load:\d+": `+why+`$`).MatchString(got.stderr) {
		t.Error(got)
	}
	if got := run(t, []string{redisURL(srv.Addr())}, "take", "k", "@api"); got.code != 1 || !regexp.MustCompile(why+`$`).MatchString(got.stderr) {
		t.Error(got)
	}
}

// The command fails if the run does not meet an expectation, and says which, with the measured
// value. An expectation about errors replaces the rule that any error makes the command fail.
func TestLoadExpectations(t *testing.T) {
	srv := withLibrary(t)
	env := []string{redisURL(srv.Addr())}
	args := []string{"load", "--limit", "fixed_window 10/d", "--iterations", "40", "--numbers", "1"}
	with := func(expectations ...string) []string {
		all := args[:len(args):len(args)]
		for _, e := range expectations {
			all = append(all, "--expect", e)
		}
		return all
	}
	got := run(t, env, with("max<600s", "allowed==10", "denied==75%")...)
	if got.code != exitFine || got.stderr != "" || !regexp.MustCompile(`\n\nEXPECTED +MEASURED\nmax<600s +\S+ +met\nallowed==10 +10 +met\ndenied==75% +75% +met\n$`).MatchString(got.stdout) {
		t.Error(got)
	}
	got = run(t, env, with("errors==0", "allowed>=30%", "p99<1ns")...)
	if got.code != exitError || !regexp.MustCompile(`^ratelimit: 2 of 3 expectations not met: allowed>=30%, but measured 0%; p99<1ns, but measured \S+\n$`).MatchString(got.stderr) ||
		!strings.Contains(got.stdout, "\nallowed>=30%  0%") {
		t.Error(got)
	}
	got = run(t, env, append(with("decisions==41"), "--json")...)
	var report struct{ Expected []map[string]any }
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitError || len(report.Expected) != 1 || report.Expected[0]["met"] != false || report.Expected[0]["measured"] != "40" {
		t.Error(got, err)
	}
	if err := admin(t, srv.Addr()).Set(t.Context(), "load:1", "foo", 0).Err(); err != nil { // half of the decisions fail
		t.Fatal(err)
	}
	args = []string{"load", "--limit", "fixed_window 10/d", "--iterations", "200", "--numbers", "2"}
	if got := run(t, env, with("errors>0", "errors<90%")...); got.code != exitFine || got.stderr != "" {
		t.Error(got)
	}
	if got := run(t, env, with("p99<3600s")...); got.code != exitError || !strings.Contains(got.stderr, " of 200 decisions failed; the first: ") {
		t.Error(got)
	}
}

// The output of a ramp shows each tenth of its duration.
func TestLoadRamp(t *testing.T) {
	srv := withLibrary(t)
	args := []string{"load", "--limit", "1000/s", "--ramp", "10..190", "--over", "1s"}
	got := run(t, []string{redisURL(srv.Addr())}, args...)
	if got.code != exitFine || !strings.Contains(got.stdout, ": from 10 to 190 decisions a second, over ") ||
		!regexp.MustCompile(`\nFROM +DUE A SECOND .*\n0 ms +19 .*\n100 ms +37 (.*\n)+900 ms +181 .*\n$`).MatchString(got.stdout) {
		t.Error(got)
	}
	got = run(t, []string{redisURL(srv.Addr())}, append(args, "--json")...)
	var report loadReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || len(report.Steps) != 10 || len(report.Ramp) != 2 || report.Decisions+report.NotBegun != 100 {
		t.Error(got, err)
	}
}

func TestLoadInterrupted(t *testing.T) {
	srv := withLibrary(t)
	s := start(t, []string{redisURL(srv.Addr())}, "load", "--limit", "fixed_window 5/d", "--numbers", "1", "--duration", "1h")
	eventually(t, "a first decision", func() bool { n, _ := admin(t, srv.Addr()).Exists(t.Context(), "load:0").Result(); return n == 1 })
	if got := s.end(); got.code != 1 || !strings.Contains(got.stdout, "\nallowed ") || !strings.Contains(got.stderr, "interrupted after ") {
		t.Error(got)
	}
}
