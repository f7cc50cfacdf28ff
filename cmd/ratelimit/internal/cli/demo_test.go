package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// puppetPace advances the clock of an embedded server instead of waiting: a demo takes no time, and
// always has the same output.
type puppetPace struct {
	at  time.Time
	srv *embedded.Server
	on  func(after time.Duration) // called before each advance
}

func (p *puppetPace) now() time.Time { return p.at }

func (p *puppetPace) stood() time.Duration { return 0 }

func (p *puppetPace) during(f func()) { f() }

func (p *puppetPace) stopped(f func()) { f() }

func (p *puppetPace) until(ctx context.Context, t time.Time) error {
	if t.After(p.at) {
		if p.on != nil {
			p.on(t.Sub(began))
		}
		p.at = t
		if p.srv != nil {
			p.srv.SetTime(t)
		}
	}
	return ctx.Err()
}

// demo is one demo with a puppetPace.
type demo struct {
	env      []string
	args     []string
	terminal bool
	width    int // of the terminal; 0: unknown
	height   int
	on       func(cancel context.CancelFunc, srv *embedded.Server) func(after time.Duration)
	library  string // on the embedded server before the demo
}

func (d demo) run(t *testing.T) (outcome, *embedded.Server) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(d.env, &stdout, &stderr)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &puppetPace{at: began}
	a.pace, a.parallel, a.terminal = p, 1, d.terminal
	a.size = func() (int, int) { return d.width, d.height }
	var srv *embedded.Server
	a.startEmbedded = func() (*embedded.Server, error) {
		opts := []embedded.Option{embedded.WithTime(began)}
		if d.library != "" {
			opts = append(opts, embedded.WithLibrary(d.library))
		}
		var err error
		srv, err = embedded.Start(opts...)
		p.srv = srv
		if d.on != nil {
			p.on = d.on(cancel, srv)
		}
		return srv, err
	}
	if d.on != nil {
		p.on = d.on(cancel, nil)
	}
	code := a.execute(ctx, append([]string{"demo"}, d.args...))
	return outcome{code, stdout.String(), stderr.String()}, srv
}

// The output of the demo, word for word.
func TestDemo(t *testing.T) {
	for _, tt := range []struct {
		file string
		demo demo
	}{
		{"demo.txt", demo{}},
		{"demo_short.txt", demo{args: []string{"--duration", "2s"}}},
		{"demo_long.txt", demo{args: []string{"--duration", "25s"}}},
		{"demo_ascii.txt", demo{env: []string{"LANG=C"}}},
		{"demo_60.txt", demo{terminal: true, width: 60, env: []string{"TERM=dumb"}}},
		{"demo_40.txt", demo{terminal: true, width: 40, env: []string{"TERM=dumb"}}},
		{"demo_45.txt", demo{terminal: true, width: 45, env: []string{"TERM=dumb"}}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, srv := tt.demo.run(t)
			if got.code != exitFine || got.stderr != "" {
				t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
			}
			golden(t, tt.file, steady(got.stdout, srv.Addr()))
			for line := range strings.Lines(got.stdout) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
					t.Errorf("a line of %d characters: %s", n, line)
				}
			}
		})
	}
	t.Run("the library decides as the textbook does", func(t *testing.T) {
		got, _ := demo{args: []string{"--duration", "20s"}}.run(t)
		rows := regexp.MustCompile(`(?m)^\w+ +.*\d/\d?s.* (\d+) +(\d+) +(\d+) +(\d+)$`).FindAllStringSubmatch(got.stdout, -1)
		if len(rows) != 6 {
			t.Fatalf("%d rows in:\n%s", len(rows), got.stdout)
		}
		for _, row := range rows {
			if row[2] != row[4] {
				t.Errorf("allowed %s, ideal %s: %s", row[2], row[4], row[0])
			}
		}
	})
}

// On a terminal the chart is redrawn in place; in the end it shows the same as without a terminal.
func TestDemoOnATerminal(t *testing.T) {
	plain, _ := demo{}.run(t)
	for _, tt := range []struct {
		name            string
		env             []string
		moving, colours bool
	}{
		{"colours", nil, true, true},
		{"NO_COLOR", []string{"NO_COLOR=1"}, true, false},
		{"dumb", []string{"TERM=dumb"}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := demo{terminal: true, env: tt.env}.run(t)
			if got.code != exitFine || got.stderr != "" {
				t.Fatalf("%+v", got)
			}
			if moving := strings.Count(got.stdout, "\x1b[16A") == columns; moving != tt.moving {
				t.Errorf("the chart moves: %v, want %v", moving, tt.moving)
			}
			if strings.Contains(got.stdout, "\x1b[?25l") != tt.moving || strings.HasSuffix(got.stdout, "\x1b[?25l") ||
				strings.Count(got.stdout, "\x1b[?25l") != strings.Count(got.stdout, "\x1b[?25h") {
				t.Error("the cursor is hidden and not shown again")
			}
			if colours := strings.Contains(got.stdout, "\x1b[32m"); colours != tt.colours {
				t.Errorf("colours: %v, want %v", colours, tt.colours)
			}
			if end, want := screen(got.stdout), screen(plain.stdout); end != want {
				t.Errorf("the screen shows:\n%s\nwant:\n%s", end, want)
			}
		})
	}
}

