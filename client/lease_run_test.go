package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

var oneJob = limits.Concurrency(1, 30*time.Second)

// held returns how many leases are held.
func held(t *testing.T, c *client.Client) int64 {
	t.Helper()
	probe := c.Lease("jobs", "concurrency 100 lease=30s", "")
	res := must[client.Result](t)(probe.Acquire(t.Context()))
	must[bool](t)(probe.Release(t.Context()))
	return 99 - res.Remaining
}

// While the function runs, the lease is renewed each time a third of its duration has passed, even
// if the context is done. When the function returns, the lease is released.
func TestRun(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		want := errors.New("what the function returns")
		ctx, cancel := context.WithCancel(t.Context())
		err := c.Lease("jobs", oneJob, "").Run(ctx, func(ctx context.Context) error {
			for i := range 10 {
				if got := v.seen("renew"); got != i {
					t.Errorf("renewed %d times after %d times 10 s", got, i)
				}
				if i == 5 {
					cancel()
				}
				if ended := ctx.Err() != nil; ended != (i >= 5) {
					t.Errorf("after %d times 10 s its context has ended: %v", i, ended)
				}
				if i == 0 {
					time.Sleep(time.Millisecond) // so that no later step coincides with a renewal
				}
				time.Sleep(10 * time.Second)
			}
			if n := held(t, c); n != 1 {
				t.Errorf("%d leases are held, want 1", n)
			}
			return want
		})
		if err != want || held(t, c) != 0 {
			t.Errorf("%v; %d leases are held, want none", err, held(t, c))
		}
	})
}

func TestRunPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		defer func() {
			if got := recover(); got != "oh" || held(t, c) != 0 {
				t.Errorf("%v; %d leases are held, want none", got, held(t, c))
			}
			time.Sleep(time.Hour)
			if v.seen("renew") != 0 {
				t.Error("it is renewed after its end")
			}
		}()
		_ = c.Lease("jobs", oneJob, "").Run(t.Context(), func(context.Context) error { panic("oh") })
	})
}

// If a lease is lost for any reason, the function's context is canceled, and Run returns
// ErrLeaseLost.
func TestRunLosesTheLease(t *testing.T) {
	failing := func(from int, before, after error) func(string, int) (error, error) {
		return func(function string, n int) (error, error) {
			if function == "renew" && n >= from {
				return before, after
			}
			return nil, nil
		}
	}
	for name, tt := range map[string]struct {
		do    func(t *testing.T, v *virtual, c *client.Client, l *client.Lease)
		after time.Duration
		text  string
		also  error
	}{
		"released elsewhere": {func(t *testing.T, _ *virtual, c *client.Client, l *client.Lease) {
			must[bool](t)(c.Lease("jobs", oneJob, l.ID).Release(t.Context()))
		}, 10 * time.Second, "the server does not hold it any more: it lapsed, or was released or reset", nil},
		"server that cannot": {func(_ *testing.T, v *virtual, _ *client.Client, _ *client.Lease) {
			v.set(func() { v.refuse = failing(1, answered("LOADING"), nil) })
		}, 30*time.Second - time.Millisecond, "no renewal succeeded in the 30s that it lasts", client.ErrUnavailable},
		// A renewal with an unknown outcome does not count, even if the server executed it.
		"lost replies": {func(_ *testing.T, v *virtual, _ *client.Client, _ *client.Lease) {
			v.set(func() { v.refuse = failing(1, nil, context.DeadlineExceeded) })
		}, 30*time.Second - time.Millisecond, "no renewal succeeded in the 30s that it lasts", client.ErrOutcomeUnknown},
		// A lease lasts from the time at which its renewal is sent, not from the time at which the reply
		// arrives, 100 ms later.
		"server that cannot later": {func(_ *testing.T, v *virtual, _ *client.Client, _ *client.Lease) {
			v.set(func() { v.delay, v.refuse = 100*time.Millisecond, failing(2, answered("LOADING"), nil) })
		}, 40*time.Second - time.Millisecond, "no renewal succeeded in the 30s that it lasts", client.ErrUnavailable},
		"a reply that comes too late": {func(_ *testing.T, v *virtual, _ *client.Client, _ *client.Lease) {
			v.set(func() { v.delay = time.Hour })
		}, 30*time.Second - time.Millisecond, "no renewal succeeded in the 30s that it lasts", client.ErrOutcomeUnknown},
		"closed": {func(t *testing.T, _ *virtual, c *client.Client, _ *client.Lease) {
			go func() {
				time.Sleep(time.Second)
				check(t, c.Close())
			}()
		}, time.Second, "it cannot be renewed any more", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
				l := c.Lease("jobs", oneJob, "")
				began := time.Now()
				own := errors.New("its own")
				err := l.Run(t.Context(), func(ctx context.Context) error {
					tt.do(t, v, c, l)
					<-ctx.Done()
					if took := time.Since(began); took != tt.after {
						t.Errorf("lost after %v, want %v", took, tt.after)
					}
					if cause := context.Cause(ctx); !errors.Is(cause, client.ErrLeaseLost) || !strings.Contains(cause.Error(), tt.text) {
						t.Errorf("lost by %v", cause)
					}
					return own
				})
				if name == "closed" { // Run releases the lease when the function has returned
					c = v.client(t, client.WithPrefix("rl:"))
					if n := held(t, c); n != 0 {
						t.Errorf("%d leases are held", n)
					}
				}
				if !errors.Is(err, client.ErrLeaseLost) || !errors.Is(err, own) || tt.also != nil && !errors.Is(err, tt.also) || !strings.Contains(err.Error(), `ratelimit: lease "rl:jobs": lease lost, `+tt.text) {
					t.Error(err)
				}
			})
		})
	}
}

