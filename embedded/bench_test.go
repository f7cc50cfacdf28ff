package embedded_test

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// BenchmarkDecisions measures how many decisions per second a program gets if it runs one server
// per core and distributes the keys over the servers by hash. A server has one Lua state, so it
// runs one call at a time.
func BenchmarkDecisions(b *testing.B) {
	const keys, perSecond = 1000, 10000
	for _, limit := range []string{
		"gcra 10/s", "token_bucket 10/s", "leaky_bucket 10/s", "fixed_window 10/s", "sliding_window 10/s", "sliding_log 10/s",
	} {
		b.Run(limit, func(b *testing.B) {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			servers := make([]*embedded.Server, runtime.GOMAXPROCS(0))
			mine := make([][]string, len(servers))
			for i := range servers {
				servers[i] = embedded.Run(b, embedded.WithLibrary(functions.Source()), embedded.WithTime(start))
			}
			for i := range keys {
				key := fmt.Sprint("user:", i)
				hash := fnv.New32a()
				hash.Write([]byte(key))
				at := int(hash.Sum32()) % len(servers)
				mine[at] = append(mine[at], key)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for i, server := range servers {
				wg.Go(func() {
					for n := range b.N / len(servers) {
						if n%10 == 0 {
							server.SetTime(start.Add(time.Duration(n*len(servers)) * time.Second / perSecond))
						}
						if _, err := server.Do("FCALL", "ratelimit_take", 1, mine[i][n%len(mine[i])], limit); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
