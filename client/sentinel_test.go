package client_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// startSentinels starts three Sentinels that watch the primary at addr, which has one replica, and
// waits until they would fail over.
func startSentinels(t *testing.T, addr string) (sentinels [3]*redistest.Server, addrs []string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	text := fmt.Sprintf("sentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n", host, port)
	for i := range sentinels {
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		check(t, os.WriteFile(config, []byte(text), 0o600))
		sentinels[i] = redistest.Run(t, config, "--sentinel")
		addrs = append(addrs, sentinels[i].Addr)
	}
	for _, addr := range addrs {
		rdb := connect(t, redis.Options{Addr: addr})
		eventually(t, "the Sentinel knows the others and the replica", func() bool {
			others, _ := rdb.Do(t.Context(), "SENTINEL", "SENTINELS", "main").Slice()
			replicas, _ := rdb.Do(t.Context(), "SENTINEL", "REPLICAS", "main").Slice()
			return len(others) == 2 && len(replicas) == 1
		})
	}
	return sentinels, addrs
}

// If the primary and the Sentinel that the client talks to fail together, the client asks the other
// Sentinels for the new primary.
func TestPrimaryAndSentinelFailTogether(t *testing.T) {
	for name, fail := range map[string]func(*redistest.Server) error{
		"stopped": (*redistest.Server).Pause,
		"killed":  func(s *redistest.Server) error { s.Stop(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, _ := deployed(t)
			host, port, _ := net.SplitHostPort(primary.Addr)
			replica := redistest.Run(t, "--replicaof", host+" "+port)
			second := connect(t, redis.Options{Addr: replica.Addr})
			eventually(t, "the replica has the library", func() bool {
				list, err := second.FunctionList(t.Context(), redis.FunctionListQuery{}).Result()
				return err == nil && len(list) > 0
			})
			sentinels, addrs := startSentinels(t, primary.Addr)
			c := open(t, "redis-sentinel://"+strings.Join(addrs, ",")+"/main?client_name=watched")
			must[client.Result](t)(c.Allow(t.Context(), "k", plenty))
			var talksTo *redistest.Server
			for _, s := range sentinels {
				if strings.Contains(connect(t, redis.Options{Addr: s.Addr}).ClientList(t.Context()).Val(), "name=watched") {
					talksTo = s
				}
			}
			check(t, fail(primary))
			check(t, fail(talksTo))
			var promoted time.Time
			calls, last := 0, error(nil)
			eventually(t, "the client finds the new primary", func() bool {
				if promoted.IsZero() && strings.Contains(second.Info(t.Context(), "replication").Val(), "role:master") {
					promoted, calls = time.Now(), 0
				}
				calls++
				_, last = c.Allow(t.Context(), "k", plenty)
				return last == nil
			})
			t.Logf("%v after the promotion, in %d calls", time.Since(promoted), calls)
		})
	}
}
