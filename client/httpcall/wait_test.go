package httpcall_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httpcall"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// Each request waits for its turn, no request is sent too early, and waiting requests make few
// calls to the server.
func TestWaits(t *testing.T) {
	limiter, _, takes := newLimiter(t)
	to := &base{}
	var mu sync.Mutex
	var at []time.Time
	to.respond = func(int, *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return to.response(http.StatusOK)
	}
	transport := newTransport(t, limiter, "50/s burst=1", to)
	began := time.Now()
	const n = 10
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			response, err := transport.RoundTrip(newRequest(t.Context(), t, "GET", site, nil))
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", response, err)
			}
		})
	}
	all.Wait()
	if len(at) != n {
		t.Fatalf("%d requests were sent, want %d", len(at), n)
	}
	// Each request is allowed 20 ms after the previous one, or later. The millisecond that is
	// subtracted is the precision of the server's clock.
	for i, sent := range at {
		if least := time.Duration(i)*20*time.Millisecond - time.Millisecond; sent.Sub(began) < least {
			t.Errorf("request %d was sent after %v, want %v at least", i+1, sent.Sub(began), least)
		}
	}
	// Each request calls the limiter at most twice: when it is first in line, and after its wait.
	if takes := takes.Load(); takes > 2*n {
		t.Errorf("%d takes for %d requests, want at most %d", takes, n, 2*n)
	}
}

func TestRefuses(t *testing.T) {
	limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
	to := &base{}
	for _, tt := range []struct {
		name  string
		opts  []httpcall.Option
		until time.Duration // deadline of the context; 0: none
		cost  int64
		after time.Duration
		cause error
		text  string
	}{
		{"at once", []httpcall.Option{httpcall.WithLongestWait(0)}, 0, 1, 30 * time.Second, nil, `ratelimit: take "partner|api.example.com": 1 of "2/m" would have to be waited for, 30s at least; nothing was taken`},
		{"beyond the longest wait", []httpcall.Option{httpcall.WithLongestWait(29 * time.Second)}, 0, 1, 30 * time.Second, nil, "30s at least"},
		{"beyond the deadline", nil, 20 * time.Second, 1, 30 * time.Second, context.DeadlineExceeded, "allow more time (context deadline exceeded)"},
		{"never", nil, time.Hour, 3, client.Never, nil, `3 of "2/m" is more than the limit ever holds`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			must[int64](t)(limiter.Reset(ctx, key))
			must[client.Result](t)(limiter.AllowN(ctx, key, "2/m", 2))
			cost := httpcall.WithRequest(func(_ *http.Request, req *client.Request) error { req.Costs = []int64{tt.cost}; return nil })
			transport := newTransport(t, limiter, "2/m", to, append(tt.opts, cost)...)
			if tt.until > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.until)
				defer cancel()
			}
			var closed atomic.Int64
			_, err := transport.RoundTrip(newRequest(ctx, t, "POST", site, &body{Reader: strings.NewReader("x"), closed: &closed}))
			var limited *client.Error
			if !limitertest.AsLimited(err, &limited) || limited.Keys[0] != key || limited.RetryAfter != tt.after || limited.Err != tt.cause || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%#v, want %v", err, tt.text)
			}
			if tt.cause != nil && !errors.Is(err, tt.cause) {
				t.Errorf("%v is not %v", err, tt.cause)
			}
			if closed.Load() != 1 || to.n.Load() != 0 {
				t.Errorf("the body was closed %d times, want once; %d requests were sent, want none", closed.Load(), to.n.Load())
			}
		})
	}
}

// If the wait would exceed the Timeout of an http.Client, the client returns an ErrLimited.
func TestThroughAClient(t *testing.T) {
	limiter, _, _ := newLimiter(t, embedded.WithTime(noon))
	caller := &http.Client{Transport: newTransport(t, limiter, "1/h", &base{}), Timeout: 10 * time.Second}
	response := must[*http.Response](t)(caller.Get(site))
	_ = response.Body.Close()
	response, err := caller.Get(site)
	if err == nil {
		_ = response.Body.Close()
	}
	var limited *client.Error
	if !limitertest.AsLimited(err, &limited) || limited.RetryAfter != time.Hour {
		t.Errorf("%v", err)
	}
}

