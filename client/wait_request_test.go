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
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Wait takes units from several keys, each with its own cost. Callers that wait for the same
// keys are served in order.
func TestWaitForSeveralKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		request := func(costs ...int64) client.Request {
			return client.Request{Keys: []string{"{a}:second", "{a}:minute"}, Limits: []client.Limit{"1/s", "100/m"}, Costs: costs}
		}
		ctx := t.Context()
		// The third caller's cost of 70 applies only to the per-minute limit. The second caller
		// leaves 61 units there, so the third caller waits 600 ms for each of 9 more units.
		costs := [][]int64{nil, {1, 39}, {1, 70}, {1}}
		after := []time.Duration{0, time.Second, 6400 * time.Millisecond, 7400 * time.Millisecond}
		inLine(t, len(costs), func(i int) error { return c.Wait(ctx, request(costs[i]...)) },
			func(i int) time.Duration { return after[i] }, 0)
		wantNoQueue(t, c)

		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := c.Wait(limited, request(1, 50))
		var e *client.Error
		if !asLimited(err, &e) || e.Keys[0] != "rl:{a}:minute" && e.Keys[0] != "rl:{a}:second" || !strings.Contains(err.Error(), `1 50 of "1/s" "100/m" would have to be waited for`) {
			t.Error(err)
		}
		err = c.Wait(ctx, request(0, 101))
		if !errors.As(err, &e) || e.Keys[0] != "rl:{a}:minute" || e.RetryAfter != client.Never {
			t.Error(err)
		}
		takes := v.seen("take")
		upTo := request(2)
		upTo.UpTo = true
		wantClasses(t, "UpTo", c.Wait(ctx, upTo), typed("bad_args"))
		wantClasses(t, "no keys", c.Wait(ctx, client.Request{}), typed("bad_keys"))
		if v.seen("take") != takes {
			t.Error("bad input was sent")
		}
	})
}

// With a policy of several limits, a call waits until all of its limits allow it.
func TestWaitForAPolicy(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "10/m"}, {Key: "consumer", Limit: "1/m"}}, Track: true})))
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		ctx, began := t.Context(), time.Now()
		req := client.Request{Keys: []string{"calc:{a}", "consumer9:{a}"}, Limits: []client.Limit{"@calc"}, UsageKey: "usage:{a}"}
		for range 2 {
			require(t, c.Wait(ctx, req))
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the second was served after %v", took)
		}
		if usage := must[client.Usage](t)(c.Usage(ctx, "usage:{a}")); usage.Allowed != 2 || usage.Denied != 1 {
			t.Errorf("%+v", usage)
		}
	}, embedded.WithLibrary(build.Text()))
}

// If the wait would last longer than the caller permits, Wait fails immediately, even for a
// caller behind others in the queue. The error differs from the one for the context's deadline.
func TestWaitUntil(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		wait := func(ctx context.Context, limit client.Limit, d time.Duration) error {
			return c.Wait(ctx, until(client.Request{Keys: []string{string(limit)}, Limits: []client.Limit{limit}}, time.Now().Add(d)))
		}
		for _, limit := range []client.Limit{"1/m", "leaky_bucket 1/m"} {
			v.calls["take"] = 0
			if err := wait(ctx, limit, 0); err != nil {
				t.Errorf("%s: what is there now: %v", limit, err)
			}
			refused := func(name string, err, cause error) {
				t.Helper()
				var e *client.Error
				if !asLimited(err, &e) || e.RetryAfter != time.Minute || e.Err != cause || !strings.Contains(err.Error(), "nothing was taken") {
					t.Errorf("%s, %s: %v", limit, name, err)
				}
			}
			short, cancel := context.WithTimeout(ctx, 59*time.Second)
			defer cancel()
			refused("beyond the bound", wait(ctx, limit, 59*time.Second), nil)
			refused("beyond the deadline", wait(short, limit, time.Hour), context.DeadlineExceeded)
			refused("beyond both", wait(short, limit, 0), context.DeadlineExceeded)
			var all sync.WaitGroup
			all.Go(func() {
				if err := wait(ctx, limit, time.Minute); err != nil {
					t.Errorf("%s: up to the bound: %v", limit, err)
				}
			})
			synctest.Wait()
			if limit == "1/m" {
				takes := v.seen("take")
				refused("behind who waits", wait(ctx, limit, 59*time.Second), nil)
				if v.seen("take") != takes {
					t.Error("it asked")
				}
			}
			all.Wait()
		}
	})
}

