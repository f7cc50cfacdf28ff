package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

var minuteToHour = client.Block{For: time.Minute, Max: 5 * time.Minute, Forget: time.Hour}

// withPenalties returns a library with a policy that has a penalty, and others that have none.
func withPenalties(t *testing.T) embedded.Option {
	t.Helper()
	one := []functions.PolicyLimit{{Limit: "1/m"}}
	penalty := &functions.Penalty{First: time.Minute, Max: 5 * time.Minute, Forget: time.Hour}
	return embedded.WithLibrary(must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "login", Limits: one, Penalty: penalty},
		functions.Policy{Name: "shadow", Limits: one, Penalty: penalty, Shadow: true},
		functions.Policy{Name: "any", Limits: one, Penalty: penalty, AnyClass: true},
		functions.Policy{Name: "none", Limits: one},
		functions.Policy{Name: "open", Limits: one, AnyClass: true},
		functions.Policy{Name: "classes", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Classes: map[string]int{"critical": 0, "default": 20}},
	))).Text())
}

// knock takes with req, and penalizes a denial. It checks whether the call is allowed and, if not, the
// wait in the Result.
func knock(t *testing.T, c *client.Client, b client.Block, req client.Request, allowed bool, wait time.Duration) {
	t.Helper()
	res := must[client.Result](t)(c.Take(t.Context(), req))
	res, err := c.Penalize(t.Context(), b, req, res)
	if check(t, err); res.Allowed != allowed || !allowed && res.RetryAfter != wait {
		t.Errorf("%v: allowed %v, retry after %v; want %v, %v", req.Keys, res.Allowed, res.RetryAfter, allowed, wait)
	}
}

// Each block is longer than the one before. A denial during a block changes nothing, and an allowed call
// does not make the next block shorter.
func TestPenaltyGrows(t *testing.T) {
	for name, tt := range map[string]struct {
		block client.Block
		limit client.Limit
	}{
		"of the call":    {minuteToHour, "1/m"},
		"of the policy":  {client.Block{}, "@login"},
		"a fixed window": {minuteToHour, "fixed_window 1/m"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
				req := client.For("ip", tt.limit)
				blocks := 0
				for _, minutes := range []time.Duration{1, 2, 4, 5, 5} {
					wait := minutes * time.Minute
					knock(t, c, tt.block, req, true, 0)
					time.Sleep(30 * time.Second)
					knock(t, c, tt.block, req, false, wait)
					blocks++
					time.Sleep(wait / 2)
					for range 10 { // a remembered block costs no call
						knock(t, c, tt.block, req, false, wait/2)
					}
					if got := v.seen("block"); got != blocks {
						t.Errorf("%d blocks, want %d", got, blocks)
					}
					time.Sleep(wait / 2)
				}
				time.Sleep(time.Hour)
				knock(t, c, tt.block, req, true, 0)
				knock(t, c, tt.block, req, false, time.Minute)
				const minutes = 17 + 3 // of blocks, and before them; the memory of a policy's penalty lasts a minute
				if got := v.seen("info"); got > minutes || (got > 0) != (tt.block == client.Block{}) {
					t.Errorf("%d calls for the policy in %d minutes", got, minutes)
				}
			}, withPenalties(t))
		})
	}
}

// Penalize sees that a block was lifted elsewhere, and asks the server if a reply does not tell what
// has denied.
func TestPenaltyAfterUnblock(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		other := v.client(t, client.WithPrefix("rl:"))
		req := client.For("ip", "5/m")
		knock(t, c, minuteToHour, client.For("ip", "5/m", 5), true, 0)
		knock(t, c, minuteToHour, req, false, time.Minute)
		knock(t, other, minuteToHour, req, false, time.Minute) // another process denies by the block
		knock(t, other, minuteToHour, req, false, time.Minute)
		if got := v.seen("block"); got != 2 {
			t.Errorf("%d blocks, want one of each process", got)
		}
		must[int64](t)(other.Unblock(t.Context(), "ip"))
		knock(t, c, minuteToHour, req, false, time.Minute)
		must[int64](t)(c.Unblock(t.Context(), "ip"))
		knock(t, c, minuteToHour, client.For("ip", "5/m", 6), false, client.Never)
		if got := must[client.Result](t)(c.Peek(t.Context(), client.For("ip", "5/m", 0))).RetryAfter; got != 0 {
			t.Errorf("blocked for %v by a cost above the capacity, want no block", got)
		}
	})
}

