package client_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// BenchmarkHotKey measures 64 goroutines that share a key on a redis-server on the same machine.
// The key is either never denied or almost always denied.
func BenchmarkHotKey(b *testing.B) {
	server := must[*redistest.Server](b)(redistest.Start("redis-server"))
	b.Cleanup(server.Stop)
	deploy(b, connect(b, redis.Options{Addr: server.Addr}))
	const endless, ended = "1000000000/s", "1/d"
	for _, bb := range []struct {
		name  string
		limit client.Limit
		opts  []client.Option
	}{
		{"plain", endless, nil},
		{"batches", endless, []client.Option{client.WithBatches(1000, 100*time.Millisecond)}},
		{"denied/plain", ended, nil},
		{"denied/memory", ended, []client.Option{client.WithDenialMemory(time.Second)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			c := must[*client.Client](b)(client.Open("redis://"+server.Addr, bb.opts...))
			defer func() { _ = c.Close() }()
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Allow(b.Context(), bb.name, bb.limit); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