// A turn in the queue of a leaky_bucket belongs to its OnceKey: a caller that repeats the request
// gets the same turn, and is charged once.
func TestWaitOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx, began := t.Context(), time.Now()
		const limit = "leaky_bucket 1/s burst=3"
		must[client.Result](t)(c.Allow(ctx, "{k}", limit))
		req := client.Request{Keys: []string{"{k}"}, Limits: []client.Limit{limit}, OnceKey: "{k}:once", OnceTTL: time.Minute}
		err := c.Wait(ctx, until(req, began))
		var e *client.Error
		if !asLimited(err, &e) || e.RetryAfter != time.Second || !strings.Contains(err.Error(), `the turn of 1 of "leaky_bucket 1/s burst=3" comes in 1s; it is kept for who asks again with the OnceKey "{k}:once"`) {
			t.Error(err)
		}
		if err := c.Wait(ctx, req); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := left(t, c, "{k}", limit); n != 2 || v.seen("refund") != 0 {
			t.Errorf("%d are left after %d refunds, want 2 after none", n, v.seen("refund"))
		}
	})
}

// A turn is a point in time: it does not move when a caller asks for it again, and it can be had as
// soon as it has come, however little patience the caller has. Another client, for which the reply
// is new, waits longer, never shorter. Once the OnceKey is gone, there is a new turn.
func TestWaitOnceForATime(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx, began := t.Context(), time.Now()
		const limit = "leaky_bucket 1/s burst=10"
		req := client.Request{Keys: []string{"{k}"}, Limits: []client.Limit{limit}, OnceKey: "{k}:once", OnceTTL: time.Minute}
		wait := func(c *client.Client, patience, want time.Duration, refused bool) {
			t.Helper()
			asked := time.Now()
			err := c.Wait(ctx, until(req, asked.Add(patience)))
			took := time.Since(asked)
			var e *client.Error
			if asLimited(err, &e) && refused && took == 0 {
				took = e.RetryAfter
			}
			if (e != nil) != refused || !refused && err != nil || took != want {
				t.Errorf("%v after the first call, with a patience of %v: %v after %v, want a wait of %v", asked.Sub(began), patience, err, took, want)
			}
		}
		second := v.client(t, client.WithPrefix("rl:"))
		must[client.Result](t)(c.AllowN(ctx, "{k}", limit, 2))
		wait(c, 700*time.Millisecond, 2*time.Second, true)
		time.Sleep(800 * time.Millisecond)
		wait(c, 700*time.Millisecond, 1200*time.Millisecond, true)
		time.Sleep(800 * time.Millisecond)
		wait(second, 700*time.Millisecond, 2*time.Second, true)
		wait(c, 700*time.Millisecond, 400*time.Millisecond, false)
		time.Sleep(time.Second)
		wait(c, 0, 0, false)                                            // the turn has passed
		wait(second, 700*time.Millisecond, 600*time.Millisecond, false) // 2 s after its first call
		if v.seen("refund") != 0 {
			t.Errorf("%d refunds", v.seen("refund"))
		}

		// After a Reset, and after OnceTTL, the same reply grants a new turn.
		must[int64](t)(c.Reset(ctx, "{k}", "{k}:once"))
		for range 2 {
			must[client.Result](t)(c.AllowN(ctx, "{k}", limit, 2))
			wait(c, time.Minute, 2*time.Second, false)
			time.Sleep(time.Minute)
		}

		// If another client resets the keys, a reply that differs grants a new turn.
		for units := int64(2); units < 4; units++ {
			must[client.Result](t)(c.AllowN(ctx, "{k}", limit, units))
			wait(c, time.Minute, time.Duration(units)*time.Second, false)
			must[int64](t)(second.Reset(ctx, "{k}", "{k}:once"))
		}
	})
}

// If the server does not reply, every caller in a queue is done within two timeouts, regardless of
// its position.
func TestWaitForASilentServer(t *testing.T) {
	for _, fallback := range []client.Fallback{client.ReturnError, client.FailOpen} {
		inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
			v.delay = time.Hour
			c := v.client(t, client.WithTimeout(time.Second), client.WithFallback(fallback))
			began := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					err := c.Wait(t.Context(), client.For("k", "1/s"))
					if took := time.Since(began); errors.Is(err, client.ErrUnavailable) != (fallback == client.ReturnError) || took > 2*time.Second {
						t.Errorf("%v after %v", err, took)
					}
				})
			}
			all.Wait()
		})
	}
}

// Requests with different keys or limits wait in different queues, whatever characters the keys
// contain.
func TestQueuesAreApart(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		for _, req := range []client.Request{
			{Keys: []string{"a", "b{x}"}, Limits: []client.Limit{"1/d", "1/d"}},
			{Keys: []string{`a""b{x}`, "c"}, Limits: []client.Limit{"1/d", "1/d"}},
			{Keys: []string{"a"}, Limits: []client.Limit{"1/d"}},
			{Keys: []string{"a\x001/d"}, Limits: []client.Limit{"1/d"}},
		} {
			for i, key := range req.Keys {
				must[client.Result](t)(c.Allow(t.Context(), key, req.Limits[i]))
			}
			go func() { _ = c.Wait(t.Context(), req) }()
		}
		synctest.Wait()
		if n := client.Waiting(c); n != 4 {
			t.Errorf("%d queues, want 4", n)
		}
	})
}
