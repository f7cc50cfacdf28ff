package client_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

func TestReserve(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		r := must[*client.Reservation](t)(c.ReserveN(ctx, "k", "3/m", 2))
		if !r.OK() || r.Delay() != 0 || left(t, c, "k", "3/m") != 1 {
			t.Errorf("%+v, %v, %d are left", r.Result(), r.Delay(), left(t, c, "k", "3/m"))
		}
		denied := must[*client.Reservation](t)(c.ReserveN(ctx, "k", "3/m", 2))
		if denied.OK() || denied.Delay() != math.MaxInt64 || denied.Result().RetryAfter != 20*time.Second {
			t.Errorf("%+v, %v", denied.Result(), denied.Delay())
		}
		if err := denied.Cancel(ctx); err != nil || v.seen("refund") != 0 {
			t.Errorf("what was denied was given back: %v", err)
		}
		// Many goroutines cancel at the same time, and the units are given back once.
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { check(t, r.Cancel(ctx)) })
		}
		all.Wait()
		if left(t, c, "k", "3/m") != 3 || v.seen("refund") != 1 {
			t.Errorf("%d are left after %d refunds, want 3 after one", left(t, c, "k", "3/m"), v.seen("refund"))
		}
		none := must[*client.Reservation](t)(c.ReserveN(ctx, "k", "3/m", 0))
		if err := none.Cancel(ctx); err != nil || !none.OK() || v.seen("refund") != 1 {
			t.Errorf("no units: %v, %v", none.OK(), err)
		}
		if r, err := c.ReserveN(ctx, "k", "3/m", -1); r != nil || !errors.Is(err, client.ErrBadCost) {
			t.Errorf("%v, %v", r, err)
		}
	})
}

// For a leaky_bucket, Delay is the time until the turn. A turn that has come is not given back.
func TestReserveATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		const limit = "leaky_bucket 1/s burst=5"
		var turns [4]*client.Reservation
		for i := range turns {
			turns[i] = must[*client.Reservation](t)(c.Reserve(ctx, "k", limit))
			if want := time.Duration(i) * time.Second; !turns[i].OK() || turns[i].Delay() != want {
				t.Errorf("%d: %v, want %v", i, turns[i].Delay(), want)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		if got := turns[2].Delay(); got != time.Second/2 {
			t.Errorf("%v, want 0.5 s", got)
		}
		if err := turns[1].Cancel(ctx); err != nil || turns[1].Delay() != 0 || v.seen("refund") != 0 {
			t.Errorf("%v: a turn that had come was given back", err)
		}
		if err := turns[3].Cancel(ctx); err != nil || v.seen("refund") != 1 {
			t.Error(err)
		}
		if next := must[*client.Reservation](t)(c.Reserve(ctx, "k", limit)); next.Delay() != 1500*time.Millisecond {
			t.Errorf("%v, want the turn that was given back", next.Delay())
		}
	})
}

// A failed Cancel can be repeated if no units were given back, but not if units may have been given
// back.
func TestCancelFails(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		for _, tt := range []struct {
			name          string
			before, after error
			class         error
			refunds       int
			left          int64
		}{
			{"not executed", answered("LOADING"), nil, client.ErrUnavailable, 2, 3},
			{"reply lost", nil, context.DeadlineExceeded, client.ErrOutcomeUnknown, 1, 3},
		} {
			must[int64](t)(c.Reset(ctx, "k"))
			r := must[*client.Reservation](t)(c.Reserve(ctx, "k", "3/m"))
			v.calls["refund"] = 0
			v.refuse = func(function string, n int) (error, error) {
				if function == "refund" && n == 1 {
					return tt.before, tt.after
				}
				return nil, nil
			}
			if err := r.Cancel(ctx); !errors.Is(err, tt.class) {
				t.Errorf("%s: %v", tt.name, err)
			}
			for range 2 {
				if err := r.Cancel(ctx); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			if n := left(t, c, "k", "3/m"); n != tt.left || v.seen("refund") != tt.refunds {
				t.Errorf("%s: %d are left after %d refunds, want %d after %d", tt.name, n, v.seen("refund"), tt.left, tt.refunds)
			}
		}

		must[int64](t)(c.Reset(ctx, "k"))
		r := must[*client.Reservation](t)(c.ReserveN(ctx, "k", "3/h", 3))
		require(t, c.Block(ctx, time.Minute, "k"))
		err := r.Cancel(ctx)
		var e *client.LimitedError
		if !errors.As(err, &e) || e.Key != "rl:k" || e.RetryAfter != time.Minute || !strings.Contains(err.Error(), `3 of "3/h" could not be given back, since the key is blocked for 1m0s; try again then`) {
			t.Error(err)
		}
		must[int64](t)(c.Unblock(ctx, "k"))
		if err := r.Cancel(ctx); err != nil || left(t, c, "k", "3/h") != 3 {
			t.Errorf("after the block: %v", err)
		}
	})
}

// Units that were not charged on a server are not given back.
func TestCancelWithoutADecision(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		v.refuse = func(function string, _ int) (error, error) {
			if function == "take" {
				return answered("LOADING"), nil
			}
			return nil, nil
		}
		c := v.client(t, client.WithFallback(client.FailOpen))
		r := must[*client.Reservation](t)(c.Reserve(t.Context(), "k", "3/m"))
		if err := r.Cancel(t.Context()); err != nil || !r.OK() || v.seen("refund") != 0 {
			t.Errorf("%v, %v, %d refunds", r.OK(), err, v.seen("refund"))
		}
	})
}

// Waiting callers are served in order and not too early, even if the client has batches and
// remembers denials.
func TestWaitWithBatchesAndMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		c := v.client(t, client.WithBatches(10, 100*time.Millisecond), client.WithDenialMemory(time.Second))
		inLine(t, 100, func(int) error { return c.Wait(t.Context(), "k", "10/s burst=40") },
			func(i int) time.Duration { return max(0, time.Duration(i-39)*100*time.Millisecond) }, time.Second)
	})
}
