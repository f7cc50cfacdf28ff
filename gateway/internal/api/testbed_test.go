package api

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLimiter returns a client for a server with a stopped clock.
func newLimiter(t *testing.T) *client.Client {
	t.Helper()
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}}, functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "1/h"}}, Shadow: true},
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Penalty: &functions.Penalty{First: time.Minute, Max: time.Hour, Forget: time.Hour}},
		functions.Policy{Name: "warns", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Warn: 80},
		functions.Policy{Name: "shared", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: map[string]int{"default": 25, "batch": 75}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "6/m"}}, Borrow: true, Floor: 50})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	return open(t, "redis://"+server.Addr())
}

func open(t *testing.T, url string) *client.Client {
	t.Helper()
	limiter := redistest.Must[*client.Client](t)(client.Open(url, client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = limiter.Close() })
	options := redistest.Must[*redis.Options](t)(redis.ParseURL(url))
	options.MaxRetries, options.DialerRetries = -1, 1
	db := redis.NewClient(options)
	t.Cleanup(func() { _ = db.Close() })
	stores[limiter] = holds.Redis{DB: db}
	return limiter
}

// stores has the server of each limiter.
var stores = map[*client.Client]holds.Store{}

// stopped returns a client for a port on which no server listens.
func stopped(t *testing.T) *client.Client {
	t.Helper()
	port := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	_ = port.Close()
	return open(t, "redis://"+port.Addr().String())
}

func newHandler(t *testing.T, limiter *client.Client) http.Handler {
	t.Helper()
	h := both{Metrics: metrics.New(prometheus.NewRegistry()), Limiter: limiter, Log: slog.New(slog.DiscardHandler), Hosts: []string{"Example.com"}} // the host of httptest.NewRequest
	h.Holds = holds.New(holds.Options{Limiter: limiter, Store: stores[limiter], Metrics: h.Metrics, Log: h.Log, Timeout: time.Minute})
	return h
}

// both serves each operation as the port does that has it.
type both Options

func (b both) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if operations[strings.TrimPrefix(r.URL.Path, Prefix)].admin {
		b.Admin, b.Token = true, token
		if r.Header.Get("Authorization") == "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	New(Options(b)).ServeHTTP(w, r)
}

const token = "the token of operators"

// send sends a request. header alternates the names and values of header fields.
func send(t *testing.T, h http.Handler, method, name, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, Prefix+name, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}
