package holds

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Unix(1_800_000_000, 0)

// testbed is a gateway's Holds on an embedded server with a stopped clock, which is also that of the
// gateway.
type testbed struct {
	*Holds
	t        *testing.T
	server   *embedded.Server
	db       *redis.Client
	limiter  *client.Client
	registry *prometheus.Registry
	clock    atomic.Int64 // ms since the epoch
	library  string
}

func newTestbed(t *testing.T, options ...embedded.Option) *testbed {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "10/h"}}, Shadow: true},
		functions.Policy{Name: "whole", Limits: []functions.PolicyLimit{{Limit: "fixed_window 100/d"}}},
		functions.Policy{Name: "hidden", Limits: []functions.PolicyLimit{{Limit: "fixed_window 100/30d"}}, Shadow: true},
		functions.Policy{Name: "pair", Limits: []functions.PolicyLimit{{Key: "user", Limit: "fixed_window 100/30d"}, {Key: "tenant", Limit: "fixed_window 100/30d"}}, Shadow: true},
		functions.Policy{Name: "both", Limits: []functions.PolicyLimit{{Key: "user", Limit: "100/h"}, {Key: "tenant", Limit: "1000/h"}}},
		functions.Policy{Name: "shared", Limits: []functions.PolicyLimit{{Key: "user", Limit: "100/h"}, {Key: "tenant", Limit: "1000/h"}}, Borrow: true},
		functions.Policy{Name: "counted", Limits: []functions.PolicyLimit{{Limit: "100/h"}}, Track: true},
	)))
	b := &testbed{t: t, library: build.Text(), registry: prometheus.NewRegistry()}
	b.clock.Store(start.UnixMilli())
	b.server = embedded.Run(t, append(options, embedded.WithLibrary(build.Text()), embedded.WithTime(start))...)
	b.db = redis.NewClient(&redis.Options{Addr: b.server.Addr(), PoolTimeout: time.Minute})
	t.Cleanup(func() { _ = b.db.Close() })
	b.limiter = must[*client.Client](t)(client.Open("redis://"+b.server.Addr(), client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = b.limiter.Close() })
	b.Holds = b.gateway(b.limiter, Redis{b.db})
	return b
}

// gateway returns the Holds of another gateway.
func (b *testbed) gateway(limiter Limiter, store Store) *Holds {
	return New(Options{
		Limiter: limiter, Store: store, Metrics: metrics.New(b.registered()), Log: slog.New(slog.DiscardHandler),
		Timeout: time.Minute, Now: b.time,
	})
}

// registered returns the registry for the first gateway, and new ones for the others.
func (b *testbed) registered() prometheus.Registerer {
	if b.Holds == nil {
		return b.registry
	}
	return prometheus.NewRegistry()
}

func (b *testbed) time() time.Time { return time.UnixMilli(b.clock.Load()) }

func (b *testbed) advance(d time.Duration) {
	b.server.SetTime(time.UnixMilli(b.clock.Add(d.Milliseconds())))
}

func part(key string, limit client.Limit) []Part {
	return []Part{{Keys: []string{key}, Limits: []client.Limit{limit}}}
}

func (b *testbed) reserve(parts []Part, amount int64, ttl time.Duration) string {
	b.t.Helper()
	made, err := b.Reserve(b.t.Context(), "web", parts, amount, ttl)
	require(b.t, err)
	return made.ID
}

// commit returns a short form of the result.
func (b *testbed) commit(id string, actual int64) string {
	got, err := b.Commit(b.t.Context(), "web", id, actual)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(got.Actual, " ", got.Late)
}

func (b *testbed) sweep() {
	b.t.Helper()
	require(b.t, b.Sweep(b.t.Context()))
}

// left checks how many units a key has left.
func (b *testbed) left(key string, limit client.Limit, want int64) {
	b.t.Helper()
	if res := must[client.Result](b.t)(b.limiter.Peek(b.t.Context(), client.For(key, limit, 0))); res.Remaining != want {
		b.t.Errorf("%s has %d left, want %d", key, res.Remaining, want)
	}
}

// keys returns the keys on the server that are not limited keys.
func (b *testbed) keys() []string {
	b.t.Helper()
	return must[[]string](b.t)(b.db.Keys(b.t.Context(), "*hold*").Result())
}

// empty checks that nothing of a reservation stays on the server.
func (b *testbed) empty() {
	b.t.Helper()
	b.advance(3 * LongestTTL)
	if keys := b.keys(); len(keys) > 0 {
		b.t.Errorf("the server still has %q", keys)
	}
}

// wantEvents compares the metrics with the given events and their numbers, such as "reserved 1".
func (b *testbed) wantEvents(want ...string) {
	b.t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(answer.Body.String()) {
		if event, ok := strings.CutPrefix(line, `ratelimit_gateway_reservations_total{event="`); ok {
			got = append(got, strings.TrimSpace(strings.Replace(event, `"}`, "", 1)))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("the metrics have %q, want %q", got, want)
	}
}

// ctx is for calls that the test does not end.
var ctx = context.Background()
