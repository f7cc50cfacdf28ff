package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/backtest"
)

// accessLog writes a log with the given number of requests for each key, a second apart.
func accessLog(t *testing.T, counts ...any) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.log")
	require(t, os.WriteFile(name, []byte(logLines(counts...)), 0o666))
	return name
}

func logLines(counts ...any) string {
	var log strings.Builder
	for i := 0; i < len(counts); i += 2 {
		for n := range counts[i+1].(int) {
			fmt.Fprintf(&log, "%s - - [%s] \"GET /api/items/%d HTTP/1.1\" 200 512 \"-\" \"curl/8\"\n", counts[i],
				time.Date(2026, 3, 1, 18, 0, n, 0, time.UTC).Format("02/Jan/2006:15:04:05 -0700"), n)
		}
	}
	return log.String()
}

const backtested = `23 requests, 2026-03-01 18:00:00 to 2026-03-01 18:00:19 UTC

LIMIT               ALLOWED  DENIED          KEYS DENIED  OF KEYS
5/m                 9        14      60.87%  1            2
sliding_log 20/10m  23       0       0%      0            2

5/m by client denied, from 2026-03-01 18:00:05 to 2026-03-01 18:00:19 UTC
     ███████ ███████
KEY          DENIED  OF REQUESTS  FIRST                LAST
203.0.113.7  14      20           2026-03-01 18:00:05  2026-03-01 18:00:19
`

func TestBacktest(t *testing.T) {
	log := accessLog(t, "203.0.113.7", 20, "198.51.100.1", 3)
	args := []string{"backtest", log, "--limit", "5/m", "--limit", "sliding_log 20/10m"}
	run(t, nil, args...).want(t, exitFine, backtested, "")

	t.Run("standard input", func(t *testing.T) {
		typing(t, nil, logLines("203.0.113.7", 20, "198.51.100.1", 3), append([]string{"backtest", "-"}, args[2:]...)...).want(t, exitFine, backtested, "")
	})
	t.Run("json", func(t *testing.T) {
		got := run(t, nil, append(args, "--json", "--suggest", "50%")...)
		var limits []map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &limits); err != nil || got.code != exitFine || len(limits) != 7 {
			t.Fatalf("%v: %+v", err, got)
		}
		for name, want := range map[string]any{"limit": "5/m", "key": "client", "requests": 23.0, "allowed": 9.0, "denied": 14.0, "keys": 2.0, "keys_denied": 1.0,
			"first_denied": "2026-03-01T18:00:05Z", "last_denied": "2026-03-01T18:00:19Z", "seconds": 1.0, "lines": 23.0, "bad_lines": 0.0, "late_lines": 0.0, "keyless_lines": 0.0, "interrupted": false} {
			if limits[0][name] != want {
				t.Errorf("%s: %v, want %v", name, limits[0][name], want)
			}
		}
		if limits[1]["first_denied"] != nil || len(limits[0]["series"].([]any)) != 20 || limits[0]["worst"].([]any)[0].(map[string]any)["key"] != "203.0.113.7" {
			t.Errorf("%s", got.stdout)
		}
		if s := limits[4]["suggested"].(map[string]any); s["period"] != "1m" || s["share"] != 0.5 || s["n"] != 3.0 || s["burst"] != 3.0 || limits[4]["limit"] != "3/m" {
			t.Errorf("%v", limits[4])
		}
	})
	t.Run("suggestions, which is what it does if nothing is asked", func(t *testing.T) {
		run(t, nil, "backtest", log, "--period", "10s,1m").want(t, exitFine, `23 requests, 2026-03-01 18:00:00 to 2026-03-01 18:00:19 UTC

suggested by client: the tightest limits that leave 99% of 2 keys untouched, and
what the library decides under them
LIMIT           DENIED      KEYS DENIED  WORST KEY
10/10s burst=1  0       0%  0            -
20/m burst=14   0       0%  0            -

start with 10/10s burst=1: 10 requests per 10 seconds for each client, one at a
time
A denied client can go on after about 1 s. A longer period stops more of a
steady stream, but makes a denied client wait longer. Of these limits, this one
has the longest period with a wait of at most 10 s that the log covers ten
times. If there is none, it has the shortest period.
`, "")
	})
	t.Run("page", func(t *testing.T) {
		page := filepath.Join(t.TempDir(), "report.html")
		run(t, nil, append(args, "--html", page)...).want(t, exitFine, backtested+"\nwrote "+page+"\n", "")
		content, err := os.ReadFile(page)
		command := "ratelimit backtest " + log + " --limit 5/m --limit &#39;sliding_log 20/10m&#39; --html " + page
		if !bytes.Contains(content, []byte(command)) || !bytes.Contains(content, []byte("Backtest of "+log)) {
			t.Errorf("the page does not name %s:\n%s", command, content)
		}
		if err != nil || bytes.Count(content, []byte("<svg")) != 6 || bytes.Contains(content, []byte("<script")) || !bytes.Contains(content, []byte("prefers-color-scheme: dark")) {
			t.Errorf("%v:\n%s", err, content)
		}
		if got := run(t, nil, append(args, "--html", filepath.Join(page, "x"))...); got.code != exitError || got.stdout != "" {
			t.Errorf("%+v", got)
		}
		run(t, nil, append(args, "--html", page)...).want(t, exitFine, backtested+"\nwrote "+page+"\n", "") // an existing page is replaced
	})
}

