package integration_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/lua_test/worst"
)

// memoryField returns a numeric field of INFO memory.
func memoryField(t testing.TB, rdb redis.UniversalClient, name string) int64 {
	t.Helper()
	text := must[string](t)(rdb.Info(context.Background(), "memory").Result())
	_, after, _ := strings.Cut(text, "\n"+name+":")
	line, _, _ := strings.Cut(after, "\r")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatalf("%s in INFO memory: %v", name, err)
	}
	return n
}

// luaMemory returns the size of the Lua state of the server's functions, in bytes.
func luaMemory(t testing.TB, rdb redis.UniversalClient) int64 {
	t.Helper()
	return memoryField(t, rdb, "used_memory_vm_functions")
}

// falls checks that the Lua state shrinks to at most the given number of bytes. It makes up to 8000
// calls, during which the garbage collector runs.
func falls(t testing.TB, rdb redis.UniversalClient, most int64) {
	t.Helper()
	least := luaMemory(t, rdb)
	defer func() { t.Logf("the Lua state has at least %d bytes, at most %d are expected", least, most) }()
	for range 400 {
		if least <= most {
			return
		}
		must[[]redis.Cmder](t)(rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for range 20 {
				p.FCallRO(context.Background(), "ratelimit_info", nil)
			}
			return nil
		}))
		least = min(least, luaMemory(t, rdb))
	}
	t.Errorf("the Lua state has at least %d bytes during 8000 calls, want %d", least, most)
}

// TestLuaStateStaysSmall checks that the library needs little memory in the Lua state, because the
// garbage collector traverses this memory during calls. It also checks that large calls do not
// leave memory in use.
func TestLuaStateStaysSmall(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		c := newClient(t, b, func(o *redis.UniversalOptions) { // long enough for a million limits, even on a busy machine
			o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute
		})
		empty := luaMemory(t, c)
		loadLibrary(ctx, t, b)
		falls(t, c, empty+400<<10)
		for i := 0; i < 1000; i += 100 {
			must[[]redis.Cmder](t)(c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for n := i; n < i+100; n++ {
					for _, limit := range []string{"100/h", "7/s, 100/h", "token_bucket 5/s", "fixed_window 5/s", "sliding_window 5/s buckets=5", "sliding_log 5/s"} {
						p.FCall(ctx, "ratelimit_take", []string{fmt.Sprint("state:", n)}, limit)
					}
				}
				return nil
			}))
		}
		falls(t, c, empty+420<<10)

		// A call with a million limits is rejected.
		args := make([]any, 1_000_000)
		for i := range args {
			args[i] = "3/m"
		}
		if err := c.FCall(ctx, "ratelimit_take", []string{"state:0"}, args...).Err(); err == nil || !strings.HasPrefix(err.Error(), "RATELIMIT ") {
			t.Fatalf("a million limits: %v", err)
		}
		falls(t, c, empty+420<<10)

		// The number of cached limits is bounded, even for limits with many rates.
		for _, rates := range []int{1, 16} {
			for i := 0; i < 15000; i += 500 {
				must[[]redis.Cmder](t)(c.Pipelined(ctx, func(p redis.Pipeliner) error {
					for n := i + 1; n <= i+500; n++ {
						limit := fmt.Sprintf("%d/h burst=%d", n, n)
						p.FCallRO(ctx, "ratelimit_peek", []string{"state:1"}, strings.Repeat(limit+", ", rates-1)+limit)
					}
					return nil
				}))
			}
			falls(t, c, empty+20<<20)
		}
	}, standalone)
}

// TestResetFreesInTheBackground checks that after a reset the server frees large sets of leases in
// the background and not during the call.
func TestResetFreesInTheBackground(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		c := newClient(t, b)
		keys := worst.Keys(3)
		for _, key := range keys {
			for i := range 200 {
				require(t, c.FCall(ctx, "ratelimit_acquire", []string{key}, "concurrency 5000 lease=1h", fmt.Sprint("a lease with a name of more than 64 bytes, so that the set is not a list ", i)).Err())
			}
		}
		before := memoryField(t, c, "lazyfreed_objects")
		if n, err := c.FCall(ctx, "ratelimit_reset", keys).Int(); n != len(keys) || err != nil {
			t.Fatalf("reset: %d, %v", n, err)
		}
		waitFor(ctx, t, "the sets to be freed", func() error {
			if freed := memoryField(t, c, "lazyfreed_objects") - before; freed < int64(len(keys)) {
				return fmt.Errorf("%d objects were freed in the background, want %d", freed, len(keys))
			}
			return nil
		})
	}, standalone)
}
