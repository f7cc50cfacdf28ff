package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
)

// hostile is a key that would clear a terminal and color it.
const hostile = "\x1b[2J\x1b[31mred\r\n"

// counted makes calls that count usage. Each key gets twice as many calls as the previous key, half
// a minute later.
func counted(t *testing.T, srv *embedded.Server, keys ...string) {
	t.Helper()
	c := must[*client.Client](t)(client.New(admin(t, srv.Addr()), client.WithTimeout(time.Minute)))
	for i, key := range keys {
		for range 2 << i {
			must[client.Result](t)(c.Take(t.Context(), client.Request{Keys: []string{"k" + key}, Limits: []client.Limit{"3/d"}, UsageKey: key}))
		}
		srv.Advance(30 * time.Second)
	}
}

func TestTop(t *testing.T) {
	srv := withLibrary(t)
	env := []string{redisURL(srv.Addr())}
	run(t, env, "top").want(t, exitFine, "no key counts usage, or none for a day; take with TRACK (take --usage-key), or give a policy track: true\n", "")
	counted(t, srv, "user:1", "user:2", hostile)
	run(t, env, "top").want(t, exitFine, `3 keys · 8 allowed, 6 denied · 0.08/s allowed, 0.02/s denied

KEY                       ALLOWED  DENIED  ALLOWED/S  DENIED/S  LAST USE  FIRST USE
"\x1b[2J\x1b[31mred\r\n"        3       5          0         0      30 s       30 s
user:2                          3       1       0.05      0.02     1 min      1 min
user:1                          2       0       0.03         0     1 min      1 min
`, "")
	run(t, env, "top", "--by", "oldest", "--limit=1", "--match", "user:*").want(t, exitFine, `2 keys · 5 allowed, 1 denied · 0.08/s allowed, 0.02/s denied

KEY     ALLOWED  DENIED  ALLOWED/S  DENIED/S  LAST USE  FIRST USE
user:1        2       0       0.03         0     1 min      1 min
`, "")
	got := run(t, env, "top", "--json", "--by", "newest", "--limit", "1")
	var report topReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitFine || got.stderr != "" {
		t.Fatalf("%v: %+v", err, got)
	}
	if len(report.Top) != 1 || report.Top[0].Key != hostile || report.Top[0].Denied != 5 || report.Top[0].FirstMS != began.UnixMilli()+60_000 ||
		!report.Complete || report.Keys != 3 || report.Allowed != 8 || report.Denied != 6 || report.Cost != 8 {
		t.Errorf("%+v", report)
	}
}

// If the output is a pipe, one long key does not widen the other lines.
func TestTopOfALongKeyInAPipe(t *testing.T) {
	srv := withLibrary(t)
	long := strings.Repeat("long-", 200)
	counted(t, srv, "user:1", "user:2", long)
	got := run(t, []string{redisURL(srv.Addr())}, "top")
	for line := range strings.Lines(got.stdout) {
		if len(line) > 300 && !strings.HasPrefix(line, long+"  ") {
			t.Errorf("a line of %d bytes: %.80s", len(line), line)
		}
	}
	if !strings.Contains(got.stdout, long) {
		t.Errorf("the key is cut: %.400s", got.stdout)
	}
}

