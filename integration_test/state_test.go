package integration_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestStateIsSmall checks that the state of a limiter is small: with the limit 100/h, for example,
// a key takes at most 64 bytes besides its name. The test does not run in a cluster, where every
// key takes 16 bytes more.
func TestStateIsSmall(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		c := newClient(t, b)
		for _, row := range []struct {
			key, limit string
			cost, most int64
		}{
			{"size:gcra", "100/h", 50, 64},
			{"size:gcra:part", "7/m burst=1000", 50, 64},
			{"size:gcra:us", "3000/s burst=900000", 900000, 96},
			{"size:fixed", "fixed_window 100/h", 50, 64},
			{"size:token", "token_bucket 100/h", 50, 96},
			{"size:leaky", "leaky_bucket 100/h", 50, 96},
			{"size:window", "sliding_window 100/h", 50, 96},
			{"size:log", "sliding_log 100/h", 50, 96},
		} {
			// Redis reuses the argument buffers of scripts, so a value may be stored in a larger
			// buffer that an earlier test left. The first call uses up the buffers of earlier
			// tests.
			for _, key := range []string{"size:first:" + row.key, row.key} {
				require(t, c.FCall(ctx, "ratelimit_take", []string{key}, row.limit, "COST", row.cost).Err())
			}
			used := must[int64](t)(c.MemoryUsage(ctx, row.key).Result())
			if beyond := used - int64(len(row.key)); beyond > row.most {
				t.Errorf("%s: %d bytes beyond the key's name, want at most %d", row.limit, beyond, row.most)
			}
			if left, err := c.PTTL(ctx, row.key).Result(); err != nil || left <= 0 {
				t.Errorf("%s: expires in %v, %v", row.limit, left, err)
			}
		}
	}, standalone)
}

// seedLog is the script of this project's predecessor. It limits a resource and the resource's
// consumers.
const seedLog = `local glimit = 0+ARGV[2]
local climit = 0+ARGV[3]
local t = (redis.call('TIME'))
redis.call('ZREMRANGEBYSCORE',KEYS[1],'0',(t[1]-ARGV[1]))
local rcount = (redis.call('ZCARD',KEYS[1]))
if (rcount == glimit) then return
     'RESOURCE OVERLIMIT:'..redis.call('ZCARD',KEYS[1])
elseif (((redis.call('ZREMRANGEBYSCORE',KEYS[2],'0',(t[1]-ARGV[1]))) < 1000000)
 and (redis.call('ZCARD',KEYS[2]) < climit)) then return
     'Adding '..(redis.call('ZADD',KEYS[2],t[1],t[1]..':'..t[2]))..' point to your count and '..(redis.call('ZADD',KEYS[1],t[1],t[1]..':'..t[2]))..' point to the resource count'
else return
     KEYS[2]..' CONSUMER OVERLIMIT: '..redis.call('ZCARD',KEYS[2]) end`

// TestLogIsSmallerThanTheSeeds compares the memory that two keys with logs use with the memory that
// the two sorted sets of seedLog use. Long logs take less than a quarter of the sets' memory. Short
// logs, which consist mostly of the overhead of a key, take about two thirds. The sets leave their
// compact form at about 120 calls; from then on the logs take less than half.
func TestLogIsSmallerThanTheSeeds(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		c := newClient(t, b)
		now := time.Now().UnixMicro()
		size := func(keys ...string) (sum int64) {
			for _, key := range keys {
				used := must[int64](t)(c.MemoryUsage(ctx, key, 0).Result()) // 0 samples means that every element is counted
				sum += used - int64(len(key))
			}
			return sum
		}
		for calls := 1; calls <= 1000; calls++ {
			require(t, b.SetTime(now+int64(calls)*1000))
			reply, err := c.Eval(ctx, seedLog, []string{"{log}:seed", "{log}:seed:consumer"}, 3600, 1e6, 1e6).Text()
			if err != nil || reply != "Adding 1 point to your count and 1 point to the resource count" {
				t.Fatalf("the seed's script: %q, %v", reply, err)
			}
			decision, err := c.FCall(ctx, "ratelimit_take", []string{"{log}:ours", "{log}:ours:consumer"},
				"sliding_log 50000/h", "sliding_log 50000/h").Int64Slice()
			if err != nil || decision[0] != 1 {
				t.Fatalf("%v, %v", decision, err)
			}
			if share, ok := map[int]float64{10: 0.71, 100: 0.52, 1000: 0.25}[calls]; ok {
				seed, ours := size("{log}:seed", "{log}:seed:consumer"), size("{log}:ours", "{log}:ours:consumer")
				t.Logf("%d calls: %d bytes, the seed %d", calls, ours, seed)
				if float64(ours) > share*float64(seed) {
					t.Errorf("%d calls: %d bytes, more than %.2f of the seed's %d", calls, ours, share, seed)
				}
			}
		}
	}, withClock)
}