// The report names all keys that a limit denies, on the screen and on the page: those of a given limit, and of the
// suggestion to start with, even if it is the only one.
func TestBacktestNamesTheDenied(t *testing.T) {
	log := accessLog(t, "203.0.113.1", 20, "203.0.113.2", 18, "203.0.113.3", 16, "203.0.113.4", 14, "198.51.100.1", 2, "198.51.100.2", 2, "198.51.100.3", 2, "198.51.100.4", 2)
	for name, tt := range map[string]struct {
		args   []string
		limit  string
		denied [4]int
	}{
		"given":                {[]string{"--limit", "5/m"}, "5/m", [4]int{14, 12, 10, 8}},
		"the only suggestion":  {[]string{"--suggest", "50%", "--period", "1m"}, "2/m", [4]int{18, 16, 14, 12}},
		"one of two":           {[]string{"--suggest", "50%", "--period", "1m,1h"}, "2/m", [4]int{18, 16, 14, 12}},
		"given and suggestion": {[]string{"--limit", "5/m", "--suggest", "50%", "--period", "1m"}, "2/m", [4]int{18, 16, 14, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "report.html")
			got := run(t, nil, append([]string{"backtest", log, "--html", page}, tt.args...)...)
			_, table, _ := strings.Cut(got.stdout, "\n"+tt.limit+" by client denied, ")
			content := string(must[[]byte](t)(os.ReadFile(page)))
			for i, n := range tt.denied {
				client, all := fmt.Sprintf("203.0.113.%d", i+1), 20-2*i
				if row := regexp.MustCompile(fmt.Sprintf(`(?m)^%s +%d +%d `, client, n, all)); got.code != exitFine || !row.MatchString(table) {
					t.Errorf("%s, denied %d of %d, is not among the denied of %s:\n%s", client, n, all, tt.limit, got.stdout)
				}
				if row := fmt.Sprintf("<tr><td><code>%s</code></td><td>%d</td><td>%d</td>", client, n, all); !strings.Contains(content, row) {
					t.Errorf("the page lacks %s", row)
				}
			}
			if strings.Contains(table, "198.51.100.") {
				t.Errorf("a client that was not denied is named:\n%s", table)
			}
		})
	}
}

