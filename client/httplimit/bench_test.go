package httplimit_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// BenchmarkServe compares the middleware with the bare client call, on a real server.
func BenchmarkServe(b *testing.B) {
	server := redistest.Run(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	b.Cleanup(func() { _ = rdb.Close() })
	redistest.Require(b, rdb.FunctionLoadReplace(b.Context(), functions.Source()).Err())
	limiter := must[*client.Client](b)(client.Open("redis://" + server.Addr))
	b.Cleanup(func() { _ = limiter.Close() })
	const limit client.Limit = "1000000/s"
	b.Run("the call alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must[client.Result](b)(limiter.Allow(context.Background(), "api|address=192.0.2.1", limit))
		}
	})
	b.Run("the middleware", func(b *testing.B) {
		policy := httplimit.Policy{Name: "second", Limit: limit, Quota: 1_000_000, Window: time.Second}
		handler := newHandler(b, limiter, limit, httplimit.Address(), ok, httplimit.WithPolicies(policy))
		r := get("/")
		b.ReportAllocs()
		for b.Loop() {
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
}
