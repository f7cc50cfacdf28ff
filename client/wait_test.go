package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// served is who was served, and how long after the beginning.
type served struct {
	mu    sync.Mutex
	who   []int
	after []time.Duration
}

func (s *served) add(who int, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.who, s.after = append(s.who, who), append(s.after, time.Since(began))
}

// A hundred callers that wait for one key are served in the order in which they came, each as soon as the limit allows and
// none earlier, and the server is asked twice for each at most.
func TestWaitInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const n = 100
		var got served
		var all sync.WaitGroup
		began := time.Now()
		for i := range n {
			all.Go(func() {
				if err := c.Wait(t.Context(), "k", "10/s burst=5"); err != nil {
					t.Error(err)
				}
				got.add(i, began)
			})
			synctest.Wait() // it stands in the queue, or is through
		}
		all.Wait()
		for i := range n {
			want := max(0, time.Duration(i-4)*100*time.Millisecond)
			if got.who[i] != i || got.after[i] != want {
				t.Fatalf("caller %d was served as number %d after %v, want number %d after %v", got.who[i], i, got.after[i], i, want)
			}
		}
		if takes := v.seen("take"); takes > 2*n {
			t.Errorf("%d takes for %d callers", takes, n)
		}
		if n := client.Waiting(c); n != 0 {
			t.Errorf("%d queues are left", n)
		}
	})
}

// Where much is left the queue does not empty one at a round trip, and where little is left the server is not asked in vain.
func TestWaitTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.delay = 10 * time.Millisecond
		for _, tt := range []struct {
			limit  client.Limit
			crowd  int
			within time.Duration
		}{
			// 1 alone, 63 by 16, a round trip each.
			{"64/m", 16, 50 * time.Millisecond},
			// 1 alone, 3 together, then one in 10 s, each denied once before.
			{"4/40s", 3, 60*10*time.Second + 30*time.Millisecond},
		} {
			v.inCrowd, v.calls["take"] = 0, 0
			began := time.Now()
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					if err := c.Wait(t.Context(), "k", tt.limit); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); v.inCrowd != tt.crowd || took > tt.within || v.calls["take"] > 2*64 {
				t.Errorf("%s: %d asked together, %d times in all, for %v; want %d, %v at most", tt.limit, v.inCrowd, v.calls["take"], took, tt.crowd, tt.within)
			}
			must[int64](t)(c.Reset(t.Context(), "k"))
		}
	})
}

// Who waits for much is not overtaken by those behind it that want little.
func TestWaitForMuch(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		ctx, began := t.Context(), time.Now()
		must[client.Result](t)(c.AllowN(ctx, "k", "10/s", 8)) // 2 are left
		var got served
		var all sync.WaitGroup
		for i, n := range []int64{1, 10, 1, 0} {
			all.Go(func() {
				if err := c.WaitN(ctx, "k", "10/s", n); err != nil {
					t.Error(err)
				}
				got.add(i, began)
			})
			synctest.Wait()
		}
		all.Wait()
		want := []time.Duration{0, 900 * time.Millisecond, time.Second, time.Second}
		if !slices.Equal(got.who, []int{0, 1, 2, 3}) || !slices.Equal(got.after, want) {
			t.Errorf("%v were served after %v, want in order after %v", got.who, got.after, want)
		}
	})
}

// Where other processes wait for the same key, each unit is given once, none is lost for long, and the number of calls does
// not grow with the square of the processes.
func TestWaitAmongProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		const processes, each = 50, 4
		var got served
		var all sync.WaitGroup
		began := time.Now()
		for p := range processes {
			c := must[*client.Client](t)(client.New(v, client.WithPrefix("rl:")))
			client.Trust(c)
			defer func() { _ = c.Close() }()
			for range each {
				all.Go(func() {
					if err := c.Wait(t.Context(), "k", "10/s burst=1"); err != nil {
						t.Error(err)
					}
					got.add(p, began)
				})
			}
		}
		all.Wait()
		for i, after := range got.after {
			if least := time.Duration(i) * 100 * time.Millisecond; after < least {
				t.Fatalf("unit %d was given after %v, want %v at least", i, after, least)
			}
		}
		// Each process asking at each unit would be 50 calls a unit at first, some 5000 in all.
		if took, takes := time.Since(began), v.seen("take"); took > 30*time.Second || takes > 3000 {
			t.Errorf("%d calls and %v for %d units", takes, took, processes*each)
		}
	})
}

func TestWaitRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		must[client.Result](t)(c.AllowN(ctx, "k", "3/m", 2))
		must[client.Result](t)(c.AllowN(ctx, "queue", "leaky_bucket 3/m", 2))
		if err := c.Block(ctx, time.Hour, "blocked"); err != nil {
			t.Fatal(err)
		}
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
				`ratelimit: "rl:k": 2 of "3/m" would have to be waited for, 20s at least; nothing was taken, come back then or allow more time (context deadline exceeded)`},
			{"never", "k", "3/m", 4, time.Hour, client.Never, nil,
				`ratelimit: "rl:k": 4 of "3/m" is more than the limit ever holds; ask for less at once, or raise its burst`},
			{"blocked", "blocked", "3/m", 1, 59 * time.Minute, time.Hour, context.DeadlineExceeded, "1h0m0s at least"},
			{"blocked, of no units", "blocked", "3/m", 0, 59 * time.Minute, time.Hour, context.DeadlineExceeded, "1h0m0s at least"},
			{"leaky_bucket that is full", "queue", "leaky_bucket 3/m", 2, 19 * time.Second, 20 * time.Second, context.DeadlineExceeded, "20s at least"},
			{"leaky_bucket whose turn is late", "queue", "leaky_bucket 3/m", 1, 39 * time.Second, 40 * time.Second, context.DeadlineExceeded, "40s at least; nothing was taken"},
		} {
			before := must[client.Result](t)(c.PeekN(ctx, tt.key, tt.limit, 0))
			limited, cancel := context.WithTimeout(ctx, tt.within)
			began := time.Now()
			err := c.WaitN(limited, tt.key, tt.limit, tt.n)
			var e *client.LimitedError
			if !errors.As(err, &e) || e.Key != "rl:"+tt.key || e.RetryAfter != tt.wait || !errors.Is(err, tt.cause) && tt.cause != nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %#v: %v", tt.name, err, err)
			}
			if after := must[client.Result](t)(c.PeekN(ctx, tt.key, tt.limit, 0)); after != before || time.Since(began) != 0 {
				t.Errorf("%s: %+v are left after %v, want %+v at once", tt.name, after, time.Since(began), before)
			}
			cancel()
		}
		takes := v.seen("take")
		wantClasses(t, "negative", c.WaitN(ctx, "k", "3/m", -1), client.ErrBadCost)
		wantClasses(t, "no limit", c.Wait(ctx, "k", ""), client.ErrBadLimit)
		wantClasses(t, "no key", c.Wait(ctx, "", "3/m"), client.ErrBadKeys)
		if v.seen("take") != takes {
			t.Error("bad input was sent")
		}
		wantClasses(t, "limit", c.Wait(ctx, "k", "3/fortnight"), client.ErrBadLimit)
	})
}

// The end of a block is waited for, and a block that is lifted does not shorten that by itself.
func TestWaitForABlock(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		if err := c.Block(t.Context(), time.Minute, "k"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Wait(t.Context(), "k", "3/m"); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Those in the queue who cannot wait as long as the first are refused as soon as that is known, and who comes then at
// once, without asking.
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
				errs[i] = c.Wait(ctx, "k", "1/m")
				took[i] = time.Since(began)
			})
			synctest.Wait()
		}
		wait(0, long)
		wait(1, short) // the first has asked, and has no reply yet
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
			var e *client.LimitedError
			if !errors.As(errs[i], &e) || !errors.Is(errs[i], want.err) || took[i] != want.took || e.RetryAfter > time.Minute || e.RetryAfter < 58*time.Second {
				t.Errorf("%d: %v after %v, want %v after %v", i, errs[i], took[i], want.err, want.took)
			}
		}
		if takes != 2 {
			t.Errorf("%d takes, want 2: one before, and that of the first in the queue", takes)
		}
		if n := client.Waiting(c); n != 0 {
			t.Errorf("%d queues are left", n)
		}
		// Nobody holds up who comes next.
		time.Sleep(time.Minute)
		if err := c.Wait(t.Context(), "k", "1/m"); err != nil {
			t.Error(err)
		}
	})
}

// Who wants more than the limit holds is refused as soon as the limit is known, not when it would be its turn.
func TestWaitForTooMuchInTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const reply = 10 * time.Millisecond
		must[client.Result](t)(c.AllowN(t.Context(), "k", "3/m", 3))
		v.delay = reply
		began := time.Now()
		var all sync.WaitGroup
		wait := func(n int64, never bool, after time.Duration) {
			all.Go(func() {
				err := c.WaitN(t.Context(), "k", "3/m", n)
				var e *client.LimitedError
				refused := errors.As(err, &e) && e.RetryAfter == client.Never && e.Err == nil
				if took := time.Since(began); refused != never || !never && err != nil || took != after {
					t.Errorf("%d: %v after %v, want it after %v", n, err, took, after)
				}
			})
			synctest.Wait()
		}
		wait(1, false, 20*time.Second+2*reply)
		wait(4, true, reply) // the first has asked, and has no reply yet
		time.Sleep(time.Second)
		wait(4, true, time.Second)
		all.Wait()
	})
}

