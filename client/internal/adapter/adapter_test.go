package adapter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// beforeBlock is a hook that runs before each block is sent.
type beforeBlock func()

func (beforeBlock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (beforeBlock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b beforeBlock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == "ratelimit_block" {
			b()
		}
		return next(ctx, cmd)
	}
}

// If two callers block a key at the same time, in any order, the longest block applies.
func TestBlockShortensNothing(t *testing.T) {
	for _, tt := range []struct{ other, own, want time.Duration }{
		{5 * time.Minute, time.Second, 5 * time.Minute},
		{time.Second, 5 * time.Minute, 5 * time.Minute},
		{time.Minute, time.Minute, time.Minute},
		{time.Minute, 0, 0}, // nothing is sent
	} {
		server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)))
		connect := func(hooks ...redis.Hook) *client.Client {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			for _, hook := range hooks {
				rdb.AddHook(hook)
			}
			limiter, err := client.New(rdb, client.WithTimeout(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			return limiter
		}
		other := connect()
		limiter := connect(beforeBlock(func() { // after anything that limiter could have checked
			if err := other.Block(t.Context(), tt.other, "k"); err != nil {
				t.Error(err)
			}
		}))
		if err := adapter.Block(t.Context(), limiter, tt.own, []string{"k"}); err != nil {
			t.Error(err)
		}
		if got, err := other.PeekN(t.Context(), "k", "1/s", 0); err != nil || got.RetryAfter != tt.want {
			t.Errorf("blocked for %v by another and for %v: %+v, %v; want %v", tt.other, tt.own, got, err, tt.want)
		}
	}
}

// A wait that is over when the context ends returns the context's error.
func TestSleepInAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 { // a select takes either case if both are ready
		if err := adapter.Sleep(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Fatalf("Sleep returned %v, want %v", err, context.Canceled)
		}
	}
}