func TestBacktestPolicies(t *testing.T) {
	log := accessLog(t, "203.0.113.7", 20, "198.51.100.1", 3)
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(policies, []byte("policies:\n  api: {limit: 5/m, shadow: true, track: true}\n  calc:\n    limits:\n      - resource: 7/h\n      - consumer: 5/m\n  part: {limit: 1000/m, canary: {limit: 5/m, share: 100%, shadow: true}}\n"), 0o666))
	with := func(args ...string) []string {
		return append([]string{"backtest", log, "--policies", policies}, args...)
	}
	got := run(t, nil, with("--policy", "api", "--policy", "@calc", "--policy", "part", "--key", "client/24", "--key", "resource=path/1", "--key", "consumer=client")...)
	for _, want := range []string{"\n@api   9        14      60.87%  1            2\n", "\n@calc  7        16      69.57%  1            3\n", "\n@part  9        14 ", "\n203.0.113.0/24  14 ", "\n/api  16      23 "} {
		if got.code != exitFine || !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in %+v", want, got)
		}
	}
}

// Policies whose keys have the same names are compared in one run. A name or a field is defined once.
func TestBacktestKeysOfTheSameName(t *testing.T) {
	log := accessLog(t, "a", 3, "b", 1)
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(policies, []byte("policies:\n  calc: {limits: [{who: 3/h}, {what: 9/m}]}\n  tighter: {limits: [{who: 2/h}, {what: 9/m}]}\n"), 0o666))
	with := func(args ...string) outcome {
		return run(t, nil, append([]string{"backtest", log, "--policies", policies, "--policy", "calc", "--policy", "tighter", "--key", "who=client", "--key", "what=path/1"}, args...)...)
	}
	if got := with(); got.code != exitFine || !strings.Contains(got.stdout, "\n@calc     4        0 ") || !strings.Contains(got.stdout, "\n@tighter  3        1 ") {
		t.Errorf("%+v", got)
	}
	with("--key", "who=user").want(t, exitError, "", "ratelimit: --key gives who twice, as client and as user; give it once, with fields joined by +\n")
	with("--key", "where=user").want(t, exitError, "", "ratelimit: --key where=user: no policy has a key where; leave it out\n")
	with("--field", "user=a", "--field", "user=b").want(t, exitError, "", "ratelimit: --field gives user twice, as a and as b; give it once\n")
	with("--field", "tme=when").want(t, exitError, "", "ratelimit: --field tme=when: no key, cost or class uses the field tme; this run uses time, client, path\n")
}

// On a terminal of any width, no line is too wide, and every name and number is shown. Output to
// anything else has no escape sequences.
func TestBacktestWidths(t *testing.T) {
	log := accessLog(t, "203.0.113.7", 20, "2001:db8::1", 3, "\x1b[2J", 1)
	plain := run(t, nil, "backtest", log, "--limit", "5/m", "--suggest", "99%")
	if strings.Contains(plain.stdout, "\x1b") {
		t.Errorf("escapes in a pipe: %q", plain.stdout)
	}
	for _, width := range []int{30, 40, 60, 80, 200} {
		for _, env := range [][]string{nil, {"NO_COLOR=1"}} {
			var stdout, stderr bytes.Buffer
			a := testApp(env, &stdout, &stderr)
			a.terminal, a.size = true, func() (int, int) { return width, 24 }
			if code := a.execute(t.Context(), []string{"backtest", log, "--limit", "5/m", "--suggest", "99%"}); code != exitFine {
				t.Fatalf("exit code %d: %s", code, stderr.String())
			}
			text := stdout.String()
			if coloured := strings.Contains(text, "\x1b"); coloured != (env == nil) {
				t.Errorf("%d columns, %v: colours: %v", width, env, coloured)
			}
			for _, escape := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"} {
				text = strings.ReplaceAll(text, escape, "")
			}
			for line := range strings.Lines(text) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
					t.Errorf("a line of %d characters in %d columns: %q", n, width, line)
				}
			}
			for word := range strings.FieldsSeq("203.0.113.7 14 20 58.33% 2026-03-01 18:00:19 20/m") {
				if !strings.Contains(text, word) {
					t.Errorf("%d columns: no %s in\n%s", width, word, text)
				}
			}
		}
	}
}

