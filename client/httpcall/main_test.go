package httpcall_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httpcall"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLimiter returns a client for a new server. The server's clock runs unless opts stop it. takes
// counts the calls to ratelimit_take.
func newLimiter(t testing.TB, opts ...embedded.Option) (limiter *client.Client, server *embedded.Server, takes *atomic.Int64) {
	t.Helper()
	server = embedded.Run(t, append(opts, embedded.WithLibrary(functions.Source()))...)
	takes = &atomic.Int64{}
	return limitertest.Hooked(t, server, limitertest.Before("ratelimit_take", func(context.Context) { takes.Add(1) })), server, takes
}

var noon = limitertest.Noon

func must[T any](t testing.TB) func(T, error) T { return limitertest.Must[T](t) }

// base is the base transport of the tests. It returns the responses of the function respond, and
// keeps the request bodies.
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
	fail := httpcall.WithOnError(func(_ *http.Request, err error) { t.Error(err) })
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
