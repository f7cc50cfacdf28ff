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
	"github.com/ratelimit-functions/ratelimit/client/limits"
)

// If the reply to an acquire is lost, the retry returns whether the lease is held, whatever happens
// to the key between the two.
func TestLeaseIsKnownAfterALostReply(t *testing.T) {
	for name, tt := range map[string]struct {
		between func(ctx context.Context, c *client.Client) error
		want    bool
	}{
		"nothing": {func(context.Context, *client.Client) error { return nil }, true},
		"block": {func(ctx context.Context, c *client.Client) error {
			return c.Block(ctx, client.Block{For: time.Minute}, "jobs")
		}, true},
		"fewer": {func(ctx context.Context, c *client.Client) error {
			return c.Override(ctx, "concurrency 1 lease=30s", time.Minute, "jobs")
		}, true},
		"reset": {func(ctx context.Context, c *client.Client) error { return second(c.Reset(ctx, "jobs")) }, true},
		"reset and block": {func(ctx context.Context, c *client.Client) error {
			return errors.Join(second(c.Reset(ctx, "jobs")), c.Block(ctx, client.Block{For: time.Minute}, "jobs"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
				two := limits.Concurrency(2, 30*time.Second)
				must[client.Result](t)(c.Lease("jobs", two, "other").Acquire(t.Context()))
				v.set(func() {
					v.refuse = func(function string, n int) (before, after error) {
						if function == "acquire" && n == 2 {
							return nil, context.DeadlineExceeded
						}
						return nil, nil
					}
				})
				l, got := c.Lease("jobs", two, ""), make(chan client.Result)
				go func() { got <- must[client.Result](t)(l.Acquire(t.Context())) }()
				time.Sleep(time.Millisecond)
				check(t, tt.between(t.Context(), c))
				if res, held := <-got, must[bool](t)(l.Release(t.Context())); res.Allowed != held || held != tt.want || v.seen("acquire") != 3 {
					t.Errorf("allowed: %v, held: %v, want %v; asked %d times", res.Allowed, held, tt.want, v.seen("acquire"))
				}
			})
		})
	}
}

// Callers get the lease one at a time, in order of arrival. Each caller gets it as soon as the
// previous caller releases it, although the server does not announce releases.
func TestLeaseWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		const n = 100
		var got served
		var all sync.WaitGroup
		running := 0
		began := time.Now()
		for i := range n {
			all.Go(func() {
				l := c.Lease("jobs", oneJob, "")
				if err := l.Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if err := l.Run(t.Context(), func(context.Context) error {
					got.add(i, began)
					if running++; running != 1 {
						t.Errorf("%d run at once", running)
					}
					time.Sleep(7 * time.Second)
					running--
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		for i := range n {
			if want := time.Duration(i) * 7 * time.Second; got.who[i] != i || got.after[i] != want {
				t.Fatalf("%d ran as number %d after %v, want number %d after %v", got.who[i], i, got.after[i], i, want)
			}
		}
		// The first caller in the queue calls the server once or twice a second.
		if asked, most := v.seen("acquire"), n*7*2+3*n; asked > most {
			t.Errorf("asked %d times, want %d at most", asked, most)
		}
		wantNoQueue(t, c)
	})
}

// Wait acquires a lease within a second after it becomes available, even if several leases become
// available at once. It returns an error when ctx is done.
func TestLeaseWaitsForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		two := limits.Concurrency(2, time.Hour)
		must[client.Result](t)(c.Lease("jobs", two, "a").Acquire(t.Context()))
		must[client.Result](t)(c.Lease("jobs", two, "b").Acquire(t.Context()))
		began := time.Now()
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.Lease("jobs", two, "").Wait(limited)
		var e *client.Error
		if !asLimited(err, &e) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute ||
			!strings.Contains(err.Error(), `the context ended before a place of "concurrency 2 lease=1h" was free`) {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		var all sync.WaitGroup
		began = time.Now()
		var got served
		for i := range 2 {
			all.Go(func() {
				check(t, c.Lease("jobs", two, "").Wait(t.Context()))
				got.add(i, began)
			})
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		must[int64](t)(c.Reset(t.Context(), "jobs"))
		all.Wait()
		slices.Sort(got.after)
		if got.after[1] > time.Minute+time.Second {
			t.Errorf("served after %v", got.after)
		}
	})
}

// Wait calls the server once or twice a second, however long the lease is held, and at most a
// thousand times a second.
func TestLeaseWaitPolls(t *testing.T) {
	for reply, want := range map[time.Duration]time.Duration{time.Hour: time.Second, 0: 2 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var last time.Time
			f := &fake{reply: integers(0, 1, 0, reply.Milliseconds(), time.Hour.Milliseconds(), 1)}
			f.after = func(n int) {
				if pause := time.Since(last); n > 1 && (pause < want/2 || pause > want) {
					t.Errorf("a pause of %v, want %v to %v", pause, want/2, want)
				}
				last = time.Now()
			}
			c := newClient(t, f)
			limited, cancel := context.WithTimeout(t.Context(), 20*want)
			defer cancel()
			if err := c.Lease("jobs", oneJob, "").Wait(limited); !errors.Is(err, context.DeadlineExceeded) || len(f.lines) < 20 {
				t.Errorf("%v after %d calls", err, len(f.lines))
			}
			check(t, c.Close())
		})
	}
}

// If this client releases a lease while the first waiter's call is in progress, the waiter calls
// again at once.
func TestReleaseDuringACallOfTheWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		held := c.Lease("jobs", oneJob, "")
		must[client.Result](t)(held.Acquire(t.Context()))
		for _, lost := range []bool{false, true} { // whether the reply to the release is lost
			v.set(func() {
				v.delay = 100 * time.Millisecond
				v.refuse = func(function string, _ int) (before, after error) {
					if function == "release" && lost {
						return nil, context.DeadlineExceeded
					}
					return nil, nil
				}
			})
			began, next := time.Now(), c.Lease("jobs", oneJob, "")
			waited := make(chan error)
			go func() { waited <- next.Wait(t.Context()) }()
			synctest.Wait()
			v.set(func() { v.delay = 0 })
			if _, err := held.Release(t.Context()); lost != errors.Is(err, client.ErrOutcomeUnknown) {
				t.Error(err)
			}
			check(t, <-waited)
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("the waiter got the lease after %v, want 100ms; lost: %v", took, lost)
			}
			held = next
		}
	})
}