// With keys of any length, no row is wider than the terminal, except on very narrow terminals.
// Escape sequences appear only if colors are on.
func TestTopIsAsWideAsTheTerminal(t *testing.T) {
	srv := withLibrary(t)
	counted(t, srv, strings.Repeat("long-", 13_000), "宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽", hostile)
	for _, width := range []int{1, 10, 20, 40, 80, 120, 400} {
		for _, colour := range []bool{true, false} {
			env := []string{redisURL(srv.Addr()), "TERM=xterm"}
			if !colour {
				env = append(env, "NO_COLOR=1")
			}
			var stdout, stderr bytes.Buffer
			a := testApp(env, &stdout, &stderr)
			a.terminal, a.size = true, func() (int, int) { return width, 24 }
			if code := a.execute(t.Context(), []string{"top"}); code != exitFine || stderr.Len() > 0 {
				t.Fatalf("exit code %d: %s", code, stderr.String())
			}
			_, rows, _ := strings.Cut(stdout.String(), "\n\n")
			for line := range strings.Lines(rows) {
				if got := textWidth(strings.TrimSuffix(line, "\n")); got > max(width, shortestKey-3) {
					t.Errorf("%d columns, and a line of %d: %s", width, got, line)
				}
			}
			if bold := strings.Contains(stdout.String(), "\x1b["); bold != colour || strings.Contains(stdout.String(), "\x1b[2J") {
				t.Errorf("colours %v: %q", colour, stdout.String())
			}
			if width == 40 && !strings.Contains(rows, "KEY") || width >= 40 && (!strings.Contains(rows, "DENIED") || !strings.Contains(rows, "long-")) {
				t.Errorf("%d columns show\n%s", width, rows)
			}
		}
	}
}

// If the server refuses the scan, top and override print only an error.
func TestTopWithoutScan(t *testing.T) {
	addr := fakeredis.Run(t, func(words []string) string {
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			return "*2\r\n" + resp("mode") + resp("standalone")
		case "PING":
			return "+PONG\r\n"
		case "DBSIZE":
			return ":7\r\n"
		case "TIME":
			return "*2\r\n" + resp("1700000000") + resp("0")
		}
		return "-NOPERM this user has no permissions to run the 'scan' command\r\n"
	})
	m := newMessages(t, "top", addr, "ADDR")
	m.fails(nil, "top", "--redis", addr)
	m.fails(nil, "override", "--redis", addr)
}

// On a terminal, a pass and its faults fit on the screen, and b changes the order.
func TestTopView(t *testing.T) {
	l := look{bars: []rune(" ▁▂▃▄▅▆▇█"), width: 40, height: 5}
	view := &topView{by: usage.Total}
	if lines := view.lines(l); !strings.Contains(strings.Join(lines, "\n"), "looking") {
		t.Errorf("before the first pass: %q", lines)
	}
	p := pass{by: usage.Total, err: wrongUse("x", "\x1b[2Jbroken")}
	p.found.Tracked, p.found.Top = 20, map[usage.Order][]usage.Record{usage.Total: slices.Repeat([]usage.Record{{Key: hostile, Count: usage.Count{Allowed: 1 << 53}}}, 20)}
	view.show(p)
	lines := view.lines(l)
	for _, line := range lines {
		if textWidth(line) > 40 || strings.Contains(line, "\x1b") {
			t.Errorf("a line %q", line)
		}
	}
	if len(lines) != 5 || !strings.Contains(lines[1], `\x1b[2Jbroken`) {
		t.Errorf("%q", lines)
	}
	view.press('b')
	if view.by != usage.Denied || view.pass.by != usage.Denied {
		t.Errorf("b orders by %s, and says %s", view.pass.by, view.by)
	}
}

// In every order, a pass shows the rates since the previous pass.
func TestTopKeepsRatesWhenTheOrderChanges(t *testing.T) {
	srv := withLibrary(t)
	rdb := admin(t, srv.Addr())
	counted(t, srv, "user:1", "user:2") // user:2 has more calls
	l := look{bars: []rune(" ▁▂▃▄▅▆▇█"), width: 100, height: 10}
	view := &topView{by: usage.Total}
	ctx, stop := context.WithCancel(t.Context())
	passes := 0
	testApp(nil, io.Discard, io.Discard).topPasses(ctx, rdb, servers{}, topFlags{by: "total", limit: 1, interval: 1}, usage.Orders, nil, func(p pass) {
		view.show(p)
		if passes++; passes == 2 {
			stop()
			return
		}
		srv.Advance(10 * time.Second)
		for range 5 {
			do(t, rdb, "FCALL", "ratelimit_take", 2, "k", "user:1", "1000/d", "TRACK")
			do(t, rdb, "FCALL", "ratelimit_take", 2, "k", "user:2", "1000/d", "TRACK")
		}
	})
	for range usage.Orders {
		lines := view.lines(l)
		if row := strings.Fields(lines[len(lines)-1]); len(row) < 5 || row[3] != "0.50" || !strings.Contains(lines[1], " 1.00/s allowed") {
			t.Errorf("by %s: %q", view.by, lines)
		}
		view.press('b')
	}
}