// Run renews the lease by the lease's own time, although another lease of the key lasts longer.
func TestRunWithAShorterLease(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		limit := limits.Concurrency(2, time.Hour)
		must[client.Result](t)(c.Lease("jobs", limit, "other").Acquire(t.Context()))
		check(t, c.Override(t.Context(), "concurrency 2 lease=30s", 24*time.Hour, "jobs"))
		check(t, c.Lease("jobs", limit, "").Run(t.Context(), func(ctx context.Context) error {
			for range 29 {
				time.Sleep(7 * time.Second)
				if res := must[client.Result](t)(c.Lease("jobs", limit, "").Acquire(ctx)); res.Allowed || ctx.Err() != nil {
					t.Fatalf("a third lease: %+v, %v", res, ctx.Err())
				}
			}
			return nil
		}))
		if n := v.seen("renew"); n != 20 {
			t.Errorf("renewed %d times in 203 s, want each 10 s", n)
		}
	})
}

// If the lease time becomes shorter while a lease is held, the lease is held until its holder learns
// that it is lost, even if the replies to its renewals are lost.
func TestRunWhileTheLeaseGetsShorter(t *testing.T) {
	for name, lost := range map[string]bool{"renewed": false, "replies lost": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
				limit := limits.Concurrency(1, time.Hour)
				v.refuse = func(function string, n int) (before, after error) {
					switch {
					case function != "renew" || !lost:
						return nil, nil
					case n == 1:
						return nil, context.DeadlineExceeded
					}
					return answered("LOADING"), nil
				}
				began, ended := time.Now(), 2*time.Hour
				err := c.Lease("jobs", limit, "").Run(t.Context(), func(ctx context.Context) error {
					check(t, c.Override(t.Context(), "concurrency 1 lease=30s", 24*time.Hour, "jobs"))
					for time.Since(began) < 2*time.Hour {
						if res := must[client.Result](t)(c.Lease("jobs", limit, "").Acquire(t.Context())); res.Allowed {
							t.Fatalf("another lease is held after %v", time.Since(began))
						}
						select {
						case <-time.After(7 * time.Second):
						case <-ctx.Done():
							ended = time.Since(began)
							return nil
						}
					}
					return nil
				})
				if lost != errors.Is(err, client.ErrLeaseLost) || lost && ended != time.Hour-time.Millisecond {
					t.Errorf("%v after %v", err, ended)
				}
			})
		})
	}
}

// If the library does not say how long a lease is held, Run does not call the function. If such a
// library is deployed while the function runs, the lease is lost when the time that was last told
// has passed.
func TestRunWithAnOldLibrary(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.old = func(string, int) bool { return true }
		err := c.Lease("jobs", oneJob, "").Run(t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
		wantClasses(t, "acquire", err, client.ErrNotDeployed)
		wantText(t, err, `ratelimit: acquire "rl:jobs": the library on the server is too old for Run (ratelimit_acquire did not return how long the lease is held); `+
			"deploy the library with: ratelimit deploy, or with package loader")
		if n := held(t, c); n != 0 {
			t.Errorf("%d leases are held", n)
		}
		v.set(func() { v.old = func(function string, n int) bool { return function == "renew" && n > 1 } })
		began := time.Now()
		err = c.Lease("jobs", oneJob, "").Run(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		if took := time.Since(began); took != 40*time.Second-time.Millisecond || !errors.Is(err, client.ErrLeaseLost) || !errors.Is(err, client.ErrNotDeployed) {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// If the function returns the cause of its context, the error contains the cause once.
func TestRunReturnsTheCause(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		err := c.Lease("jobs", oneJob, "").Run(t.Context(), func(ctx context.Context) error {
			must[int64](t)(c.Reset(t.Context(), "jobs"))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, client.ErrLeaseLost) || strings.Count(err.Error(), "lease lost") != 1 {
			t.Error(err)
		}
	})
}

// A failed renewal is retried before the lease expires: after a tenth of the lease time, or after a
// second if that is less. A failed release is ignored.
func TestRunSurvivesAFailure(t *testing.T) {
	for lease, failures := range map[time.Duration]int{30 * time.Second: 19, 3 * time.Second: 6} {
		inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
			v.refuse = func(function string, n int) (error, error) {
				if function == "renew" && n <= failures || function == "release" {
					return answered("LOADING"), nil
				}
				return nil, nil
			}
			if err := c.Lease("jobs", limits.Concurrency(1, lease), "").Run(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Hour)
				return ctx.Err()
			}); err != nil {
				t.Errorf("a lease of %v: %v", lease, err)
			}
		})
	}
}

