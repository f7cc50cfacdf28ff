package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// served records the order in which callers were served, and the time from the start until each was
// served.
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

// inLine starts n callers, one after another. It checks that they are served in this order, each no
// earlier than the time that want returns. late is the longest allowed delay after that time.
func inLine(t *testing.T, n int, wait func(i int) error, want func(i int) time.Duration, late time.Duration) {
	t.Helper()
	var got served
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() {
			check(t, wait(i))
			got.add(i, began)
		})
		synctest.Wait() // the caller is in the queue, or done
	}
	all.Wait()
	for i := range n {
		if least := want(i); got.who[i] != i || got.after[i] < least || got.after[i] > least+late {
			t.Fatalf("caller %d was served as number %d after %v, want number %d after %v", got.who[i], i, got.after[i], i, least)
		}
	}
}

// A hundred callers that wait for one key are served in order of arrival, each as soon as the limit
// allows. The server gets at most two takes per caller.
func TestWaitInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const n = 100
		inLine(t, n, func(int) error { return c.Wait(t.Context(), client.For("k", "10/s burst=5")) },
			func(i int) time.Duration { return max(0, time.Duration(i-4)*100*time.Millisecond) }, 0)
		if takes := v.seen("take"); takes > 2*n {
			t.Errorf("%d takes for %d callers", takes, n)
		}
		wantNoQueue(t, c)
	})
}

// If many units are left, the waiting callers send their calls concurrently. If few are left, they
// send no needless calls.
func TestWaitTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.delay = 10 * time.Millisecond
		for _, tt := range []struct {
			limit  client.Limit
			crowd  int
			within time.Duration
		}{
			// One call is sent alone, then 63 in groups of 16, one round trip per group.
			{"64/m", 16, 50 * time.Millisecond},
			// One call is sent alone, then 3 together. After that, one call is allowed every 10 s.
			// Each of these callers has been denied once before.
			{"4/40s", 3, 60*10*time.Second + 30*time.Millisecond},
		} {
			v.inCrowd, v.calls["take"] = 0, 0
			began := time.Now()
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() { check(t, c.Wait(t.Context(), client.For("k", tt.limit))) })
			}
			all.Wait()
			if took := time.Since(began); v.inCrowd != tt.crowd || took > tt.within || v.calls["take"] > 2*64 {
				t.Errorf("%s: %d asked together, %d times in all, for %v; want %d, %v at most", tt.limit, v.inCrowd, v.calls["take"], took, tt.crowd, tt.within)
			}
			must[int64](t)(c.Reset(t.Context(), "k"))
		}
	})
}

// Once a reply leaves nothing, only the first caller calls, although an earlier reply left units.
func TestWaitWhenNothingIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.delay = 10 * time.Millisecond
		var all sync.WaitGroup
		for _, n := range []int64{1, 5, 1, 1} {
			all.Go(func() { check(t, c.Wait(t.Context(), client.For("k", "6/m", n))) })
			synctest.Wait()
		}
		all.Wait()
		if v.inCrowd != 1 {
			t.Errorf("%d called together", v.inCrowd)
		}
	})
}

// A caller that waits for many units is not overtaken by callers behind it that want few.
func TestWaitForMuch(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		must[client.Result](t)(c.AllowN(t.Context(), "k", "10/s", 8)) // leaves 2
		wants := []int64{1, 10, 1, 0}
		after := []time.Duration{0, 900 * time.Millisecond, time.Second, time.Second}
		inLine(t, len(wants), func(i int) error { return c.Wait(t.Context(), client.For("k", "10/s", wants[i])) },
			func(i int) time.Duration { return after[i] }, 0)
	})
}