// If the context of a waiting request ends, the request is not sent, and the requests behind it
// move up. This holds for every position in the queue.
func TestContextEndsInLine(t *testing.T) {
	limiter, server, takes := newLimiter(t, embedded.WithTime(noon))
	to := &base{}
	transport := newTransport(t, limiter, "1/m", to, httpcall.WithLongestWait(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	must[*http.Response](t)(transport.RoundTrip(newRequest(ctx, t, "GET", site, nil)))
	errs := make(chan error, 3)
	var closed atomic.Int64
	send := func(ctx context.Context) {
		r := newRequest(ctx, t, "POST", site, &body{Reader: strings.NewReader("x"), closed: &closed})
		go func() {
			_, err := transport.RoundTrip(r)
			errs <- err
		}()
	}
	for range 3 {
		send(ctx)
	}
	redistest.Eventually(t, "the first in line has asked", func() bool { return takes.Load() >= 2 })
	cancel()
	for range 3 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if closed.Load() != 3 || to.n.Load() != 1 {
		t.Errorf("%d bodies were closed, want 3; %d requests were sent, want 1", closed.Load(), to.n.Load())
	}
	server.Advance(time.Minute)
	must[*http.Response](t)(transport.RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
}

func TestWithoutADecision(t *testing.T) {
	limiter, server, _ := newLimiter(t)
	_ = server.Close()
	to := &base{}
	var closed atomic.Int64
	_, err := newTransport(t, limiter, "1/s", to).RoundTrip(newRequest(t.Context(), t, "POST", site, &body{Reader: strings.NewReader("x"), closed: &closed}))
	if !errors.Is(err, client.ErrUnavailable) || closed.Load() != 1 || to.n.Load() != 0 {
		t.Errorf("%v; the body was closed %d times, %d requests were sent", err, closed.Load(), to.n.Load())
	}
	fallback := func(f client.Fallback) httpcall.Option {
		return httpcall.WithRequest(func(_ *http.Request, req *client.Request) error { req.Fallback = f; return nil })
	}
	must[*http.Response](t)(newTransport(t, limiter, "1/s", to, fallback(client.FailOpen)).RoundTrip(newRequest(t.Context(), t, "GET", site, nil)))
	var limited *client.Error
	_, err = newTransport(t, limiter, "1/s", to, fallback(client.FailClosed), httpcall.WithLongestWait(0)).RoundTrip(newRequest(t.Context(), t, "GET", site, nil))
	if !limitertest.AsLimited(err, &limited) || !errors.Is(err, client.ErrUnavailable) || limited.RetryAfter != time.Second {
		t.Error(err)
	}
}

// If the reply to the limiter is lost and the fallback denies, the request is not sent, and is
// charged at most once. The error says that it may have been charged.
func TestLostReplyIsNotRepeated(t *testing.T) {
	var lose atomic.Int64
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	limiter := limitertest.Hooked(t, server, limitertest.Losing("ratelimit_take", &lose), client.WithFallback(client.FailClosed))
	lose.Store(2)
	to := &base{}
	_, err := newTransport(t, limiter, "100/d", to).RoundTrip(newRequest(t.Context(), t, "GET", site, nil))
	var limited *client.Error
	if !limitertest.AsLimited(err, &limited) || !errors.Is(err, client.ErrOutcomeUnknown) || !strings.Contains(err.Error(), `1 of "100/d" may have been taken`) || to.n.Load() != 0 {
		t.Errorf("%v; %d requests were sent", err, to.n.Load())
	}
	limitertest.WantUsed(t, limiter, key, 1)
}
