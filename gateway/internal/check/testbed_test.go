package check_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/check"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a handler with its server, metrics and log.
type gate struct {
	http.Handler
	server   *embedded.Server
	registry *prometheus.Registry
	log      bytes.Buffer
}

// newGate returns a handler that uses a server with a stopped clock.
func newGate(t *testing.T, trusted ...string) *gate {
	t.Helper()
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}},
		functions.Policy{Name: "none", Limits: []functions.PolicyLimit{{Limit: "0/m"}}},
		functions.Policy{Name: "pair", Limits: []functions.PolicyLimit{{Key: "a", Limit: "3/m"}, {Key: "b", Limit: "3/m"}}},
		functions.Policy{Name: "leases", Limits: []functions.PolicyLimit{{Limit: "concurrency 3 lease=30s"}}},
		functions.Policy{Name: "tracked", Limits: []functions.PolicyLimit{{Limit: "3/m"}}, Track: true},
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Penalty: &functions.Penalty{First: time.Minute, Max: time.Hour, Forget: time.Hour}},
		functions.Policy{Name: "warns", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Warn: 80},
		functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "0/m"}}, Shadow: true},
		functions.Policy{Name: "shared", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: map[string]int{"critical": 0, "default": 25, "batch": 75}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "6/m"}}, Borrow: true, Floor: 50})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	g := newGateOn(t, "redis://"+server.Addr(), trusted...)
	g.server = server
	return g
}

func newGateOn(t *testing.T, url string, trusted ...string) *gate {
	t.Helper()
	limiter, err := client.Open(url, client.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	g := &gate{registry: prometheus.NewRegistry()}
	g.Handler = redistest.Must[*check.Handler](t)(check.New(check.Options{
		Limiter: limiter, Metrics: metrics.New(g.registry), TrustedProxies: trusted,
		Log: slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))
	return g
}

// ask sends a request from 192.0.2.1. lines contains the names and values of header fields,
// alternately.
func (g *gate) ask(method, target string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader("the body of the client's request"))
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	answer := httptest.NewRecorder()
	g.ServeHTTP(answer, r)
	return answer
}

// keys returns the keys on the server.
func (g *gate) keys(t *testing.T) string {
	t.Helper()
	found := redistest.Must[any](t)(g.server.Do("KEYS", "*"))
	return fmt.Sprint(found)
}

func (g *gate) wantMetric(t *testing.T, want string) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(answer.Body.String(), "ratelimit_gateway_"+want+"\n") {
		t.Errorf("%s is not in\n%s", want, answer.Body)
	}
}
