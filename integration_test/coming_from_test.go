package integration_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// answer is a limiter's reply to a call. Durations that the limiter does not report are
// client.Never.
type answer struct {
	allowed      bool
	remaining    int64
	retry, reset time.Duration
}

type (
	asks  func(ctx context.Context, key string, cost int) (answer, error)
	opens func(rdb redis.UniversalClient) (asks, error)
)

// peer is another project's limiter, called through its own API, and the limit that
// docs/coming-from.md describes as its equivalent.
type peer struct {
	name    string
	limit   client.Limit
	unit    time.Duration // time in which one unit refills; 0 for a window
	longest time.Duration // maximum time between two calls
	costs   bool          // whether decisions also agree for calls that cost several units
	open    opens
}

func peers() []peer {
	return []peer{
		{name: "redis_rate", limit: "10/s burst=20", unit: 100 * time.Millisecond, longest: 2 * time.Second, costs: true,
			open: openRedisRate(redis_rate.Limit{Rate: 10, Period: time.Second, Burst: 20})},
		{name: "redis_rate, PerMinute", limit: "60/m", unit: time.Second, longest: 12 * time.Second, costs: true, open: openRedisRate(redis_rate.PerMinute(60))},
		// throttled lets a key expire up to a second early, so calls must be less than a second
		// apart.
		{name: "throttled", limit: "10/s burst=20", unit: 100 * time.Millisecond, longest: 900 * time.Millisecond, costs: true,
			open: openThrottled(throttled.RateQuota{MaxRate: throttled.PerSec(10), MaxBurst: 19})},
		{name: "ulule/limiter", limit: "fixed_window 20/m", longest: 10 * time.Second, open: openUlule("20-M")},
		{name: "rate-limiter-flexible", limit: "fixed_window 20/60s", longest: 10 * time.Second, open: openFlexible(20, 60)},
	}
}

func openRedisRate(limit redis_rate.Limit) opens {
	return func(rdb redis.UniversalClient) (asks, error) {
		limiter := redis_rate.NewLimiter(rdb)
		return func(ctx context.Context, key string, cost int) (answer, error) {
			result, err := limiter.AllowN(ctx, key, limit, cost)
			if err != nil {
				return answer{}, err
			}
			return answer{result.Allowed == cost, int64(result.Remaining), result.RetryAfter, result.ResetAfter}, nil
		}, nil
	}
}

func openThrottled(quota throttled.RateQuota) opens {
	return func(rdb redis.UniversalClient) (asks, error) {
		store, err := throttledredis.NewCtx(rdb, "throttled:")
		if err != nil {
			return nil, err
		}
		limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
		return func(ctx context.Context, key string, cost int) (answer, error) {
			limited, result, err := limiter.RateLimitCtx(ctx, key, cost)
			return answer{!limited, int64(result.Remaining), result.RetryAfter, result.ResetAfter}, err
		}, err
	}
}

func openUlule(formatted string) opens {
	return func(rdb redis.UniversalClient) (asks, error) {
		store, err := ululeredis.NewStore(rdb)
		if err != nil {
			return nil, err
		}
		rate, err := ulule.NewRateFromFormatted(formatted)
		limiter := ulule.New(store, rate)
		return func(ctx context.Context, key string, cost int) (answer, error) {
			result, err := limiter.Increment(ctx, key, int64(cost))
			// Reset depends on the caller's clock, so do not compare it.
			return answer{!result.Reached, result.Remaining, client.Never, client.Never}, err
		}, err
	}
}

// openFlexible opens a limiter that sends the same commands as RateLimiterRedis.consume of
// rate-limiter-flexible, a library for Node.js.
func openFlexible(points int64, seconds int) opens {
	return func(rdb redis.UniversalClient) (asks, error) {
		return func(ctx context.Context, key string, cost int) (answer, error) {
			var consumed *redis.IntCmd
			var left *redis.DurationCmd
			_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.SetNX(ctx, "rlflx:"+key, 0, time.Duration(seconds)*time.Second)
				consumed = p.IncrBy(ctx, "rlflx:"+key, int64(cost))
				left = p.PTTL(ctx, "rlflx:"+key)
				return nil
			})
			if err != nil {
				return answer{}, err
			}
			a := answer{consumed.Val() <= points, max(0, points-consumed.Val()), client.Never, left.Val()}
			if !a.allowed {
				a.retry = a.reset
			}
			return a, nil
		}, nil
	}
}

// atAnEdge reports whether a unit has just become available or is about to. If so, a peer's
// floating-point rounding decides whether the unit counts as available. debt is the time until the
// limit is full, and unit is the refill time of one unit.
func atAnEdge(debt, unit time.Duration) bool {
	const near = 2 * time.Millisecond
	return unit > 0 && debt > 0 && (debt%unit < near || debt%unit > unit-near)
}

// TestPeersDecideAlike checks that the limits that docs/coming-from.md calls equivalent make the
// same decision for every call.
func TestPeersDecideAlike(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		rdb := newClient(t, b)
		limiter := newLimiter(t, rdb)
		for _, p := range peers() {
			t.Run(p.name, func(t *testing.T) {
				ask := must[asks](t)(p.open(rdb))
				now := time.Now().Truncate(time.Second)
				random := rand.New(rand.NewPCG(1, uint64(len(p.name))))
				key, seen := "alike:"+strings.ReplaceAll(p.name, " ", ""), map[bool]int{}
				for i := range 400 {
					if random.IntN(4) == 0 {
						now = now.Add(time.Duration(random.Int64N(int64(p.longest/time.Millisecond))) * time.Millisecond)
					}
					require(t, b.SetTime(now.UnixMicro()))
					state := must[client.Result](t)(limiter.Peek(ctx, client.For(key, p.limit, 0)))
					if atAnEdge(state.ResetAfter, p.unit) {
						now = now.Add(5 * time.Millisecond)
						require(t, b.SetTime(now.UnixMicro()))
					}
					cost := 1
					if p.costs {
						cost += random.IntN(3)
					}
					ours := must[client.Result](t)(limiter.AllowN(ctx, key, p.limit, int64(cost)))
					theirs := must[answer](t)(ask(ctx, key, cost))
					seen[ours.Allowed]++
					if diff := p.differs(ours, theirs); diff != "" {
						t.Fatalf("call %d, at %v, cost %d: %s\nours:   %+v\ntheirs: %+v", i, now, cost, diff, ours, theirs)
					}
				}
				if seen[true] < 50 || seen[false] < 50 {
					t.Errorf("%d calls were allowed, %d denied: too few to compare", seen[true], seen[false])
				}
			})
		}
	}, standalone, withClock)
}