// A block that was lifted elsewhere does not keep the next offence from a penalty, whatever the limit. The wait of
// some limits looks like that of a block: their RetryAfter is their ResetAfter.
func TestPenaltyAfterUnblockElsewhere(t *testing.T) {
	block := client.Block{For: time.Hour, Max: 5 * time.Hour, Forget: 10 * time.Hour}
	lift := map[string]func(*client.Client, context.Context, ...string) (int64, error){"unblock": (*client.Client).Unblock, "reset": (*client.Client).Reset}
	for how, lifted := range lift {
		for _, limit := range []client.Limit{"1/s", "fixed_window 1/s", "5/s", "fixed_window 5/s", "1/30m", "sliding_log 1/s"} {
			for _, keys := range [][]string{{"ip"}, {"ip", "user"}} {
				t.Run(fmt.Sprint(how, " ", limit, " ", len(keys)), func(t *testing.T) {
					inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
						other := v.client(t, client.WithPrefix("rl:"))
						req := client.Request{Keys: keys, Limits: []client.Limit{limit, "1000/s"}[:len(keys)]}
						offend := func() {
							t.Helper()
							for must[client.Result](t)(c.Take(t.Context(), req)).Allowed {
							}
							time.Sleep(1300 * time.Microsecond) // a block ends at a whole millisecond
							knock(t, c, block, req, false, time.Hour)
							time.Sleep(700 * time.Microsecond)
							for range 10 { // a remembered block costs no call
								time.Sleep(time.Minute)
								must[client.Result](t)(c.Penalize(t.Context(), block, req, must[client.Result](t)(c.Take(t.Context(), req))))
							}
						}
						offend()
						must[int64](t)(lifted(other, t.Context(), "ip"))
						time.Sleep(1500 * time.Millisecond)
						offend()
						if got := v.seen("block"); got != 2 {
							t.Errorf("%d blocks, want 2", got)
						}
					})
				})
			}
		}
	}
}

// A denial by a block stays one if the block ends before the denial is penalized.
func TestPenaltyAtTheEndOfABlock(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		for _, keys := range [][]string{{"ip"}, {"other", "user"}} {
			req := client.Request{Keys: keys, Limits: []client.Limit{"5/s", "1000/s"}[:len(keys)], Costs: []int64{5}}
			knock(t, c, minuteToHour, req, true, 0)
			knock(t, c, minuteToHour, req, false, time.Minute)
			time.Sleep(time.Minute - 10*time.Millisecond)
			late := must[client.Result](t)(c.Take(t.Context(), req))
			time.Sleep(15 * time.Millisecond) // the reply is under way
			if got := must[client.Result](t)(c.Penalize(t.Context(), minuteToHour, req, late)); got.RetryAfter != 10*time.Millisecond {
				t.Errorf("%v: blocked for %v after the block", keys, got.RetryAfter)
			}
			knock(t, c, minuteToHour, req, true, 0)
			knock(t, c, minuteToHour, req, false, 2*time.Minute) // an offence after the block
		}
		if got := v.seen("block"); got != 4 {
			t.Errorf("%d blocks, want 4", got)
		}
	})
}

// Only the key that has denied is blocked.
func TestPenaltyOfOneKey(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		req := client.Request{Keys: []string{"user", "ip", "tenant"}, Limits: []client.Limit{"9/m", "@login", "9/m"}}
		knock(t, c, client.Block{}, req, true, 0)
		knock(t, c, client.Block{}, req, false, time.Minute)
		for key, want := range map[string]int64{"user": 8, "ip": 0, "tenant": 8} {
			if got := left(t, c, key, "9/m"); got != want {
				t.Errorf("%d are left of %s, want %d", got, key, want)
			}
		}
		if got := must[client.Result](t)(c.Peek(t.Context(), client.Request{Keys: []string{"ip"}, Limits: []client.Limit{"1/m"}, Grow: true})).Grown[0].Length; got != time.Minute {
			t.Errorf("a block of %v, want 1m", got)
		}
	}, withPenalties(t))
}

// Under `classes: any`, no caller escapes the penalty of the policy by naming a class.
func TestPenaltyOfAnyClass(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		req := client.For("ip", "@any")
		knock(t, c, client.Block{}, withClass(req, "batch"), true, 0)
		time.Sleep(30 * time.Second)
		knock(t, c, client.Block{}, withClass(req, "export"), false, time.Minute)
		time.Sleep(30 * time.Second)
		knock(t, c, client.Block{}, req, false, 30*time.Second)
	}, withPenalties(t))
}

// The penalty of a middleware applies to the classes from which a policy keeps nothing free, and to no other.
// So naming a class is no way around it, and a denial for the sake of others blocks nobody.
func TestPenaltyOfClasses(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		knock(t, c, minuteToHour, withClass(client.For("ip", "@open"), "batch"), true, 0)
		time.Sleep(30 * time.Second)
		knock(t, c, minuteToHour, withClass(client.For("ip", "@open"), "export"), false, time.Minute)

		key := client.For("key", "@classes")
		knock(t, c, minuteToHour, client.For("key", "@classes", 4), true, 0)
		knock(t, c, minuteToHour, key, false, 12*time.Second)
		knock(t, c, minuteToHour, withClass(key, "critical"), true, 0) // the denial before has not blocked the key
		knock(t, c, minuteToHour, withClass(key, "critical"), false, time.Minute)
	}, withPenalties(t))
}

