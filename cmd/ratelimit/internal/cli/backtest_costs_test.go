package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tokensLog writes a log of calls with the tokens that they used. Two lines have no usable cost.
func tokensLog(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens.jsonl")
	const log = `{"time":"2026-03-01T12:00:00Z","team":"red","usage":{"total_tokens":700}}
{"time":"2026-03-01T12:05:00Z","team":"red","usage":{"total_tokens":1200}}
{"time":"2026-03-01T12:10:00Z","team":"blue","usage":{"total_tokens":149.5}}
{"time":"2026-03-01T12:15:00Z","team":"blue","usage":{}}
{"time":"2026-03-01T12:20:00Z","team":"blue","usage":{"total_tokens":"\u001b[31m"}}
{"time":"2026-03-01T12:30:00Z","team":"red","usage":{"total_tokens":400}}
`
	require(t, os.WriteFile(name, []byte(log), 0o666))
	return name
}

const notedCosts = `
2 lines (33.33%) had no usable cost in usage.total_tokens
  tokens.jsonl:4: the line lacks usage.total_tokens, the field with its cost
  tokens.jsonl:5: the cost usage.total_tokens: "\x1b[31m" is not a number
`

// If costs are charged before calls, a call for 1200 units is never allowed under a limit of 1000.
// If costs are charged after calls, the call is allowed, and leaves a debt that denies the next
// call.
func TestBacktestCosts(t *testing.T) {
	t.Chdir(filepath.Dir(tokensLog(t)))
	args := []string{"backtest", "tokens.jsonl", "--key", "team", "--cost", "usage.total_tokens"}
	with := func(more ...string) []string { return append(args[:len(args):len(args)], more...) }
	run(t, nil, with("--limit", "1000/h", "--limit", "fixed_window 3000/h")...).want(t, exitFine, `4 requests, 2026-03-01 12:00:00 to 2026-03-01 12:30:00 UTC

LIMIT                ALLOWED  DENIED       KEYS DENIED  OF KEYS
1000/h               3        1       25%  1            2
fixed_window 3000/h  4        0       0%   0            2

units of usage.total_tokens, charged before each request
LIMIT                UNITS ALLOWED  UNITS DENIED
1000/h               1,250          1,200         48.98%
fixed_window 3000/h  2,450          0             0%
1000/h: 1 of 4 requests (25%) cost more than its capacity of 1,000, so it can
never allow them

1000/h by team denied, from 2026-03-01 12:05:00 to 2026-03-01 12:05:00 UTC
`+strings.Repeat(" ", 13)+"█"+strings.Repeat(" ", 66)+`
KEY  DENIED  OF REQUESTS  UNITS DENIED  OF UNITS
red  1       3            1,200         2,300
`+notedCosts, "")

	after := run(t, nil, with("--limit", "1000/h", "--charge", "after", "--suggest", "100%", "--period", "1m,1h")...)
	for _, want := range []string{`
units of usage.total_tokens, charged after each request
LIMIT   UNITS ALLOWED  UNITS DENIED
1000/h  2,050          400           16.33%
1000/h: 1 of 4 requests (25%) cost more than its capacity of 1,000, and what
exceeds a debt of one capacity is not charged
`, `
suggested by team: the tightest limits that leave 100% of 2 keys untouched and
without debt, and what the library decides under them
LIMIT              DENIED      KEYS DENIED  WORST KEY
1200/m             0       0%  0            -
2300/h burst=1709  0       0%  0            -

units of usage.total_tokens, charged after each request
LIMIT              UNITS ALLOWED  UNITS DENIED
1200/m             2,450          0             0%
2300/h burst=1709  2,450          0             0%
`, notedCosts} {
		if after.code != exitFine || !strings.Contains(after.stdout, want) {
			t.Errorf("no %s in %+v", want, after)
		}
	}

	got := run(t, nil, with("--limit", "1000/h", "--json")...)
	var limits []map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &limits); err != nil || got.code != exitFine || len(limits) != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	for name, want := range map[string]any{"cost": "usage.total_tokens", "charge": "before", "capacity": 1000.0, "above_capacity": 1.0, "requests": 4.0, "denied": 1.0,
		"units_allowed": 1250.0, "units_denied": 1200.0, "lines": 6.0, "costless_lines": 2.0} {
		if limits[0][name] != want {
			t.Errorf("%s: %v, want %v", name, limits[0][name], want)
		}
	}
	worst, series := limits[0]["worst"].([]any)[0].(map[string]any), limits[0]["series"].([]any)
	if worst["units"] != 2300.0 || worst["units_denied"] != 1200.0 || series[0].(map[string]any)["units_allowed"] != 700.0 {
		t.Errorf("%s", got.stdout)
	}
}

// The table of classes shows what each got, and the page has it, too.
func TestBacktestClasses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require(t, os.WriteFile("policies.yaml", []byte("policies:\n  api:\n    limit: 4/d\n    classes: {critical: 0, batch: 50}\n"), 0o666))
	log := ""
	for _, class := range []string{"batch", "batch", "batch", "critical", ""} {
		log += `{"time":"2026-03-01T12:00:00Z","client":"10.0.0.1","size":10,"job":"` + class + `"}` + "\n"
	}
	require(t, os.WriteFile("log.jsonl", []byte(log), 0o666))
	args := []string{"backtest", "log.jsonl", "--policies", "policies.yaml", "--policy", "api", "--class-by", "job"}
	got := run(t, nil, append(args, "--html", "report.html")...)
	const want = `
@api by class
CLASS     ALLOWED  DENIED
(none)    1        0       0%
batch     2        1       33.33%
critical  1        0       0%
`
	page, err := os.ReadFile("report.html")
	if got.code != exitFine || !strings.Contains(got.stdout, want) || err != nil || !strings.Contains(string(page), "<td><code>batch</code></td><td>2</td><td>1</td><td>33.33%</td>") {
		t.Errorf("%+v, %v", got, err)
	}
	const list = `"classes":[{"class":"","requests":1,"allowed":1,"denied":0,"units_allowed":1,"units_denied":0},{"class":"batch","requests":3,"allowed":2,"denied":1,"units_allowed":2,"units_denied":1},`
	if got := run(t, nil, append(args, "--json")...); got.code != exitFine || !strings.Contains(strings.Join(strings.Fields(got.stdout), ""), list) {
		t.Errorf("%+v", got)
	}
}