func TestDemoThatIsInterrupted(t *testing.T) {
	got, _ := demo{terminal: true, on: func(cancel context.CancelFunc, _ *embedded.Server) func(time.Duration) {
		return func(after time.Duration) {
			if after >= 3*time.Second {
				cancel()
			}
		}
	}}.run(t)
	if got.code != exitError || !strings.HasSuffix(got.stdout, "\x1b[?7h\x1b[?25h\n") {
		t.Errorf("exit code %d, stdout ends in %q", got.code, got.stdout[max(0, len(got.stdout)-40):])
	}
	wantText(t, "stderr", got.stderr, "ratelimit: interrupted after 3 s of 8 s\n")
}

func TestDemoThatLosesItsServer(t *testing.T) {
	got, _ := demo{on: func(_ context.CancelFunc, srv *embedded.Server) func(time.Duration) {
		return func(after time.Duration) {
			if after >= time.Second && srv != nil {
				_, _ = srv.Do("FUNCTION", "FLUSH")
			}
		}
	}}.run(t)
	if got.code != exitError || strings.Contains(got.stdout, "CALLER") {
		t.Errorf("exit code %d, stdout\n%s", got.code, got.stdout)
	}
	if !regexp.MustCompile(`^ratelimit: take [^:]+.*: the server does not have the library .* deploy --redis redis://127\.0\.0\.1:\d+ `).MatchString(got.stderr) {
		t.Errorf("stderr %q", got.stderr)
	}
}

// On a real server the demo uses its own keys, which are deleted afterwards, and its library stays.
func TestDemoOnARealServer(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	url := "redis://" + addr
	do(t, rdb, "SET", "demo:bob", "not the demo's")
	nothingLeft := func(t *testing.T) {
		t.Helper()
		if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != "demo:bob" {
			t.Errorf("the server holds %q", keys)
		}
	}
	quick := demo{args: []string{"--redis", url, "--duration", "2s"}}

	t.Run("first", func(t *testing.T) {
		got, _ := quick.run(t)
		if got.code != exitFine || got.stderr != "" {
			t.Fatalf("%+v", got)
		}
		begin := "ratelimit demo on " + url + "\ndeployed ratelimit " + functions.Version() + ", build " + functions.BuildID() + " to 1 server and read it back\n"
		end := "\ndeleted the demo's 8 keys; the library stays on " + url + "\n\nWhat next:\n" +
			"ask for a decision:\n  ratelimit take user:42 5/10s --redis " + url + "\n" +
			"see what each server runs:\n  ratelimit status --redis " + url + "\n" +
			"take it away again:\n  ratelimit delete --redis " + url + "\n"
		if !strings.HasPrefix(got.stdout, begin) || !strings.HasSuffix(got.stdout, end) ||
			!regexp.MustCompile(`\n  FCALL ratelimit_take 1 demo-[0-9a-f]{8}:hello "10/s burst=20"\n  → 1 20 19 0 100 1\n`).MatchString(got.stdout) {
			t.Errorf("stdout:\n%s\nwant at the beginning:\n%s\nat the end:\n%s", got.stdout, begin, end)
		}
		nothingLeft(t)
		if code, err := rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit", WithCode: true}).Result(); err != nil || len(code) != 1 || code[0].Code != functions.Source() {
			t.Errorf("%v: the library did not stay", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		d := quick
		d.on = func(cancel context.CancelFunc, _ *embedded.Server) func(time.Duration) {
			return func(after time.Duration) {
				if after >= time.Second {
					cancel()
				}
			}
		}
		got, _ := d.run(t)
		if got.code != exitError || !regexp.MustCompile(`^ratelimit: interrupted after [0-9.]+ m?s of 2 s\n$`).MatchString(got.stderr) {
			t.Errorf("%+v", got)
		}
		nothingLeft(t)
	})
	t.Run("another build is there", func(t *testing.T) {
		do(t, rdb, "FUNCTION", "LOAD", "REPLACE", otherText)
		got, _ := quick.run(t)
		digest := functions.Digest(otherText)[:12]
		if got.code != exitError || strings.Contains(got.stdout, "FCALL") {
			t.Errorf("%+v", got)
		}
		if !strings.Contains(got.stderr, " (unknown text "+digest+")") || !strings.HasSuffix(got.stderr, " demo --redis "+url+" --replace\n") {
			t.Errorf("stderr %q", got.stderr)
		}
		if list := rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit", WithCode: true}).Val(); len(list) != 1 || list[0].Code != otherText {
			t.Error("the other build is gone")
		}
		d := quick
		d.args = append([]string{"--replace"}, d.args...)
		if got, _ := d.run(t); got.code != exitFine {
			t.Errorf("--replace: %+v", got)
		}
		nothingLeft(t)
	})
	t.Run("policies are there", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "policies.yaml")
		if err := os.WriteFile(file, []byte("policies:\n  api: 100/m\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := run(t, nil, "deploy", "--redis", url, "--policies", file); got.code != exitFine {
			t.Fatalf("%+v", got)
		}
		for _, loses := range []func(){func() {}, func() { do(t, rdb, "FUNCTION", "DELETE", "ratelimit") }} {
			loses()
			for _, d := range []demo{quick, {args: append([]string{"--replace"}, quick.args...)}} {
				got, _ := d.run(t)
				if got.code != exitError || !strings.HasPrefix(got.stderr, "ratelimit: "+addr+" ") || !strings.Contains(got.stderr, " the policy api, ") {
					t.Errorf("%+v", got)
				}
			}
		}
		do(t, rdb, "FUNCTION", "FLUSH")
	})
	t.Run("REDIS_URL is not taken for a wish", func(t *testing.T) {
		got, srv := demo{env: []string{"REDIS_URL=" + url}, args: []string{"--duration", "2s"}}.run(t)
		if got.code != exitFine || !strings.HasPrefix(got.stdout, "ratelimit demo on an embedded server, "+srv.Addr()+": no Redis needed\n") {
			t.Errorf("%+v", got)
		}
	})
}