// If stdout is a pipe or a terminal without escape sequences, each pass prints a table or a line
// of JSON. Rates of policies are printed from the second pass on. A command that is interrupted
// does not fail.
func TestWatchIntoAPipe(t *testing.T) {
	tracked := withLibrary(t)
	counted(t, tracked, "user:1")
	limited, _ := withPolicies(t)
	for _, tt := range []struct {
		command     string
		srv         *embedded.Server
		text, rates string // every pass prints text; only the second and later passes print rates
		asJSON      bool
		dumb        bool // on a terminal without escape sequences
	}{
		{"top", tracked, "user:1", "", false, false},
		{"top", tracked, "user:1", "", true, false},
		{"top", tracked, "user:1", "", false, true},
		{"policies", limited, "@export", "ALLOWED/S", false, false},
		{"policies", limited, `"export"`, "per_second", true, false},
		{"policies", limited, "@export", "ALLOWED/S", false, true},
	} {
		env, args := []string{redisURL(tt.srv.Addr()), "TERM=xterm"}, []string{tt.command, "--watch", "--interval", "1ms"}
		if tt.asJSON {
			args = append(args, "--json")
		}
		if tt.dumb {
			env[1] = "TERM=dumb"
		}
		s := startWith(t, env, func(a *app) { a.terminal, a.size = tt.dumb, func() (int, int) { return 80, 24 } }, args...)
		eventually(t, "three passes", func() bool { return strings.Count(s.stdout.String(), tt.text) >= 3 })
		got := s.end()
		if got.code != exitFine || got.stderr != "" || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%+v: %+v", tt, got)
		}
		first, rest, _ := strings.Cut(got.stdout, tt.text)
		if tt.rates != "" && (strings.Contains(first, tt.rates) || !strings.Contains(rest, tt.rates)) {
			t.Errorf("the first pass has rates, or no other has: %s", got.stdout)
		}
		if lines := strings.Split(got.stdout, "\n"); tt.asJSON && !json.Valid([]byte(lines[1])) {
			t.Errorf("no line of JSON: %s", lines[1])
		}
	}
}

// An interrupted scan shows its results so far, and how many keys it examined.
func TestInterruptedScans(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	pipe := rdb.Pipeline()
	for i := range 25_000 {
		pipe.HSet(t.Context(), fmt.Sprint("usage:", i), "first", 1, "last", 1, "cost", 1, "allowed", 1)
		pipe.Set(t.Context(), fmt.Sprint("limited:", i), "limit:9000000000000:0:3:5/m", 0)
	}
	must[[]redis.Cmder](t)(pipe.Exec(t.Context()))
	steps := regexp.MustCompile(`cmdstat_scan:calls=([3-9]|\d\d)`)
	for _, tt := range []struct{ command, shows string }{
		{"top", `^[\d,]+ keys · [\d,]+ allowed, 0 denied .* · of [\d,]+ keys looked at, \d+ %\n\nKEY `},
		{"override", `^[\d,]+ keys with an override or a block · of [\d,]+ keys looked at, \d+ %\n\nKEY `},
	} {
		require(t, rdb.ConfigResetStat(t.Context()).Err())
		s := start(t, []string{redisURL(addr)}, tt.command)
		eventually(t, "some steps", func() bool { return steps.MatchString(rdb.Info(t.Context(), "commandstats").Val()) })
		if got := s.end(); got.code != exitError || !regexp.MustCompile(tt.shows).MatchString(got.stdout) ||
			!regexp.MustCompile(`^ratelimit: interrupted after [\d,]+ keys looked at, \d+ %\n$`).MatchString(got.stderr) {
			t.Errorf("%s: exit code %d, %q, %.1000s", tt.command, got.code, got.stderr, got.stdout)
		}
	}
}