// differs describes how a peer's answer differs from ours. It returns "" if they agree.
func (p peer) differs(ours client.Result, theirs answer) string {
	// Our durations are rounded up to whole milliseconds.
	same := func(ours, theirs time.Duration) bool { return (ours - theirs).Abs() <= time.Millisecond }
	switch lost := ours.Remaining - theirs.remaining; {
	case ours.Allowed != theirs.allowed:
		return "the decision"
	// A peer that denies a call for several units reports 0 remaining, so remaining is compared only
	// for allowed calls. Because of floating point, a peer can report one unit too few if a unit has
	// just become available.
	case ours.Allowed && lost != 0 && (lost != 1 || !atAnEdge(ours.ResetAfter, p.unit)):
		return "remaining"
	case !ours.Allowed && theirs.retry != client.Never && !same(ours.RetryAfter, theirs.retry):
		return "when to come back"
	case theirs.reset != client.Never && !same(ours.ResetAfter, theirs.reset):
		return "when it is full"
	}
	return ""
}

// TestPeersDifferAsThePageSays checks that the differences described in docs/coming-from.md exist.
func TestPeersDifferAsThePageSays(t *testing.T) {
	type step struct {
		at             time.Duration // since the start
		cost           int
		upTo           bool
		theirs, allows bool // whether the peer and our limit allow the call
	}
	upTo := func(rdb redis.UniversalClient) (asks, error) {
		return func(ctx context.Context, key string, cost int) (answer, error) {
			result, err := redis_rate.NewLimiter(rdb).AllowAtMost(ctx, key, redis_rate.Limit{Rate: 10, Period: time.Second, Burst: 20}, cost)
			return answer{allowed: err == nil && result.Allowed > 0}, err
		}, nil
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		rdb := newClient(t, b)
		limiter := newLimiter(t, rdb)
		for i, tt := range []struct {
			name  string
			limit client.Limit
			open  opens
			steps []step
		}{
			{"ulule/limiter counts what it denies", "fixed_window 20/m", openUlule("20-M"), []step{{cost: 21}, {cost: 1, allows: true}}},
			{"rate-limiter-flexible counts what it denies", "fixed_window 20/60s", openFlexible(20, 60), []step{{cost: 21}, {cost: 1, allows: true}}},
			{"redis_rate does not allow cost 0", "10/s burst=20", openRedisRateZero, []step{{allows: true}}},
			{"redis_rate takes a part of a unit", "10/s burst=20", upTo, []step{{cost: 20, upTo: true, theirs: true, allows: true},
				{at: 250 * time.Millisecond, cost: 5, upTo: true, theirs: true, allows: true}, {at: 310 * time.Millisecond, cost: 1, upTo: true, allows: true}}},
			// The 19 units are available only after 1.9 s.
			{"throttled forgets up to a second early", "10/s burst=20", openThrottled(throttled.RateQuota{MaxRate: throttled.PerSec(10), MaxBurst: 19}),
				[]step{{cost: 19, theirs: true, allows: true}, {at: 1100 * time.Millisecond, cost: 20, theirs: true}}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				ask := must[asks](t)(tt.open(rdb))
				key, start := "differ:"+string(rune('a'+i)), time.Now()
				for n, s := range tt.steps {
					require(t, b.SetTime(start.Add(s.at).UnixMicro()))
					theirs := must[answer](t)(ask(ctx, key, s.cost))
					ours := must[client.Result](t)(limiter.Take(ctx, client.Request{Keys: []string{key}, Limits: []client.Limit{tt.limit}, Costs: []int64{int64(s.cost)}, UpTo: s.upTo}))
					if theirs.allowed != s.theirs || ours.Allowed != s.allows {
						t.Errorf("step %d: theirs %t, ours %t; want %t and %t", n+1, theirs.allowed, ours.Allowed, s.theirs, s.allows)
					}
				}
			})
		}
		theirs, err := redis_rate.NewLimiter(rdb).AllowN(ctx, "differ:big", redis_rate.PerMinute(10), 11)
		if err != nil || theirs.RetryAfter <= 0 {
			t.Errorf("redis_rate, a cost above the capacity: %+v, %v; want a time to come back", theirs, err)
		}
		ours, err := limiter.AllowN(ctx, "differ:big:ours", "10/m", 11)
		if err != nil || ours.RetryAfter != client.Never {
			t.Errorf("ours, a cost above the capacity: %+v, %v; want never", ours, err)
		}
	}, standalone, withClock)
}

func openRedisRateZero(rdb redis.UniversalClient) (asks, error) {
	return func(ctx context.Context, key string, cost int) (answer, error) {
		result, err := redis_rate.NewLimiter(rdb).AllowN(ctx, key, redis_rate.PerMinute(10), cost)
		return answer{allowed: err == nil && result.Allowed > 0}, err
	}, nil
}
