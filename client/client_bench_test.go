package client_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// BenchmarkAllow measures the overhead of a decision in one goroutine, compared with the bare FCALL
// of go-redis.
func BenchmarkAllow(b *testing.B) {
	server := must[*redistest.Server](b)(redistest.Start("redis-server"))
	b.Cleanup(server.Stop)
	rdb := connect(b, redis.Options{Addr: server.Addr})
	deploy(b, rdb)
	c := must[*client.Client](b)(client.Open("redis://" + server.Addr))
	defer func() { _ = c.Close() }()
	calls := []struct {
		name string
		call func() error
	}{
		{"FCall", func() error {
			return rdb.FCall(b.Context(), "ratelimit_take", []string{"user:42"}, "1000000000/s").Err()
		}},
		{"Allow", func() error { return second(c.Allow(b.Context(), "user:42", "1000000000/s")) }},
	}
	for _, bb := range calls {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require(b, bb.call())
			}
		})
	}
	// The two calls alternate, so that other load on the machine slows both.
	b.Run("in turns", func(b *testing.B) {
		var took [2][]float64
		for b.Loop() {
			for i, bb := range calls {
				began := time.Now()
				require(b, bb.call())
				took[i] = append(took[i], float64(time.Since(began)))
			}
		}
		b.ReportMetric(median(took[1])/median(took[0]), "Allow/FCall")
	})
}

// BenchmarkSharedRoundTrips measures 1 to 512 goroutines that share the processors with the server.
// It alternates every tenth of a second between calls with and without shared round trips.
func BenchmarkSharedRoundTrips(b *testing.B) {
	server := must[*redistest.Server](b)(redistest.Start("redis-server"))
	b.Cleanup(server.Stop)
	deploy(b, connect(b, redis.Options{Addr: server.Addr}))
	clients := [2]*client.Client{}
	for i, opts := range [2][]client.Option{{client.Alone()}, nil} {
		clients[i] = must[*client.Client](b)(client.Open("redis://"+server.Addr, append(opts, client.WithTimeout(slow))...))
		defer func() { _ = clients[i].Close() }()
	}
	for _, goroutines := range []int{1, 4, 8, 16, 64, 512} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			var rates [2][]float64
			for b.Loop() {
				for i, c := range clients {
					began := time.Now()
					var decisions atomic.Int64
					var all sync.WaitGroup
					for range goroutines {
						all.Go(func() {
							for time.Since(began) < 100*time.Millisecond {
								if _, err := c.Allow(b.Context(), "user:42", "1000000000/s"); err != nil {
									b.Error(err)
									return
								}
								decisions.Add(1)
							}
						})
					}
					all.Wait()
					rates[i] = append(rates[i], float64(decisions.Load())/time.Since(began).Seconds())
				}
			}
			b.ReportMetric(median(rates[0]), "plain/s")
			b.ReportMetric(median(rates[1]), "shared/s")
		})
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