// If the function returns without noticing that the lease was lost, Run reports it.
func TestRunLostUnnoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		err := c.Lease("jobs", oneJob, "").Run(t.Context(), func(context.Context) error {
			must[int64](t)(c.Reset(t.Context(), "jobs"))
			return nil
		})
		if !errors.Is(err, client.ErrLeaseLost) {
			t.Error(err)
		}
	})
}

// Without the lease the function does not run.
func TestRunRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		run := func(context.Context) error { t.Error("it ran"); return nil }
		l := c.Lease("jobs", oneJob, "")
		wantClasses(t, "no function", l.Run(t.Context(), nil), typed("bad_args"))
		wantClasses(t, "another limit", c.Lease("jobs", "3/m", "").Run(t.Context(), run), typed("bad_limit"))
		if err := l.Run(t.Context(), func(context.Context) error {
			time.Sleep(5 * time.Second)
			wantClasses(t, "held already", l.Run(t.Context(), run), typed("bad_args"))
			err := c.Lease("jobs", oneJob, "").Run(t.Context(), run)
			var e *client.Error
			if !asLimited(err, &e) || e.RetryAfter != 25*time.Second || e.Keys[0] != "rl:jobs" || e.Err != nil {
				t.Errorf("%#v", err)
			}
			want := `ratelimit: acquire "rl:jobs": no place of "concurrency 1 lease=30s" is free, in 25s at the latest; try again, or call Wait before Run`
			wantText(t, err, want)
			return nil
		}); err != nil {
			t.Error(err)
		}
		v.refuse = func(function string, _ int) (error, error) {
			if function == "acquire" {
				return nil, context.DeadlineExceeded
			}
			return nil, nil
		}
		wantClasses(t, "not known whether it is held", l.Run(t.Context(), run), client.ErrOutcomeUnknown, client.ErrUnavailable)
	})
}

// Under a shadow policy, the function runs even if no lease was available. Losing the lease does
// not cancel the function's context.
func TestRunUnderAShadow(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=30s"}}, Shadow: true},
	)))
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ran := 0
		work := func(ctx context.Context) error {
			ran++
			time.Sleep(5 * time.Minute)
			return ctx.Err()
		}
		err := c.Lease("jobs", "@jobs", "").Run(t.Context(), func(ctx context.Context) error {
			check(t, c.Lease("jobs", "@jobs", "").Run(ctx, work))
			must[int64](t)(c.Reset(ctx, "jobs"))
			return work(ctx)
		})
		if err != nil || ran != 2 {
			t.Errorf("%v, ran %d times", err, ran)
		}
		if n := v.seen("renew"); n < 29 || n > 31 {
			t.Errorf("renewed %d times in the 300 s of one that held it", n)
		}
	}, embedded.WithLibrary(build.Text()))
}

// If the policy becomes a shadow policy while the function runs, Run goes on without a lease. If it
// becomes enforced, Run notices that the lease is lost.
func TestRunWhilePolicyChanges(t *testing.T) {
	text := func(shadow bool) string {
		return must[functions.Build](t)(functions.New(functions.WithPolicies(
			functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=30s"}}, Shadow: shadow},
		))).Text()
	}
	for _, tt := range []struct {
		name          string
		shadow, later bool
		pause         time.Duration // after the lease is lost, until the function ends
		want          error
	}{
		{"becomes a shadow", false, true, time.Minute, nil},
		{"becomes a shadow, lost before the end", false, true, time.Second, nil},
		{"becomes enforced", true, false, time.Minute, client.ErrLeaseLost},
		{"becomes enforced, lost before the end", true, false, time.Second, client.ErrLeaseLost},
		{"stays a shadow", true, true, time.Second, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
				var ended error
				err := c.Lease("jobs", "@jobs", "").Run(t.Context(), func(ctx context.Context) error {
					v.outside(func() {
						if _, err := v.server.Do("FUNCTION", "LOAD", "REPLACE", text(tt.later)); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(11 * time.Second) // one renewal
					must[int64](t)(c.Reset(ctx, "jobs"))
					time.Sleep(tt.pause)
					ended = context.Cause(ctx)
					return nil
				})
				if !errors.Is(err, tt.want) || ended != nil && !errors.Is(ended, tt.want) {
					t.Errorf("%v, and the context ended with %v; want %v", err, ended, tt.want)
				}
			}, embedded.WithLibrary(text(tt.shadow)))
		})
	}
}
