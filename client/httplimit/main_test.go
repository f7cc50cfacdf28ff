package httplimit_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLimiter returns a client, and its server.
func newLimiter(t testing.TB, policies ...functions.Policy) (*client.Client, *embedded.Server) {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(noon))
	return limitertest.Open(t, server), server
}

var noon = limitertest.Noon

func must[T any](t testing.TB) func(T, error) T { return limitertest.Must[T](t) }

// ok is a handler that responds with status 200.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

// newHandler returns a handler behind the middleware.
func newHandler(t testing.TB, limiter *client.Client, limit client.Limit, key httplimit.Key, next http.Handler, opts ...httplimit.Option) http.Handler {
	t.Helper()
	middleware := must[func(http.Handler) http.Handler](t)(httplimit.New(limiter, "api", limit, key, opts...))
	return middleware(next)
}

// get returns a request from 192.0.2.1, the default of httptest. lines alternates the names and
// values of header fields.
func get(target string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	return r
}

func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func checkStatus(t *testing.T, response *http.Response, want int) {
	t.Helper()
	if response.StatusCode != want {
		t.Errorf("status %d, want %d; header %v", response.StatusCode, want, response.Header)
	}
}

func checkField(t *testing.T, response *http.Response, name, want string) {
	t.Helper()
	if got := response.Header.Get(name); got != want {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

// body parses application/problem+json.
func body(t *testing.T, response *http.Response) map[string]any {
	t.Helper()
	checkField(t, response, "Content-Type", "application/problem+json")
	var found map[string]any
	limitertest.Check(t, json.NewDecoder(response.Body).Decode(&found))
	return found
}

// used returns how many of 100 units are taken from a key.
func used(t *testing.T, limiter *client.Client, key string) int64 {
	t.Helper()
	return 100 - must[client.Result](t)(limiter.Peek(context.Background(), client.For(key, "100/d", 0))).Remaining
}
