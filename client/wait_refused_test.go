package client_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

func TestWaitRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		must[client.Result](t)(c.AllowN(ctx, "k", "3/m", 2))
		must[client.Result](t)(c.AllowN(ctx, "queue", "leaky_bucket 3/m", 2))
		require(t, c.Block(ctx, client.Block{For: time.Hour}, "blocked"))
		for _, tt := range []struct {
			name, key string
			limit     client.Limit
			n         int64
			within    time.Duration
			wait      time.Duration
			cause     error
			text      string
		}{
			{"late", "k", "3/m", 2, 19 * time.Second, 20 * time.Second, context.DeadlineExceeded,
				`ratelimit: take "rl:k": 2 of "3/m" would have to be waited for, 20s at least; nothing was taken, come back then or allow more time (context deadline exceeded)`},
			{"never", "k", "3/m", 4, time.Hour, client.Never, nil,
				`ratelimit: take "rl:k": 4 of "3/m" is more than the limit ever holds; ask for less at once, or raise its burst`},
			{"blocked", "blocked", "3/m", 1, 59 * time.Minute, time.Hour, context.DeadlineExceeded, "1h0m0s at least"},
			{"blocked, of no units", "blocked", "3/m", 0, 59 * time.Minute, time.Hour, context.DeadlineExceeded, "1h0m0s at least"},
			{"leaky_bucket that is full", "queue", "leaky_bucket 3/m", 2, 19 * time.Second, 20 * time.Second, context.DeadlineExceeded, "20s at least"},
			{"leaky_bucket whose turn is late", "queue", "leaky_bucket 3/m", 1, 39 * time.Second, 40 * time.Second, context.DeadlineExceeded, "40s at least; nothing was taken"},
		} {
			before := must[client.Result](t)(c.Peek(ctx, client.For(tt.key, tt.limit, 0)))
			limited, cancel := context.WithTimeout(ctx, tt.within)
			began := time.Now()
			err := c.Wait(limited, client.For(tt.key, tt.limit, tt.n))
			var e *client.Error
			if !asLimited(err, &e) || e.Keys[0] != "rl:"+tt.key || e.RetryAfter != tt.wait || !errors.Is(err, tt.cause) && tt.cause != nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %#v: %v", tt.name, err, err)
			}
			if after := must[client.Result](t)(c.Peek(ctx, client.For(tt.key, tt.limit, 0))); !reflect.DeepEqual(after, before) || time.Since(began) != 0 {
				t.Errorf("%s: %+v are left after %v, want %+v at once", tt.name, after, time.Since(began), before)
			}
			cancel()
		}
		takes := v.seen("take")
		wantClasses(t, "negative", c.Wait(ctx, client.For("k", "3/m", -1)), typed("bad_cost"))
		wantClasses(t, "no limit", c.Wait(ctx, client.For("k", "")), typed("bad_limit"))
		wantClasses(t, "no key", c.Wait(ctx, client.For("", "3/m")), typed("bad_keys"))
		if v.seen("take") != takes {
			t.Error("bad input was sent")
		}
		wantClasses(t, "limit", c.Wait(ctx, client.For("k", "3/fortnight")), typed("bad_limit"))
	})
}

// When the first caller is denied, the client learns when units will be available. Callers
// already waiting behind it then fail if their deadline is before that time. New callers with such a
// deadline fail immediately, without a request.
func TestWaitRefusesInTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.delay = 10 * time.Millisecond
		must[client.Result](t)(c.Allow(t.Context(), "k", "1/m"))
		began := time.Now()
		long, cancel := context.WithCancel(t.Context())
		short, cancelShort := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancelShort()
		errs := make([]error, 4)
		took := make([]time.Duration, 4)
		var all sync.WaitGroup
		wait := func(i int, ctx context.Context) {
			all.Go(func() {
				errs[i] = c.Wait(ctx, client.For("k", "1/m"))
				took[i] = time.Since(began)
			})
			synctest.Wait()
		}
		wait(0, long)
		wait(1, short) // the first call is still waiting for its reply
		wait(2, long)
		time.Sleep(time.Second)
		wait(3, short)
		takes := v.seen("take")
		cancel()
		all.Wait()
		for i, want := range []struct {
			took time.Duration
			err  error
		}{{time.Second, context.Canceled}, {10 * time.Millisecond, context.DeadlineExceeded}, {time.Second, context.Canceled}, {time.Second, context.DeadlineExceeded}} {
			var e *client.Error
			if !errors.As(errs[i], &e) || !errors.Is(errs[i], want.err) || took[i] != want.took || e.RetryAfter > time.Minute || e.RetryAfter < 58*time.Second {
				t.Errorf("%d: %v after %v, want %v after %v", i, errs[i], took[i], want.err, want.took)
			}
		}
		if takes != 2 {
			t.Errorf("%d takes, want 2: one before, and that of the first in the queue", takes)
		}
		wantNoQueue(t, c)
		// A refused caller does not delay the next one.
		time.Sleep(time.Minute)
		check(t, c.Wait(t.Context(), client.For("k", "1/m")))
	})
}