// Who leaves the queue does not stop those behind, wherever it stands; and it takes nothing.
func TestWaitersLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		began := time.Now()
		must[client.Result](t)(c.Allow(t.Context(), "k", "1/s"))
		leaving, cancel := context.WithCancel(t.Context())
		var got served
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				if i%3 != 0 {
					if err := c.Wait(leaving, "k", "1/s"); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				if err := c.Wait(t.Context(), "k", "1/s"); err != nil {
					t.Error(err)
				}
				got.add(i, began)
			})
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond) // the first is through, the second is one that leaves
		cancel()
		all.Wait()
		for i := range 10 {
			if want := time.Duration(i+1) * time.Second; got.who[i] != 3*i || got.after[i] != want {
				t.Errorf("%d was served after %v, want %d after %v", got.who[i], got.after[i], 3*i, want)
			}
		}
	})
}

func TestWaitEndsWithTheClient(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		must[client.Result](t)(c.Allow(t.Context(), "k", "1/d"))
		must[client.Result](t)(c.Allow(t.Context(), "queue", "leaky_bucket 2/d"))
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				key, limit := "k", client.Limit("1/d")
				if i == 3 {
					key, limit = "queue", "leaky_bucket 2/d"
				}
				err := c.Wait(t.Context(), key, limit)
				if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "the client is closed") {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		wantClasses(t, "after", c.Wait(t.Context(), "k", "1/d"), client.ErrUnavailable)
	})
}

// leaky_bucket admits with a turn, which is waited for, also by several at a time; who cannot wait on gives its place back.
func TestWaitForATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const limit = "leaky_bucket 1/s burst=3"
		began := time.Now()
		var got served
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				if err := c.Wait(t.Context(), "k", limit); err != nil {
					t.Error(err)
				}
				got.add(i, began)
			})
			synctest.Wait()
		}
		all.Wait()
		want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}
		if !slices.Equal(got.who, []int{0, 1, 2, 3, 4}) || !slices.Equal(got.after, want) {
			t.Errorf("%v had their turns after %v, want in order after %v", got.who, got.after, want)
		}

		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			err := c.Wait(ctx, "k", limit)
			var e *client.LimitedError
			if !errors.As(err, &e) || !errors.Is(err, context.Canceled) || e.RetryAfter != time.Second/2 {
				t.Error(err)
			}
		})
		time.Sleep(time.Second / 2)
		cancel()
		all.Wait()
		if left := must[client.Result](t)(c.PeekN(t.Context(), "k", limit, 0)); left.Remaining != 2 || v.seen("refund") != 1 {
			t.Errorf("%d are left after %d refunds, want 2 after one", left.Remaining, v.seen("refund"))
		}

		// What cannot be given back is said to be taken.
		v.refuse = func(function string, _ int) (error, error) {
			if function == "refund" {
				return answered("OOM command not allowed"), nil
			}
			return nil, nil
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		err := c.Wait(ctx, "k", limit)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "could not be given back") {
			t.Error(err)
		}
	})
}

// A lost reply is one unit at most, and the caller's to know; those behind go on.
func TestWaitLosesAReply(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.refuse = func(function string, n int) (error, error) {
			if function == "take" && n == 1 {
				return nil, context.DeadlineExceeded
			}
			return nil, nil
		}
		wantClasses(t, "lost", c.Wait(t.Context(), "k", "2/m"), client.ErrOutcomeUnknown, client.ErrUnavailable)
		if err := c.Wait(t.Context(), "k", "2/m"); err != nil || v.seen("take") != 2 {
			t.Errorf("%v after %d takes", err, v.seen("take"))
		}
		if left := must[client.Result](t)(c.PeekN(t.Context(), "k", "2/m", 0)).Remaining; left != 0 {
			t.Errorf("%d are left, want 0", left)
		}
	})
}

// Without a decision the fallback decides: to wait on for a server, or to go ahead.
func TestWaitWithoutADecision(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		v.refuse = func(_ string, n int) (error, error) {
			if n <= 3 {
				return answered("LOADING"), nil
			}
			return nil, nil
		}
		for _, tt := range []struct {
			fallback client.Fallback
			within   time.Duration
			took     time.Duration
			err      error
		}{
			{client.FailOpen, time.Minute, 0, nil},
			{client.ReturnError, time.Minute, 0, client.ErrUnavailable},
			{client.FailClosed, time.Second / 2, 0, client.ErrUnavailable},
		} {
			v.calls["take"] = 0
			c := must[*client.Client](t)(client.New(v, client.WithFallback(tt.fallback)))
			client.Trust(c)
			ctx, cancel := context.WithTimeout(t.Context(), tt.within)
			began := time.Now()
			if err := c.Wait(ctx, "k", "1/s"); !errors.Is(err, tt.err) || time.Since(began) != tt.took {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			cancel()
			_ = c.Close()
		}
		v.calls["take"] = 0
		c := must[*client.Client](t)(client.New(v, client.WithFallback(client.FailClosed)))
		client.Trust(c)
		began := time.Now()
		// A second, and then twice a second and what is added at random.
		if err := c.Wait(t.Context(), "k", "1/s"); err != nil || time.Since(began) < 3*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		_ = c.Close()
	})
}
