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
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// puppetPace advances the clock of an embedded server instead of waiting: a demo takes no time, and
// always has the same output.
type puppetPace struct {
	at  time.Time
	srv *embedded.Server
	on  func(after time.Duration) // called before each advance, with the new time since the start
}

func (p *puppetPace) now() time.Time { return p.at }

func (p *puppetPace) send(f func()) { f() }

func (p *puppetPace) until(ctx context.Context, t time.Time) error {
	if t.After(p.at) {
		if p.on != nil {
			p.on(t.Sub(began))
		}
		if t.After(p.at) {
			p.at = t
		}
		if p.srv != nil {
			p.srv.SetTime(p.at)
		}
	}
	return ctx.Err()
}

// demo describes a demo that runs with a puppetPace.
type demo struct {
	env      []string
	args     []string
	terminal bool
	width    int // width of the terminal; 0: unknown
	height   int
	on       func(cancel context.CancelFunc, p *puppetPace) func(after time.Duration)
}

func (d demo) run(t *testing.T) (outcome, *embedded.Server) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(d.env, &stdout, &stderr)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &puppetPace{at: began}
	a.pace, a.terminal = p, d.terminal
	a.size = func() (int, int) { return d.width, d.height }
	if d.on != nil {
		p.on = d.on(cancel, p)
	}
	a.startEmbedded = func() (srv *embedded.Server, err error) {
		p.srv, err = embedded.Start(embedded.WithTime(began))
		return p.srv, err
	}
	code := a.execute(ctx, append([]string{"demo"}, d.args...))
	return outcome{code, stdout.String(), stderr.String()}, p.srv
}

// TestDemo compares the output of the demo with files in testdata, word for word.
func TestDemo(t *testing.T) {
	for _, tt := range []struct {
		file string
		demo demo
	}{
		{"demo.txt", demo{}},
		{"demo_ascii.txt", demo{env: []string{"LANG=C"}}},
		{"demo_long.txt", demo{args: []string{"--duration", "25s"}}},
		{"demo_60.txt", demo{terminal: true, width: 60, env: []string{"TERM=dumb"}}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, srv := tt.demo.run(t)
			if got.code != exitFine || got.stderr != "" {
				t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
			}
			golden(t, tt.file, steady(got.stdout, srv.Addr()))
		})
	}
}

// On a terminal the chart is redrawn in place, and the terminal's modes do not change.
func TestDemoOnATerminal(t *testing.T) {
	plain, _ := demo{}.run(t)
	whole := plain.stdout[strings.Index(plain.stdout, "a key for"):]
	table := plain.stdout[strings.Index(plain.stdout, "CALLER"):]
	escapes := regexp.MustCompile("\x1b\\[[0-9]*[mJ]")
	suspend := func(_ context.CancelFunc, p *puppetPace) func(time.Duration) {
		return func(after time.Duration) {
			if after >= 3*time.Second && p.at.Sub(began) < 3*time.Second {
				p.at = p.at.Add(3 * time.Second)
			}
		}
	}
	for _, tt := range []struct {
		name    string
		demo    demo
		redrawn int
		colours bool
		end     string
	}{
		{"colours", demo{}, columns, true, whole},
		{"NO_COLOR", demo{env: []string{"NO_COLOR=1"}}, columns, false, whole},
		{"dumb", demo{env: []string{"TERM=dumb"}}, 0, false, whole},
		{"fits", demo{width: chartWidth, height: 17}, columns, true, whole[:strings.Index(whole, "What next:")]},
		{"too low", demo{width: 80, height: 16}, 0, true, whole},
		{"too narrow", demo{width: chartWidth - 1, height: 40}, 0, true, table[:strings.Index(table, "erin: ")]},
		{"Ctrl-Z", demo{on: suspend}, columns - 1, true, table[strings.Index(table, "What next:"):]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.demo.terminal = true
			got, _ := tt.demo.run(t)
			if got.code != exitFine || got.stderr != "" {
				t.Fatalf("%+v", got)
			}
			if n := strings.Count(got.stdout, "\x1b[16A"); n != tt.redrawn {
				t.Errorf("the chart is redrawn in place %d times, want %d", n, tt.redrawn)
			}
			if colours := strings.Contains(got.stdout, "\x1b[1m"); colours != tt.colours {
				t.Errorf("colours: %v, want %v", colours, tt.colours)
			}
			if strings.Contains(got.stdout, "\x1b[?") {
				t.Errorf("the terminal is left in another mode: %q", got.stdout)
			}
			if text := escapes.ReplaceAllString(got.stdout, ""); !strings.Contains(text, "\n"+tt.end) && !strings.Contains(text, "\x1b[16A"+tt.end) {
				t.Errorf("the terminal shows:\n%s\nwant in the end:\n%s", text, tt.end)
			}
		})
	}
}

func TestDemoThatEndsEarly(t *testing.T) {
	after := func(wait time.Duration, do func(cancel context.CancelFunc, p *puppetPace)) demo {
		return demo{terminal: true, on: func(cancel context.CancelFunc, p *puppetPace) func(time.Duration) {
			return func(after time.Duration) {
				if after >= wait {
					do(cancel, p)
				}
			}
		}}
	}
	got, _ := after(3*time.Second, func(cancel context.CancelFunc, _ *puppetPace) { cancel() }).run(t)
	if got.code != exitError || !strings.HasSuffix(got.stdout, "\n\n") {
		t.Errorf("exit code %d, stdout ends in %q", got.code, got.stdout[max(0, len(got.stdout)-40):])
	}
	wantText(t, "stderr", got.stderr, "ratelimit: interrupted after 3 s of 8 s\n")

	got, _ = after(time.Second, func(_ context.CancelFunc, p *puppetPace) { _, _ = p.srv.Do("FUNCTION", "FLUSH") }).run(t)
	if got.code != exitError || strings.Contains(got.stdout, "CALLER") {
		t.Errorf("exit code %d, stdout\n%s", got.code, got.stdout)
	}
	if !regexp.MustCompile(`^ratelimit: take [^:]+.*: the server does not have the library .* deploy --redis redis://127\.0\.0\.1:\d+ `).MatchString(got.stderr) {
		t.Errorf("stderr %q", got.stderr)
	}
}

// On a real server, the demo uses its own keys and deletes them at the end. The library stays.
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
		if code, err := rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit", WithCode: true}).Result(); err != nil || len(code) != 1 || text.Body(code[0].Code) != functions.Source() {
			t.Errorf("%v: the library did not stay", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		d := quick
		d.on = func(cancel context.CancelFunc, _ *puppetPace) func(time.Duration) {
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
		require(t, os.WriteFile(file, []byte("policies:\n  api: 100/m\n"), 0o666))
		fine(t, nil, "deploy", "--redis", url, "--policies", file)
		for _, d := range []demo{quick, {args: append([]string{"--replace"}, quick.args...)}} {
			got, _ := d.run(t)
			if got.code != exitError || !strings.HasPrefix(got.stderr, "ratelimit: "+addr+" ") || !strings.Contains(got.stderr, " the policy api, ") {
				t.Errorf("%+v", got)
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

func TestRealPace(t *testing.T) {
	p := realPace{make(chan struct{}, 1)}
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
	taken := make(chan int)
	p.send(func() { taken <- len(p.slots) })
	if n := <-taken; n != 1 {
		t.Errorf("a request takes %d slots", n)
	}
}
