package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// A wire records the calls of the library that a Redis client sends, without keys and limits.
type wire struct {
	lose int // number of replies to lose

	mu   sync.Mutex
	sent []string
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() != "fcall" {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		words := []string{"FCALL", fmt.Sprint(cmd.Args()[1]), "..."}
		for _, arg := range cmd.Args()[3:] {
			if text := fmt.Sprint(arg); len(words) > 3 || text == "COST" || text == "ONCE" {
				words = append(words, text)
			}
		}
		w.sent = append(w.sent, strings.Join(words, " "))
		if w.lose > 0 {
			w.lose--
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// on returns a client whose calls w records.
func (w *wire) on(t *testing.T, opts ...client.Option) *client.Client {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	rdb.AddHook(w)
	t.Cleanup(func() { _ = rdb.Close() })
	return redistest.Must[*client.Client](t)(client.New(rdb, append(opts, client.WithTimeout(time.Minute))...))
}

// calls returns the calls that a picture shows.
func calls(t *testing.T, draw func() (string, error)) (found []string) {
	svg := redistest.Must[string](t)(draw())
	for _, match := range regexp.MustCompile(`>(FCALL[^<]*)<`).FindAllStringSubmatch(svg, -1) {
		found = append(found, match[1])
	}
	return found
}

// TestOnce checks that a client and a server act as the picture of a lost reply shows.
func TestOnce(t *testing.T) {
	w := &wire{lose: 1}
	req := client.Request{Keys: []string{"{k}"}, Limits: []client.Limit{"10/h"}, OnceKey: "{k}:once", OnceTTL: time.Minute}
	res := redistest.Must[client.Result](t)(w.on(t).Take(t.Context(), req))
	if want := calls(t, once); !slices.Equal(w.sent, want) {
		t.Errorf("the client sends %q, and the picture shows %q", w.sent, want)
	}
	if got := fmt.Sprintf("allowed, %d left", res.Remaining); !res.Allowed || strings.Count(redistest.Must[string](t)(once()), ">"+got+"<") != 3 {
		t.Errorf("the picture does not show %q three times", got)
	}
	var first int
	scan(t, "client/again.go", `pauses = \[...\]time.Duration\{(\d+) \* time.Millisecond`, &first)
	shows(t, once, fmt.Sprintf("waits for %d to %d ms", first/2, first))
}

// TestBreaker checks the numbers in the picture of the breaker.
func TestBreaker(t *testing.T) {
	var failures, openFor, timeout int
	scan(t, "client/breaker.go", `failuresToOpen = (\d+)`, &failures)
	scan(t, "client/breaker.go", `openFor        = (\d+) \* time.Millisecond`, &openFor)
	scan(t, "client/bounded.go", `defaultTimeout = (\d+) \* time.Millisecond`, &timeout)
	shows(t, breaker, fmt.Sprintf("After %d calls in a row", failures), fmt.Sprintf("After %d ms", openFor),
		fmt.Sprintf("After another %d ms", openFor), fmt.Sprintf("timeout of %d ms", timeout))
}

// TestBatch checks that a client sends the requests for batches that the picture shows. The ttl is
// longer than in the picture, so that the test does not depend on the time that it takes.
func TestBatch(t *testing.T) {
	w := &wire{}
	limiter := w.on(t, client.WithBatches(100, time.Hour))
	allow := func() {
		if res, err := limiter.Allow(t.Context(), "k", "1000/h"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
	allow()
	allow()
	allow()
	var group sync.WaitGroup
	for range 3 {
		group.Go(allow)
	}
	group.Wait()
	want := calls(t, batch)
	if !slices.Equal(w.sent, want) {
		t.Errorf("the client sends %q, and the picture shows %q", w.sent, want)
	}
	allow() // the fourth unit
	if !slices.Equal(w.sent, want) {
		t.Errorf("no unit is left after %q", w.sent)
	}
}

// scan reads a number in a source file.
func scan(t *testing.T, file, pattern string, number *int) {
	t.Helper()
	text := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", file)))
	match := regexp.MustCompile(pattern).FindSubmatch(text)
	if match == nil {
		t.Fatalf("no %s in %s", pattern, file)
	}
	if _, err := fmt.Sscan(string(match[1]), number); err != nil {
		t.Fatal(err)
	}
}

func shows(t *testing.T, draw func() (string, error), texts ...string) {
	t.Helper()
	svg := redistest.Must[string](t)(draw())
	for _, text := range texts {
		if !strings.Contains(svg, text) {
			t.Errorf("the picture does not say %q", text)
		}
	}
}