// If several callers pause, a new caller is refused if its deadline is before the end of the longest
// pause.
func TestWaitBehindSeveralPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.delay = 10 * time.Millisecond
		other := v.client(t, client.WithPrefix("rl:"))
		var all sync.WaitGroup
		for _, n := range []int64{0, 5, 1} { // the reply to the first leaves 6, so the next two call together
			all.Go(func() { check(t, c.Wait(t.Context(), client.For("k", "6/m", n))) })
			synctest.Wait()
		}
		must[client.Result](t)(other.AllowN(t.Context(), "k", "6/m", 6))
		time.Sleep(time.Second)
		began, takes := time.Now(), v.seen("take")
		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var e *client.Error
		if err := c.Wait(short, client.For("k", "6/m")); !asLimited(err, &e) || e.RetryAfter < 48*time.Second || time.Since(began) != 0 || v.seen("take") != takes {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		all.Wait()
	})
}

// If the context of a caller ends while the first caller in the queue waits for its reply, nobody
// knows how long the wait would be. If the context ends while a reply arrives that grants the units,
// the caller has them.
func TestWaitEndsDuringACall(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.delay = 100 * time.Millisecond
		var all sync.WaitGroup
		all.Go(func() { check(t, c.Wait(t.Context(), client.For("k", "1/m"))) })
		synctest.Wait()
		limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantText(t, c.Wait(limited, client.For("k", "1/m")), `ratelimit: take "rl:k": it was not the turn of 1 of "1/m" in time; nothing was taken (context deadline exceeded)`)
		all.Wait()
	})
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, &fake{reply: integers(1, 1, 0, 0, 0, 1), after: func(int) { cancel() }})
	check(t, c.Wait(ctx, client.For("k", "1/m")))
	if ctx.Err() == nil {
		t.Error("no call was sent")
	}
}

// A caller that wants more units than the limit's capacity is refused as soon as the limit is
// known, not when its turn comes.
func TestWaitForTooMuchInTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const reply = 10 * time.Millisecond
		must[client.Result](t)(c.AllowN(t.Context(), "k", "3/m", 3))
		v.delay = reply
		began := time.Now()
		var all sync.WaitGroup
		wait := func(n int64, never bool, after time.Duration) {
			all.Go(func() {
				err := c.Wait(t.Context(), client.For("k", "3/m", n))
				var e *client.Error
				refused := asLimited(err, &e) && e.RetryAfter == client.Never && e.Err == nil
				if took := time.Since(began); refused != never || !never && err != nil || took != after {
					t.Errorf("%d: %v after %v, want it after %v", n, err, took, after)
				}
			})
			synctest.Wait()
		}
		wait(1, false, 20*time.Second+2*reply)
		wait(4, true, reply) // the first call is still waiting for its reply
		time.Sleep(time.Second)
		wait(4, true, time.Second)
		all.Wait()
	})
}

