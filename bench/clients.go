package main

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/sharing"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// A clientContender is a limiter called through its own Go API, with its own connections. All
// contenders use go-redis with its default pool of ten connections per processor.
type clientContender struct {
	name    string
	inPlots string // short name for plots
	hotOnly bool   // only in the scenes with the hot key
	open    func(url string, w workload) (asker, error)
}

// An asker is a limiter that is ready for calls. Its function allow takes one unit from a key, and
// must be safe for concurrent use.
type asker struct {
	allow func(ctx context.Context, key string) (allowed bool, err error)
	close func() error

	// undecided reports whether an error means that the limiter gave up without a decision. The
	// benchmark permits this. A nil undecided means that the limiter never gives up.
	undecided func(error) bool
}

const (
	oursName    = "ratelimit"
	aloneName   = "ratelimit, each call by itself"
	batchesName = "ratelimit, batches"
	bareName    = "bare FCall"
)

var (
	redisRateName = "redis_rate " + moduleVersion("github.com/go-redis/redis_rate/v10")
	throttledName = "throttled " + moduleVersion("github.com/throttled/throttled/v2")
	ululeName     = "ulule/limiter " + moduleVersion("github.com/ulule/limiter/v3")
)

// clientContenders lists the contenders in the order of the report.
var clientContenders = []clientContender{
	{oursName, "ratelimit", false, openOurs()},
	{aloneName, "by itself", false, openAlone},
	{bareName, "bare FCall", false, plain(openBare)},
	{redisRateName, "redis_rate", false, plain(openRedisRate)},
	{throttledName, "throttled", false, plain(openThrottled)},
	{ululeName, "ulule/limiter", false, plain(openUlule)},
	{batchesName, "with batches", true, openOurs(client.WithBatches(1000, 100*time.Millisecond))},
}

// patience is the timeout of this project's client. It equals the default timeout of go-redis.
const patience = 3 * time.Second

func openOurs(options ...client.Option) func(string, workload) (asker, error) {
	return func(url string, w workload) (asker, error) {
		limiter, err := client.Open(url, append(options, client.WithTimeout(patience))...)
		if err != nil {
			return asker{}, err
		}
		limit := client.Limit(w.rate())
		return asker{close: limiter.Close, allow: func(ctx context.Context, key string) (bool, error) {
			result, err := limiter.Allow(ctx, key, limit)
			return result.Allowed, err
		}}, nil
	}
}

// openAlone is openOurs with a client whose calls never share round trips.
func openAlone(url string, w workload) (asker, error) {
	defer sharing.Above.Store(0)
	sharing.Above.Store(math.MaxInt64)
	return openOurs()(url, w)
}

// plain returns a function that opens a limiter on a go-redis client with default options.
func plain(open func(rdb *redis.Client, w workload) (asker, error)) func(string, workload) (asker, error) {
	return func(url string, w workload) (asker, error) {
		options, err := redis.ParseURL(url)
		if err != nil {
			return asker{}, err
		}
		rdb := redis.NewClient(options)
		a, err := open(rdb, w)
		a.close = rdb.Close
		return a, err
	}
}

// openBare returns an asker that makes the same call as this project's client, but reads only the
// first field of the reply.
func openBare(rdb *redis.Client, w workload) (asker, error) {
	limit := w.rate()
	return asker{allow: func(ctx context.Context, key string) (bool, error) {
		reply, err := rdb.FCall(ctx, "ratelimit_take", []string{key}, limit).Slice()
		if err != nil {
			return false, err
		}
		return reply[0] == int64(1), nil
	}}, nil
}

func openRedisRate(rdb *redis.Client, w workload) (asker, error) {
	limiter := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: int(w.count), Burst: int(w.count), Period: w.period}
	return asker{allow: func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		if err != nil {
			return false, err
		}
		return result.Allowed == 1, nil
	}}, nil
}

// openThrottled opens a limiter that computes GCRA in Go. The limiter reads the state, and writes
// the next state unless another caller has written in the meantime. It gives up after ten failed
// attempts.
func openThrottled(rdb *redis.Client, w workload) (asker, error) {
	store, err := throttledredis.NewCtx(rdb, "throttled:")
	if err != nil {
		return asker{}, err
	}
	rate := throttled.PerDuration(int(w.count), w.period)
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: rate, MaxBurst: int(w.count) - 1})
	if err != nil {
		return asker{}, err
	}
	return asker{
		allow: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
			return !limited, err
		},
		undecided: func(err error) bool {
			return strings.HasPrefix(err.Error(), "Failed to store updated rate limit data")
		},
	}, nil
}

func openUlule(rdb *redis.Client, w workload) (asker, error) {
	store, err := ululeredis.NewStore(rdb)
	if err != nil {
		return asker{}, err
	}
	limiter := ulule.New(store, ulule.Rate{Period: w.period, Limit: w.count})
	return asker{allow: func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Get(ctx, key)
		return !result.Reached, err
	}}, nil
}
