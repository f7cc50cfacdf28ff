package scan

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// many starts a server with enough keys for ten steps of a scan. Half of the keys are hashes.
func many(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Run(t).Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	pipe := rdb.Pipeline()
	for i := range 5 * Step {
		pipe.HSet(t.Context(), fmt.Sprint("hash", i), "a", 1)
		pipe.Set(t.Context(), fmt.Sprint("string", i), "a", 0)
	}
	redistest.Must[[]redis.Cmder](t)(pipe.Exec(t.Context()))
	return rdb
}

// TestKeys checks that a scan reads every key of the given type that matches. After each step but
// the last, the scan must pause. The time of network round trips must not make a pause longer.
func TestKeys(t *testing.T) {
	rdb := many(t)
	for _, tt := range []struct {
		match, of string
		want      int
	}{{"", "", 10 * Step}, {"", "hash", 5 * Step}, {"string1*", "", 111}, {"string1*", "hash", 0}} {
		read, steps, pauses := map[string]bool{}, 0, 0
		k := &Keys{Match: tt.match, Type: tt.of}
		k.Read = func(_ context.Context, _ *redis.Client, now time.Time, keys []string) (int, error) {
			if steps++; time.Since(now).Abs() > time.Minute {
				t.Errorf("the server's time is %v", now)
			}
			for _, key := range keys {
				read[key] = true
			}
			return 1 << 20, nil // so many round trips that they would take longer than the step
		}
		k.Wait = func(_ context.Context, d time.Duration) error {
			if pauses++; d != least {
				t.Errorf("a pause of %v", d)
			}
			return nil
		}
		redistest.Require(t, k.Run(t.Context(), rdb))
		if got := k.Progress(); len(read) != tt.want || pauses != steps-1 || got != (Progress{10 * Step, 10 * Step, true}) {
			t.Errorf("%q of type %q: %d keys in %d steps with %d pauses, %+v", tt.match, tt.of, len(read), steps, pauses, got)
		}
	}
}

// TestEndsEarly checks that a scan is incomplete if it is interrupted or if Read returns an error.
func TestEndsEarly(t *testing.T) {
	rdb := many(t)
	k := &Keys{Read: func(context.Context, *redis.Client, time.Time, []string) (int, error) { return 0, nil }}
	ctx, stop := context.WithCancel(t.Context())
	k.Wait = func(ctx context.Context, d time.Duration) error {
		stop()
		return sleep.For(ctx, time.Hour)
	}
	var node *NodeError
	if err := k.Run(ctx, rdb); !errors.Is(err, context.Canceled) || !errors.As(err, &node) || node.Addr != rdb.Options().Addr {
		t.Errorf("interrupted: %v", err)
	}
	if got := k.Progress(); got.Complete || got.Looked < Step || got.Looked == got.Keys {
		t.Errorf("interrupted: %+v", got)
	}
	broken := errors.New("broken")
	k = &Keys{Read: func(context.Context, *redis.Client, time.Time, []string) (int, error) { return 0, broken }}
	if err := k.Run(t.Context(), rdb); !errors.Is(err, broken) || k.Progress().Complete {
		t.Errorf("%v, %+v", err, k.Progress())
	}
}

// TestPause checks that the pause after a step is long enough for a scan to use at most 5% of a
// server's time (Share).
func TestPause(t *testing.T) {
	for _, tt := range []struct{ took, way, want time.Duration }{
		{time.Millisecond, 0, 19 * time.Millisecond}, {21 * time.Millisecond, 20 * time.Millisecond, 19 * time.Millisecond},
		{100 * time.Microsecond, 0, least}, {time.Millisecond, 2 * time.Millisecond, least},
	} {
		if got := pauseAfter(tt.took, tt.way); (got - tt.want).Abs() > time.Microsecond {
			t.Errorf("pauseAfter(%v, %v) = %v, want %v", tt.took, tt.way, got, tt.want)
		}
	}
}