func TestBacktestNotes(t *testing.T) {
	log := accessLog(t, "a", 1, "\x1b[31m", 1, "-", 2)
	lines := logLines("b", 2) + "\x00garbage\n" + strings.Replace(logLines("c", 1), "01/Mar", "28/Feb", 1)
	more := filepath.Join(t.TempDir(), "more.log")
	require(t, os.WriteFile(more, []byte(strings.Replace(lines, "18:00:01", "18:02:01", 1)), 0o666))
	got := run(t, nil, "backtest", log, more, "--limit", "fixed_window 1/h")
	const want = `
1 line (12.5%) could not be read
1 line (12.5%) came too late to be put in order; --unsorted 86521s would take
them all
2 lines (25%) lacked the key
`
	if got.code != exitFine || !strings.Contains(got.stdout, want) || strings.Contains(got.stdout, "\x1b") || strings.Contains(got.stdout, "\x00") || !strings.Contains(got.stdout, `begins "\x00garbage"`) ||
		!strings.Contains(strings.Join(strings.Fields(got.stdout), " "), log+":3: the line lacks a field of the key client") {
		t.Errorf("%+v\nwant\n%s", got, want)
	}
}

// A log that is given under two names is refused.
func TestBacktestOfALogByTwoNames(t *testing.T) {
	log := accessLog(t, "a", 3)
	again := filepath.Join(filepath.Dir(log), "again.log")
	require(t, os.Link(log, again))
	newMessages(t, "a log by two names", again, "again.log", log, "access.log").fails(nil, "backtest", log, again)
}

func TestBacktestLacksAKey(t *testing.T) {
	log := accessLog(t, "a", 3, "b", 1)
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(policies, []byte("policies:\n  calc:\n    limits:\n      - who: 10/h\n      - what: 5/m\n"), 0o666))
	got := run(t, nil, "backtest", log, "--policies", policies, "--policy", "calc", "--limit", "1/h", "--key", "who=user", "--key", "what=path/1")
	if got.code != exitFine || !strings.Contains(got.stdout, "\n@calc  0        0       0%   0            1\n") || !strings.HasSuffix(got.stdout, "\n4 lines (100%) had another key, and lacked user, path/1\n") {
		t.Errorf("%+v", got)
	}
}

// On Ctrl-C while waiting for a pipe, backtest reports the lines read so far.
func TestBacktestInterrupted(t *testing.T) {
	from, to := io.Pipe()
	defer func() { _ = to.Close() }()
	s := startWith(t, nil, func(a *app) { a.stdin = from }, "backtest", "-", "--unsorted", "0", "--limit", "5/m")
	for _, part := range []string{logLines("a", 20), "next"} { // the pipe accepts the second part only after the first has been read
		must[int](t)(io.WriteString(to, part))
	}
	if got := s.end(); got.code != exitError || got.stderr != "ratelimit: interrupted after 19 requests; the report has only these\n" || !strings.Contains(got.stdout, "\n5/m    6        13      68.42%  1            1\n") {
		t.Errorf("%+v", got)
	}
}

func TestBar(t *testing.T) {
	var out bytes.Buffer
	for _, tt := range []struct {
		width int
		size  int64
		want  string
	}{
		{80, 200, "[=============                 ] step 1 of 1: 1,000 requests, 2,000 decisions/s"},
		{60, 0, "step 1 of 1: 1,000 requests, 2,000 decisions/s"},
		{30, 200, "step 1 of 1: 1,000 requests, "},
		{1, 200, ""},
	} {
		b := bar{w: &out, width: tt.width}
		line := b.line(backtestProgress(backtest.Progress{Step: 1, Steps: 1, Requests: 1000, Bytes: 90, Decisions: 2000}, tt.size, time.Second))
		if len(line) >= tt.width || line != tt.want {
			t.Errorf("%d columns: %q, want %q", tt.width, line, tt.want)
		}
	}
	b := bar{w: &out, width: 80}
	b.draw(func(time.Duration) (float64, string) { return 0, "1,000 requests" })
	b.clear()
	if got := out.String(); !strings.HasPrefix(got, "\r1,000 requests") || !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}