// A call for others' sake, a shadow policy, and a decision of this process are no offences.
func TestNoPenalty(t *testing.T) {
	floor, class, borrow := client.For("k", "1/m"), client.For("k", "1/m"), client.Request{Keys: []string{"k", "pool"}, Limits: []client.Limit{"1/m", "1/m"}, Borrow: true}
	floor.Floor, class.Class = 20, "batch"
	denied := client.Result{Source: "server", Index: 1, RetryAfter: time.Second, ResetAfter: time.Minute}
	from := func(source string) client.Result {
		res := denied
		res.Source = source
		return res
	}
	allowed, ofPool := denied, denied
	allowed.Allowed, ofPool.Index = true, 2
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		for name, tt := range map[string]struct {
			block client.Block
			req   client.Request
			res   client.Result
		}{
			"floor":                     {minuteToHour, floor, denied},
			"class":                     {minuteToHour, class, denied},
			"borrow":                    {minuteToHour, borrow, denied},
			"allowed":                   {minuteToHour, client.For("k", "1/m"), allowed},
			"batch":                     {minuteToHour, client.For("k", "1/m"), from("batch")},
			"memory":                    {minuteToHour, client.For("k", "1/m"), from("memory")},
			"local":                     {minuteToHour, client.For("k", "1/m"), from("local")},
			"fallback":                  {minuteToHour, client.For("k", "1/m"), from("fallback")},
			"no decision":               {minuteToHour, client.For("k", "1/m"), client.Result{}},
			"a limit, and no penalty":   {client.Block{}, client.For("k", "1/m"), denied},
			"a policy without one":      {client.Block{}, client.For("k", "@none"), denied},
			"a policy that is unknown":  {client.Block{}, client.For("k", "@unknown"), denied},
			"a pool":                    {minuteToHour, client.Request{Keys: []string{"k", "pool"}, Limits: []client.Limit{"@tenant"}}, ofPool},
			"explicit, and unknown":     {minuteToHour, client.For("k", "@unknown"), denied},
			"a cost of 0 with UpTo":     {minuteToHour, client.Request{Keys: []string{"k"}, Limits: []client.Limit{"1/m"}, Costs: []int64{0}, UpTo: true}, client.Result{Source: "server", Index: 1, Remaining: 1}},
			"a policy of too many keys": {client.Block{}, client.Request{Keys: []string{"k", "l"}, Limits: []client.Limit{"@login"}}, denied},
		} {
			if got, err := c.Penalize(t.Context(), tt.block, tt.req, tt.res); err != nil || got.RetryAfter != tt.res.RetryAfter || v.seen("block") != 0 {
				t.Errorf("%s: %+v, %v, %d blocks", name, got, err, v.seen("block"))
			}
		}
		for range 3 {
			knock(t, c, client.Block{}, client.For("k", "@shadow"), true, 0)
		}
		if got := v.seen("block"); got != 0 {
			t.Errorf("%d blocks for a shadow policy", got)
		}
	}, withPenalties(t))
}

// A block that fails, or whose outcome is unknown, leaves the denial as it is, is seen by observers, and is
// tried again by the next denial.
func TestPenaltyFails(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after error
		want          error
	}{
		"outcome unknown": {after: io.ErrUnexpectedEOF, want: client.ErrOutcomeUnknown},
		"no permission":   {before: answered("NOPERM this user has no permissions"), want: client.ErrNoPermission},
		"older library":   {before: answered(`RATELIMIT BADARGS "GROW": an option`), want: client.ErrNotDeployed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
				var seen []client.Observation
				c := v.client(t, client.WithObserver(client.Observer{Call: func(_ context.Context, o client.Observation) { seen = append(seen, o) }}))
				req := client.For("ip", "5/m", 5)
				knock(t, c, minuteToHour, req, true, 0)
				v.set(func() {
					v.refuse = func(function string, n int) (before, after error) {
						if function == "block" && n == 1 {
							return tt.before, tt.after
						}
						return nil, nil
					}
				})
				res := must[client.Result](t)(c.Take(t.Context(), req))
				got, err := c.Penalize(t.Context(), minuteToHour, req, res)
				if !errors.Is(err, tt.want) || got.Allowed || got.RetryAfter != time.Minute || got.ResetAfter != time.Minute {
					t.Errorf("%+v, %v; want the denial, and %v", got, err, tt.want)
				}
				if last := seen[len(seen)-1]; last.Op != "block" || !errors.Is(last.Err, tt.want) {
					t.Errorf("observed %+v", last)
				}
				knock(t, c, minuteToHour, req, false, time.Minute)
				if got := v.seen("block"); got != 2 {
					t.Errorf("%d blocks, want 2", got)
				}
			})
		})
	}
}