// TestIdleKeysAreGone checks that idle limiters leave no keys: 9000 keys expire soon after their
// limits are full again.
func TestIdleKeysAreGone(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		c := newClient(t, b)
		limits := []string{"2/s", "7/s", "fixed_window 5/s", "token_bucket 5/s", "leaky_bucket 5/s", "sliding_window 5/s",
			"sliding_log 5/s", "5/s, 50/2s", "fixed_window 5/s align=clock"}
		const keys, batch = 9000, 1000
		for first := 0; first < keys; first += batch {
			must[[]redis.Cmder](t)(c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := first; i < first+batch; i++ {
					p.FCall(ctx, "ratelimit_take", []string{fmt.Sprintf("idle:%d", i)}, limits[i%len(limits)])
				}
				return nil
			}))
		}
		waitFor(ctx, t, "the keys to expire", func() error {
			left, err := c.DBSize(ctx).Result()
			if err == nil && left > 0 {
				err = fmt.Errorf("%d keys are left", left)
			}
			return err
		})
	}, standalone)
}

// TestExactInRealTime checks in real time that many goroutines and clients together get exactly
// what the limit allows. It first empties the bucket, which is too large to fill up again even on a
// very slow machine. It ends with a denied call, because a denial shows that everything available
// was taken.
func TestExactInRealTime(t *testing.T) {
	const rate, burst = 200, 1_000_000
	for limit, step := range map[client.Limit]float64{ // step is the number of units added at once
		limits.WithBurst(limits.PerSecond(rate), burst): 1,
		"leaky_bucket 200/s burst=1000000":              1,
		"token_bucket 20/100ms burst=1000000":           20,
	} {
		t.Run(string(limit), func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b *backend.Backend) {
				ctx := testContext(t)
				loadLibrary(ctx, t, b)
				server := newClient(t, b)
				node := func() time.Time {
					now := must[time.Time](t)(server.Time(ctx).Result())
					return now
				}
				c := newLimiter(t, server)
				first := node()
				if result, err := c.AllowN(ctx, "{over}:key", limit, burst); err != nil || !result.Allowed {
					t.Fatalf("emptying the bucket: %+v, %v", result, err)
				}
				emptied := node()
				var allowed atomic.Int64
				var ending atomic.Bool
				var group sync.WaitGroup
				for range 12 {
					c := newLimiter(t, newClient(t, b))
					group.Go(func() {
						for {
							last := ending.Load()
							result, err := c.Allow(ctx, "{over}:key", limit)
							switch {
							case err != nil:
								t.Error(err)
								return
							case result.Allowed:
								allowed.Add(1)
							case last:
								return
							}
						}
					})
				}
				waitFor(ctx, t, "200 calls to be allowed", func() error {
					if n := allowed.Load(); n < rate {
						return fmt.Errorf("%d are", n)
					}
					return nil
				})
				last := node()
				ending.Store(true)
				group.Wait()
				most, least := rate*node().Sub(first).Seconds()+step, rate*last.Sub(emptied).Seconds()-step
				if got := float64(allowed.Load()); got > most || got < least {
					t.Errorf("%.0f let through, want from %.1f to %.1f", got, least, most)
				}
			}, standalone)
		})
	}
}
