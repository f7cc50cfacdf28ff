package integration_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// The functions of these types contain the Go code of docs/coming-from.md: calls to another
// limiter, and the calls to this project's client that replace them.
type (
	before func(ctx context.Context, rdb redis.UniversalClient) (bool, error)
	after  func(ctx context.Context, limiter *client.Client) (bool, error)
)

func beforeRedisRate(ctx context.Context, rdb redis.UniversalClient) (bool, error) {
	limiter := redis_rate.NewLimiter(rdb)
	result, err := limiter.Allow(ctx, "user:42", redis_rate.PerMinute(10))
	allowed := err == nil && result.Allowed == 1
	return allowed, err
}

func afterRedisRate(ctx context.Context, limiter *client.Client) (bool, error) {
	result, err := limiter.Allow(ctx, "user:42", "10/m")
	allowed := err == nil && result.Allowed
	return allowed, err
}

func beforeThrottled(ctx context.Context, rdb redis.UniversalClient) (bool, error) {
	store, err := throttledredis.NewCtx(rdb, "throttled:")
	if err != nil {
		return false, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(10), MaxBurst: 4})
	if err != nil {
		return false, err
	}
	limited, _, err := limiter.RateLimitCtx(ctx, "user:42", 1)
	return !limited, err
}

func afterThrottled(ctx context.Context, limiter *client.Client) (bool, error) {
	result, err := limiter.Allow(ctx, "user:42", "10/m burst=5")
	return result.Allowed, err
}

func beforeUlule(ctx context.Context, rdb redis.UniversalClient) (bool, error) {
	store, err := ululeredis.NewStore(rdb)
	if err != nil {
		return false, err
	}
	rate, err := ulule.NewRateFromFormatted("10-M")
	if err != nil {
		return false, err
	}
	result, err := ulule.New(store, rate).Get(ctx, "user:42")
	return !result.Reached, err
}

func afterUlule(ctx context.Context, limiter *client.Client) (bool, error) {
	result, err := limiter.Allow(ctx, "user:42", "fixed_window 10/m")
	return result.Allowed, err
}

func TestBeforeAndAfter(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		rdb := newClient(t, b)
		limiter := newLimiter(t, rdb)
		for _, tt := range []struct {
			name   string
			before before
			after  after
			let    int
		}{
			{"redis_rate", beforeRedisRate, afterRedisRate, 10},
			{"throttled", beforeThrottled, afterThrottled, 5},
			{"ulule/limiter", beforeUlule, afterUlule, 10},
		} {
			require(t, b.FlushAll(ctx))
			for i := range tt.let + 2 {
				was, err := tt.before(ctx, rdb)
				if err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				is, err := tt.after(ctx, limiter)
				if err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				if want := i < tt.let; was != want || is != want {
					t.Errorf("%s, call %d: allowed %t before and %t after, want %t", tt.name, i+1, was, is, want)
				}
			}
		}
	}, standalone)
}

// TestTheGoOfComingFromIsTested checks that every block of Go code in docs/coming-from.md is part
// of a test, so that the code compiles and does what the page says.
func TestTheGoOfComingFromIsTested(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\t+`)
	var code string
	for _, name := range []string{"before_after_test.go", "moving_test.go"} {
		text := must[[]byte](t)(os.ReadFile(name))
		code += indent.ReplaceAllString(string(text), "")
	}
	page := must[[]byte](t)(os.ReadFile("../docs/coming-from.md"))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 7 {
		t.Errorf("%d blocks, want three before and after, and the move", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code, indent.ReplaceAllString(block[1], "")) {
			t.Errorf("in no test:\n%s", block[1])
		}
	}
}