// A LocalFallback has only a share of the limit. A caller that needs more units than this share
// waits too, because the server may be back when its turn comes.
func TestWaitBehindALocalDenial(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		c := v.client(t, client.WithFallback(client.LocalFallback(0.1)))
		const limit = "10/m burst=100"
		must[client.Result](t)(c.Allow(t.Context(), "k", limit))
		synctest.Wait() // the client fetches the limit
		v.set(func() {
			v.refuse = func(string, int) (error, error) { return &net.OpError{Op: "dial", Err: errors.New("down")}, nil }
		})
		if res := must[client.Result](t)(c.AllowN(t.Context(), "k", limit, 10)); res.Source != "local" {
			t.Errorf("%+v", res)
		}
		var all sync.WaitGroup
		for _, n := range []int64{1, 50} {
			all.Go(func() {
				if err := c.Wait(t.Context(), client.For("k", limit, n)); err != nil {
					t.Errorf("%d: %v", n, err)
				}
			})
			synctest.Wait()
			v.set(func() { v.refuse = nil })
		}
		all.Wait()
	})
}

// A caller that needs more units than the share of a LocalFallback waits for the server. Only what is
// above the capacity of the whole limit is never allowed.
func TestWaitForMoreThanALocalShare(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		c := v.client(t, client.WithFallback(client.LocalFallback(0.1)))
		v.refuse = func(_ string, n int) (error, error) {
			if n <= 3 {
				return answered("LOADING"), nil
			}
			return nil, nil
		}
		began := time.Now()
		if err := c.Wait(t.Context(), client.For("k", "100/m", 50)); err != nil || time.Since(began) < 3*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("%v after %v, want the units soon after the server is back", err, time.Since(began))
		}
		v.calls["take"] = 0
		var e *client.Error
		if err := c.Wait(t.Context(), client.For("k", "100/m", 101)); !asLimited(err, &e) || e.RetryAfter != client.Never {
			t.Errorf("above the capacity: %v", err)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		v.calls["take"] = 0
		if err := c.Wait(limited, client.For("k", "100/m", 50)); !errors.As(err, &e) || e.RetryAfter != time.Second || !errors.Is(err, client.ErrUnavailable) || strings.Contains(err.Error(), "burst") {
			t.Errorf("before the server is back: %v", err)
		}
	})
}

// If the wait for a turn would be too long, Wait gives the turn back. The deadline also bounds the
// call that does this.
func TestWaitGivesBackByTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const limit, bound = "leaky_bucket 2/m", 100 * time.Millisecond
		must[client.Result](t)(c.Allow(t.Context(), "queue", limit))
		v.refuse = func(function string, _ int) (error, error) {
			if function == "refund" {
				v.delay = time.Hour
			}
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		began := time.Now()
		err := c.Wait(ctx, client.For("queue", limit))
		var e *client.Error
		if took := time.Since(began); took != bound || !asLimited(err, &e) || !errors.Is(err, client.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "could not be given back") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestWaitEndsWithTheClient(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		must[client.Result](t)(c.Allow(t.Context(), "k", "1/d"))
		must[client.Result](t)(c.Allow(t.Context(), "queue", "leaky_bucket 2/d"))
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				key, limit := "k", client.Limit("1/d")
				if i == 3 {
					key, limit = "queue", "leaky_bucket 2/d"
				}
				err := c.Wait(t.Context(), client.For(key, limit))
				var refused *client.Error
				if !errors.Is(err, client.ErrUnavailable) || asLimited(err, &refused) || !strings.Contains(err.Error(), "the client is closed") {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		check(t, c.Close())
		// The turn in the queue has been given back.
		if n := left(t, v.client(t, client.WithPrefix("rl:")), "queue", "leaky_bucket 2/d"); n != 1 {
			t.Errorf("%d units are left, want 1", n)
		}
		all.Wait()
		wantClasses(t, "after", c.Wait(t.Context(), client.For("k", "1/d")), client.ErrUnavailable)
	})
}

// Close also waits for a call that is about to get a turn, because the turn is then given back.
func TestCloseWaitsForTurnsInProgress(t *testing.T) {
	const limit = client.Limit("leaky_bucket 2/d")
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		must[client.Result](t)(c.Allow(t.Context(), "queue", limit))
		v.set(func() { v.delay = 50 * time.Millisecond })
		var all sync.WaitGroup
		all.Go(func() {
			wantClasses(t, "closed", c.Wait(t.Context(), client.For("queue", limit)), client.ErrUnavailable)
		})
		synctest.Wait()
		check(t, c.Close())
		if n := left(t, v.client(t, client.WithPrefix("rl:")), "queue", limit); n != 1 {
			t.Errorf("%d units are left, want 1", n)
		}
		all.Wait()
	})
}