// On a cluster the demo's keys are on different nodes.
func TestDemoOnACluster(t *testing.T) {
	first, second := startCluster(t)
	got, _ := demo{args: []string{"--redis", "redis://" + first, "--duration", "2s"}}.run(t)
	if got.code != exitFine || !strings.Contains(got.stdout, " to 2 servers and read it back\n") {
		t.Errorf("%+v", got)
	}
	for _, addr := range []string{first, second} {
		if n := admin(t, addr).DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%s holds %d keys", addr, n)
		}
	}
}

func TestRealPace(t *testing.T) {
	p := &realPace{}
	if err := p.until(t.Context(), p.now().Add(-time.Hour)); err != nil {
		t.Errorf("a moment of the past: %v", err)
	}
	soon := p.now().Add(time.Millisecond)
	if err := p.until(t.Context(), soon); err != nil || p.now().Before(soon) {
		t.Errorf("%v, %v too early", err, soon.Sub(p.now()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.until(ctx, p.now().Add(time.Hour)); err != context.Canceled {
		t.Errorf("after the end: %v", err)
	}
	// While the demo is stopped, time stands still, and no request is in progress.
	p.during(func() {
		if p.mu.TryLock() {
			t.Error("a stop does not wait for what is under way")
		}
	})
	const stop = time.Millisecond
	before, real := p.now(), time.Now()
	p.stopped(func() {
		for began := time.Now(); time.Since(began) < stop; {
		}
	})
	if went, really := p.now().Sub(before), time.Since(real); went > really-stop || p.stood() < stop {
		t.Errorf("its time went on by %v in %v, of which it was stopped for %v", went, really, p.stood())
	}
}

func TestIdeal(t *testing.T) {
	b := newBucket(100*time.Millisecond, 2)
	w := &window{count: 2, period: time.Second}
	for _, tt := range []struct {
		at             time.Duration
		bucket, window bool
	}{
		{0, true, true}, {0, true, true}, {99 * time.Millisecond, false, false}, {100 * time.Millisecond, true, false},
		{999 * time.Millisecond, true, false}, {time.Second, true, true}, {time.Second, false, true}, {time.Second, false, false},
	} {
		if got := idealTake([]rule{b}, tt.at); got != tt.bucket {
			t.Errorf("bucket at %v: %v", tt.at, got)
		}
		if got := idealTake([]rule{w}, tt.at); got != tt.window {
			t.Errorf("window at %v: %v", tt.at, got)
		}
	}
	full := newBucket(time.Second, 1)
	if idealTake([]rule{full, b}, time.Second) {
		t.Error("one of two rules denies, and both allow")
	}
	if !idealTake([]rule{full}, time.Second) {
		t.Error("a rule was charged for what another denied")
	}
}
