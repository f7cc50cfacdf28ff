package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestErrorsOfBadCalls checks that the client knows the errors that servers send for calls of a wrong
// form: the call was not executed.
func TestErrorsOfBadCalls(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		for _, tt := range []struct {
			words []any
			class error
		}{
			{[]any{"FCALL", "ratelimit_take"}, client.ErrMisconfigured},
			{[]any{"FCALL", "ratelimit_take", "x", "k", "5/m"}, client.ErrMisconfigured},
			{[]any{"FCALL", "ratelimit_take", "3", "k", "5/m"}, client.ErrMisconfigured},
			{[]any{"FCALL", "ratelimit_take", "-1", "k", "5/m"}, client.ErrMisconfigured},
			{[]any{"FCALL_RO", "ratelimit_take", "1", "k", "5/m"}, client.ErrNotDeployed},
			{[]any{"FCALL", "ratelimit_other", "1", "k", "5/m"}, client.ErrNotDeployed},
		} {
			node := nodeOfVectors(ctx, t, b)
			rdb := redis.NewClient(&redis.Options{Addr: node.Options().Addr, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = rdb.Close() })
			rdb.AddHook(sendsInstead(tt.words))
			c := newLimiter(t, rdb)
			_, err := c.Allow(ctx, "k", "5/m")
			if !errors.Is(err, tt.class) || errors.Is(err, client.ErrOutcomeUnknown) {
				t.Errorf("%v: %v, want %v", tt.words, err, tt.class)
			}
		}
	})
}

// codeOf returns the Code of an error of the client, or "".
func codeOf(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Code
	}
	return ""
}

// sendsInstead sends a command instead of FCALL.
type sendsInstead []any

func (s sendsInstead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s sendsInstead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "fcall" {
			return next(ctx, cmd)
		}
		err := next(ctx, redis.NewCmd(ctx, s...))
		cmd.SetErr(err)
		return err
	}
}

func (s sendsInstead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