// If other processes wait for the same key, each unit is granted once, and no unit stays unused for
// long. The number of calls does not grow with the square of the number of processes.
func TestWaitAmongProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		const processes, each = 50, 4
		var got served
		var all sync.WaitGroup
		began := time.Now()
		for p := range processes {
			c := v.client(t, client.WithPrefix("rl:"))
			for range each {
				all.Go(func() {
					check(t, c.Wait(t.Context(), client.For("k", "10/s burst=1")))
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
		// If every process sent a call for every unit, that would be 50 calls per unit at first, about
		// 5000 in total.
		if took, takes := time.Since(began), v.seen("take"); took > 30*time.Second || takes > 3000 {
			t.Errorf("%d calls and %v for %d units", takes, took, processes*each)
		}
	})
}

// Wait waits until a block ends, and asks rarely meanwhile, also for no unit.
func TestWaitForABlock(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		for _, n := range []int64{1, 0} {
			require(t, c.Block(t.Context(), client.Block{For: time.Minute}, "k"))
			began, before := time.Now(), v.seen("take")
			if err := c.Wait(t.Context(), client.For("k", "3/m", n)); err != nil || time.Since(began) != time.Minute || v.seen("take")-before > 100 {
				t.Errorf("%d units: %v after %v and %d calls", n, err, time.Since(began), v.seen("take")-before)
			}
		}
	})
}

// A caller that leaves the queue, from any position, takes no units and does not delay the callers
// behind it.
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
					if err := c.Wait(leaving, client.For("k", "1/s")); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				check(t, c.Wait(t.Context(), client.For("k", "1/s")))
				got.add(i, began)
			})
			synctest.Wait()
		}
		// After 1.5 s, caller 0 has been served. Caller 1 is first in the queue when it leaves.
		time.Sleep(1500 * time.Millisecond)
		cancel()
		all.Wait()
		for i := range 10 {
			if want := time.Duration(i+1) * time.Second; got.who[i] != 3*i || got.after[i] != want {
				t.Errorf("%d was served after %v, want %d after %v", got.who[i], got.after[i], 3*i, want)
			}
		}
	})
}

// A leaky_bucket gives each caller a turn, for which the caller waits. Several callers can wait at
// the same time. A caller that cannot wait gives its turn back.
func TestWaitForATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const limit = "leaky_bucket 1/s burst=3"
		inLine(t, 5, func(int) error { return c.Wait(t.Context(), client.For("k", limit)) },
			func(i int) time.Duration { return time.Duration(i) * time.Second }, 0)

		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			err := c.Wait(ctx, client.For("k", limit))
			var e *client.Error
			if !asLimited(err, &e) || !errors.Is(err, context.Canceled) || e.RetryAfter != time.Second/2 {
				t.Error(err)
			}
		})
		time.Sleep(time.Second / 2)
		cancel()
		all.Wait()
		if left := must[client.Result](t)(c.Peek(t.Context(), client.For("k", limit, 0))); left.Remaining != 2 || v.seen("refund") != 1 {
			t.Errorf("%d are left after %d refunds, want 2 after one", left.Remaining, v.seen("refund"))
		}

		// If the units cannot be given back, the error says so.
		v.refuse = func(function string, _ int) (error, error) {
			if function == "refund" {
				return answered("OOM command not allowed"), nil
			}
			return nil, nil
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		err := c.Wait(ctx, client.For("k", limit))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "could not be given back") {
			t.Error(err)
		}
	})
}

// If a reply is lost, at most one unit is lost, and the caller gets an error. Later
// callers continue.
func TestWaitLosesAReply(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.refuse = func(function string, n int) (error, error) {
			if function == "take" && n == 1 {
				return nil, context.DeadlineExceeded
			}
			return nil, nil
		}
		wantClasses(t, "lost", c.Wait(t.Context(), client.For("k", "2/m")), client.ErrOutcomeUnknown, client.ErrUnavailable)
		if err := c.Wait(t.Context(), client.For("k", "2/m")); err != nil || v.seen("take") != 2 {
			t.Errorf("%v after %d takes", err, v.seen("take"))
		}
		if n := left(t, c, "k", "2/m"); n != 0 {
			t.Errorf("%d are left, want 0", n)
		}
	})
}

// losing returns a function for virtual.refuse. Calls to take are executed, and the replies to the
// first n are lost.
func losing(n int) func(string, int) (error, error) {
	return func(function string, nth int) (error, error) {
		if function == "take" && nth <= n {
			return nil, context.DeadlineExceeded
		}
		return nil, nil
	}
}

