package httpcall_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httpcall"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the initial time of clocks that tests control.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// counter counts the takes that are sent, and those whose reply has arrived.
type counter struct{ takes, replies atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == "ratelimit_take" {
			c.takes.Add(1)
			defer c.replies.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// newLimiter returns a client of its own server, whose clock runs unless opts stop it.
func newLimiter(t testing.TB, opts ...embedded.Option) (*client.Client, *embedded.Server, *counter) {
	t.Helper()
	server := embedded.Run(t, append(opts, embedded.WithLibrary(functions.Source()))...)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	count := &counter{}
	rdb.AddHook(count)
	return must[*client.Client](t)(client.New(rdb, client.WithTimeout(time.Minute))), server, count
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// base is the other service. It sends the responses of the test, and keeps the bodies that it
// received.
type base struct {
	respond func(n int, r *http.Request) *http.Response // n counts from 1
	n       atomic.Int64
	bodies  []string
	closed  atomic.Int64 // response bodies that were closed
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	n := int(b.n.Add(1))
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		b.bodies = append(b.bodies, string(text))
	}
	if b.respond == nil {
		return b.response(http.StatusOK), nil
	}
	return b.respond(n, r), nil
}

func (b *base) response(status int, lines ...string) *http.Response {
	w := httptest.NewRecorder()
	for i := 0; i < len(lines); i += 2 {
		w.Header().Add(lines[i], lines[i+1])
	}
	w.WriteHeader(status)
	response := w.Result()
	response.Body = &body{Reader: strings.NewReader("text"), closed: &b.closed}
	return response
}

// body is the body of a request or a response. It counts how often it is closed.
type body struct {
	io.Reader
	closed *atomic.Int64
}

func (b *body) Close() error {
	b.closed.Add(1)
	return nil
}

func newTransport(t testing.TB, limiter *client.Client, limit client.Limit, to http.RoundTripper, opts ...httpcall.Option) *httpcall.Transport {
	t.Helper()
	fail := httpcall.OnError(func(_ *http.Request, err error) { t.Error(err) })
	return must[*httpcall.Transport](t)(httpcall.New(limiter, "partner", limit, append([]httpcall.Option{httpcall.WithBase(to), fail}, opts...)...))
}

func newRequest(ctx context.Context, t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	return must[*http.Request](t)(http.NewRequestWithContext(ctx, method, url, body))
}

const (
	site = "http://api.example.com/items"
	key  = "partner|api.example.com"
)

// blocked returns how long the key is blocked.
func blocked(t testing.TB, limiter *client.Client) time.Duration {
	t.Helper()
	return must[client.Result](t)(limiter.PeekN(context.Background(), key, "1/d", 0)).RetryAfter
}
