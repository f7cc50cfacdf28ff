package rls_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// atPeek is a hook that calls a function before each peek.
type atPeek func()

func (f atPeek) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f atPeek) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f atPeek) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == "ratelimit_peek" {
			f()
		}
		return next(ctx, cmd)
	}
}

// A request that was denied, so that nothing was charged, stays denied, even if a unit comes back while
// the descriptors are looked at one by one, because one of them has a shadow policy.
func TestUnitsThatComeBackBesideAShadowPolicy(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "1/h"}}, Shadow: true},
		functions.Policy{Name: "real", Limits: []functions.PolicyLimit{{Limit: "1/m"}}})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(start))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(atPeek(func() { server.Advance(2 * time.Minute) }))
	limiter := must[*client.Client](t)(client.New(rdb))
	t.Cleanup(func() { _ = limiter.Close() })
	service := rls.New(rls.Options{Limiter: limiter, Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&redistest.Output{}, nil))})
	for i, want := range []string{"OK | OK trial:1/unknown 0 3600s | OK real:1/unknown 0 60s", "OVER_LIMIT | OK trial:1/unknown 0 3480s | OVER_LIMIT real:1/unknown 0 60s"} {
		if got := short(service.ShouldRateLimit(t.Context(), request(1, "policy=trial user=1", "policy=real user=1"))); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
}