// If a fallback denies a call whose reply was lost, the caller is charged at most once, and the
// error says that it may have been charged.
func TestWaitLosesAReplyAndIsDenied(t *testing.T) {
	for name, fallback := range map[string]client.Fallback{"FailClosed": client.FailClosed, "LocalFallback": client.LocalFallback(0.2)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, plain *client.Client) {
				ctx := t.Context()
				v.refuse = losing(3)
				c := v.client(t, client.WithPrefix("rl:"), client.WithFallback(fallback))
				req := client.Request{Keys: []string{"{k}"}, Limits: []client.Limit{"10/d"}, Costs: []int64{3}} // 3 are more than a share of 0.2
				err := c.Wait(ctx, req)
				var e *client.Error
				want := `ratelimit: take "rl:{k}": 3 of "10/d" may have been taken, at most once; a new call can be charged too (`
				if !asLimited(err, &e) || !errors.Is(err, client.ErrOutcomeUnknown) || !strings.HasPrefix(err.Error(), want) || v.seen("take") != 1 {
					t.Errorf("%v after %d takes", err, v.seen("take"))
				}
				if n := left(t, plain, "{k}", "10/d"); n != 7 {
					t.Errorf("%d are left, want 7", n)
				}

				// With an OnceKey, the call is repeated until a server decides, and is charged once.
				must[int64](t)(plain.Reset(ctx, "{k}"))
				v.set(func() { clear(v.calls); v.refuse = losing(9) }) // more than the 4 attempts of one Take
				req.OnceKey, req.OnceTTL = "{k}:once", time.Minute
				if err := c.Wait(ctx, req); err != nil || v.seen("take") < 10 {
					t.Errorf("with an OnceKey: %v after %d takes", err, v.seen("take"))
				}
				if n := left(t, plain, "{k}", "10/d"); n != 7 {
					t.Errorf("with an OnceKey: %d are left, want 7", n)
				}

				// The outcome remains unknown if the caller gives up during the pause, or at the end of
				// the time for repetitions, even if the repetitions fail otherwise.
				lostThenLoading := func(_ string, n int) (before, after error) {
					if n > 4 {
						return answered("LOADING"), nil
					}
					return nil, context.DeadlineExceeded
				}
				for i, within := range []time.Duration{time.Second / 2, time.Hour, time.Hour} {
					v.set(func() { clear(v.calls); v.refuse = losing(1000) })
					if i == 2 {
						v.set(func() { v.refuse = lostThenLoading })
					}
					req.OnceKey = []string{"{k}:a", "{k}:b", "{k}:c"}[i]
					ending, cancel := context.WithCancel(ctx)
					time.AfterFunc(within, cancel)
					began := time.Now()
					err := c.Wait(ending, req)
					if !errors.As(err, &e) || !errors.Is(err, client.ErrOutcomeUnknown) || !strings.Contains(err.Error(), `ask again with the OnceKey "`+req.OnceKey+`", which is charged once`) || time.Since(began) > 16*time.Second {
						t.Errorf("ended: %v after %v", err, time.Since(began))
					}
					cancel()
				}
			})
		})
	}
}

// If no server decides, the fallback determines whether a caller waits, proceeds or gets an error.
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
			c := v.client(t, client.WithFallback(tt.fallback))
			ctx, cancel := context.WithTimeout(t.Context(), tt.within)
			began := time.Now()
			if err := c.Wait(ctx, client.For("k", "1/s")); !errors.Is(err, tt.err) || time.Since(began) != tt.took {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			cancel()
		}
		v.calls["take"] = 0
		c := v.client(t, client.WithFallback(client.FailClosed))
		began := time.Now()
		// The first wait is one second, then two waits of a second plus jitter follow.
		if err := c.Wait(t.Context(), client.For("k", "1/s")); err != nil || time.Since(began) < 3*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Waiting callers are served in order and not too early, even if the client has batches and
// remembers denials.
func TestWaitWithBatchesAndMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		c := v.client(t, client.WithBatches(10, 100*time.Millisecond), client.WithDenialMemory(time.Second))
		inLine(t, 100, func(int) error { return c.Wait(t.Context(), client.For("k", "10/s burst=40")) },
			func(i int) time.Duration { return max(0, time.Duration(i-39)*100*time.Millisecond) }, time.Second)
	})
}
