package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

type move struct {
	old      *redis_rate.Limiter
	oldLimit redis_rate.Limit
	limiter  *client.Client
	limit    client.Limit
}

// allow allows a call if both limiters do. It also charges the new limiter for calls that only the
// old limiter has counted.
func (m move) allow(ctx context.Context, key string) (bool, error) {
	before, err := m.old.Allow(ctx, key, m.oldLimit)
	if err != nil || before.Allowed == 0 {
		return false, err
	}
	after, err := m.limiter.Allow(ctx, key, m.limit)
	if err != nil {
		return false, err
	}
	if more := after.Remaining - int64(before.Remaining); after.Allowed && more > 0 {
		_, err = m.limiter.Take(ctx, client.Request{
			Keys: []string{key}, Limits: []client.Limit{m.limit}, Costs: []int64{more}, UpTo: true,
			OnceKey: key + ":moved", OnceTTL: time.Second, // concurrent callers charge the new limiter only once
		})
	}
	return after.Allowed, err
}

// TestMovingWithoutASecondBurst checks that a key that is always at its limit gets no second burst
// if its limiter is replaced as docs/coming-from.md describes. It also checks that the key gets a
// second burst if the described steps are left out.
func TestMovingWithoutASecondBurst(t *testing.T) {
	const burst, unit = 20, 100 * time.Millisecond
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		rdb := newClient(t, b)
		m := move{redis_rate.NewLimiter(rdb), redis_rate.Limit{Rate: 10, Period: time.Second, Burst: burst}, newLimiter(t, rdb), "10/s burst=20"}
		old := func(ctx context.Context, key string) (bool, error) {
			result, err := m.old.Allow(ctx, key, m.oldLimit)
			return err == nil && result.Allowed == 1, err
		}
		fresh := func(ctx context.Context, key string) (bool, error) {
			result, err := m.limiter.Allow(ctx, key, m.limit)
			return result.Allowed, err
		}
		both := func(ctx context.Context, key string) (bool, error) {
			if ok, err := old(ctx, key); !ok {
				return false, err
			}
			return fresh(ctx, key)
		}
		type allows = func(context.Context, string) (bool, error)
		for _, tt := range []struct {
			name   string
			phases []allows
			bursts int // number of bursts that are allowed besides refilled units
		}{
			{"at once", []allows{old, fresh}, 2},
			{"both for a while, and no more", []allows{old, both, fresh}, 2},
			{"as the page says", []allows{old, m.allow, fresh}, 1},
		} {
			t.Run(tt.name, func(t *testing.T) {
				start := time.Now().Truncate(time.Second)
				now, key, let := start, "moving:"+strings.ReplaceAll(tt.name, " ", ""), 0
				for _, phase := range tt.phases {
					// A phase lasts longer than a full refill. Each step makes more calls than
					// there are units.
					for end := now.Add(3 * time.Second); now.Before(end); now = now.Add(unit / 2) {
						require(t, b.SetTime(now.UnixMicro()))
						for range burst + 5 {
							ok := must[bool](t)(phase(ctx, key))
							if !ok {
								break
							}
							let++
						}
					}
				}
				// Slightly fewer calls may be allowed, because floating point makes redis_rate deny
				// calls in the millisecond in which a unit becomes available.
				most := tt.bursts*burst + int(now.Sub(start)/unit)
				if let > most || let < most-4 {
					t.Errorf("%d calls were allowed in %v, want %d, or at most 4 less", let, now.Sub(start), most)
				}
			})
		}
	}, standalone, withClock)
}