// Wrong penalties are refused, with the value, and block nothing.
func TestWrongPenalty(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *virtual, c *client.Client) {
		req := client.For("ip", "1/m")
		knock(t, c, minuteToHour, req, true, 0)
		for want, b := range map[string]client.Block{
			"BADARGS a penalty of {For:1m0s Extend:false Max:0s Forget:0s}; give For, Max and Forget, without Extend": {For: time.Minute},
			"BADARGS a penalty of {For:0s Extend:false Max:1h0m0s Forget:1h0m0s}":                                     {Max: time.Hour, Forget: time.Hour},
			"BADARGS a penalty of {For:1m0s Extend:true Max:1h0m0s Forget:1h0m0s}":                                    {For: time.Minute, Extend: true, Max: time.Hour, Forget: time.Hour},
			`BADARGS "1000": the ms of the longest block (max_ms) are a whole number from 60000`:                      {For: time.Minute, Max: time.Second, Forget: time.Hour},
		} {
			res := must[client.Result](t)(c.Take(t.Context(), req))
			got, err := c.Penalize(t.Context(), b, req, res)
			if !errors.Is(err, client.ErrMisconfigured) || !strings.Contains(err.Error(), want) || got.Allowed || got.RetryAfter != res.RetryAfter {
				t.Errorf("%+v: %+v, %v; want %s", b, got, err, want)
			}
		}
		if got := must[client.Result](t)(c.Peek(t.Context(), client.Request{Keys: req.Keys, Limits: req.Limits, Grow: true})).Grown[0].Length; got != 0 {
			t.Errorf("a block of %v", got)
		}
	})
}

// Denials at the same time, also those of one batch, are one block. Each of them returns its wait.
func TestPenaltyOfACrowd(t *testing.T) {
	for name, opts := range map[string][]client.Option{"alone": nil, "batches": {client.WithBatches(10, 10*time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
				c := v.client(t, opts...)
				req := client.For("ip", "5/m")
				must[client.Result](t)(c.Take(t.Context(), client.For("ip", "5/m", 5)))
				v.set(func() { v.delay = time.Millisecond })
				var crowd sync.WaitGroup
				for range 50 {
					crowd.Go(func() {
						res, err := c.Take(t.Context(), req)
						if err != nil || res.Allowed {
							t.Errorf("%+v, %v", res, err)
							return
						}
						res, err = c.Penalize(t.Context(), minuteToHour, req, res)
						if err != nil || res.RetryAfter < 59*time.Second || res.RetryAfter > time.Minute {
							t.Errorf("%+v, %v", res, err)
						}
					})
				}
				crowd.Wait()
				synctest.Wait()
				// With batches, callers learn of the denial one after the other. Who learns of it after the block was made may
				// make another call, which changes nothing.
				if got := v.seen("block"); got < 1 || got > 1 && opts == nil {
					t.Errorf("%d blocks, want 1", got)
				}
				grow := req
				grow.Grow = true
				if res := must[client.Result](t)(c.Peek(t.Context(), grow)); len(res.Grown) != 1 || res.Grown[0].Length != time.Minute {
					t.Errorf("the block is %+v, want one of a minute", res.Grown)
				}
			})
		})
	}
}

// A policy's penalty is that of the servers: a changed one applies within a minute.
func TestPenaltyIsRedeployed(t *testing.T) {
	library := func(first time.Duration) string {
		build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
			Name: "login", Limits: []functions.PolicyLimit{{Limit: "1/s"}}, Penalty: &functions.Penalty{First: first, Max: time.Hour, Forget: time.Millisecond}})))
		return build.Text()
	}
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		for _, first := range []time.Duration{10 * time.Second, 20 * time.Second} {
			v.run <- func() {
				if _, err := v.server.Do("FUNCTION", "LOAD", "REPLACE", library(first)); err != nil {
					t.Error(err)
				}
			}
			<-v.ran
			knock(t, c, client.Block{}, client.For("ip", "@login"), true, 0)
			knock(t, c, client.Block{}, client.For("ip", "@login"), false, first)
			time.Sleep(time.Minute)
		}
	})
}

// A cost above the capacity of the limit can never be allowed. It is a mistake of the caller and no offence, so it
// earns no penalty.
func TestNoPenaltyForTooLargeACost(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		knock(t, c, minuteToHour, client.For("ip", "5/m", 6), false, client.Never)
		knock(t, c, client.Block{}, client.For("ip", "@login", 2), false, client.Never)
		if got := v.seen("block"); got != 0 {
			t.Errorf("%d blocks, want none", got)
		}
		knock(t, c, client.Block{}, client.For("ip", "@login"), true, 0)
	}, withPenalties(t))
}
