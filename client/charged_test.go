package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestCharged(t *testing.T) {
	lost := &client.Result{Source: "fallback", Allowed: true, Err: client.ErrOutcomeUnknown}
	down := &client.Result{Source: "local", Allowed: true, Err: client.ErrUnavailable}
	denied := func(index int) *client.Result {
		return &client.Result{Allowed: true, Shadow: &client.Result{Index: index}}
	}
	for _, tt := range []struct {
		name   string
		limits string
		keys   int
		costs  []int64
		upTo   bool
		res    *client.Result
		want   []int64
		err    error
	}{
		{"allowed", "1/s 1/s", 2, []int64{3, 5}, false, &client.Result{Allowed: true}, []int64{3, 5}, nil},
		{"one", "1/s", 1, nil, false, &client.Result{Allowed: true}, []int64{1}, nil},
		{"from a batch", "1/s", 1, nil, false, &client.Result{Allowed: true, Source: "batch"}, []int64{1}, nil},
		{"denied", "1/s", 1, nil, false, &client.Result{}, []int64{0}, nil},
		{"from memory", "1/s", 1, nil, false, &client.Result{Source: "memory"}, []int64{0}, nil},
		{"no server", "1/s", 1, nil, false, down, []int64{0}, nil},
		{"lost", "1/s", 1, nil, false, lost, []int64{0}, client.ErrOutcomeUnknown},
		{"lost and denied", "1/s", 1, nil, false, &client.Result{Source: "local", Err: client.ErrOutcomeUnknown}, []int64{0}, client.ErrOutcomeUnknown},
		{"up to", "1/s", 1, []int64{9}, true, &client.Result{Allowed: true, Taken: 4}, []int64{4}, nil},
		{"not the request", "1/s", 2, nil, false, &client.Result{Allowed: true}, nil, typed("bad_keys")},

		{"shadow that allows", "@a", 1, nil, false, &client.Result{Allowed: true, Shadow: &client.Result{Allowed: true, Index: 1}}, []int64{1}, nil},
		{"shadow", "@a", 2, []int64{3, 5}, false, denied(2), []int64{0, 0}, nil},
		{"between limits", "1/s @a 1/s", 4, []int64{2}, false, denied(3), []int64{2, 0, 0, 2}, nil},
		{"first of two", "@a @b", 2, nil, false, denied(1), []int64{0, 1}, nil},
		{"of a layer, no index", "@a @b", 2, nil, false, denied(0), []int64{1, 1}, nil},
		{"of a layer, no such index", "@a @b", 2, nil, false, denied(3), []int64{1, 1}, nil},
		{"second of two", "@a @b", 2, nil, false, denied(2), []int64{1, 0}, nil},
		{"up to, shadow", "1/s @a", 2, []int64{9}, true, &client.Result{Allowed: true, Taken: 4, Shadow: &client.Result{Allowed: true, Taken: 2, Index: 2}}, []int64{4, 2}, nil},
		{"up to, shadow that denies", "1/s @a", 2, []int64{9}, true, &client.Result{Allowed: true, Taken: 4, Shadow: &client.Result{Index: 2}}, []int64{4, 0}, nil},
	} {
		req := client.Request{Keys: []string{"a", "b", "c", "d"}[:tt.keys], Costs: tt.costs, UpTo: tt.upTo}
		for limit := range strings.FieldsSeq(tt.limits) {
			req.Limits = append(req.Limits, client.Limit(limit))
		}
		if got, err := tt.res.Charged(req); !slices.Equal(got, tt.want) || !is(err, tt.err) {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// If a fallback decided because a reply was lost, an Estimate gives nothing back, and says that the
// units may have been charged, as Charged does.
func TestLostReplyIsNotGivenBack(t *testing.T) {
	for name, fallback := range map[string]client.Fallback{"FailOpen": client.FailOpen, "FailClosed": client.FailClosed, "LocalFallback": client.LocalFallback(1)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, plain *client.Client) {
				ctx, h := t.Context(), &heard{}
				c := v.client(t, client.WithPrefix("rl:"), client.WithFallback(fallback), client.WithObserver(h.observer()))
				v.refuse = func(string, int) (error, error) { return nil, context.DeadlineExceeded }
				hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", "100/d", 40)))
				taken := must[client.Result](t)(c.AllowN(ctx, "r", "100/d", 40))
				v.refuse = nil
				h.calls = nil
				want := `ratelimit: refund "rl:k": not sent, since the units may not have been taken: the outcome of the take is unknown (ratelimit: take "rl:k": sent, but the reply was lost;`
				for range 2 {
					for _, actual := range []int64{0, 40, 60} {
						if _, err := hold.Settle(ctx, actual); !errors.Is(err, client.ErrOutcomeUnknown) || !strings.HasPrefix(err.Error(), want) {
							t.Errorf("settled with %d: %v", actual, err)
						}
					}
					wantClasses(t, "charged", second(taken.Charged(client.For("r", "100/d", 40))), client.ErrOutcomeUnknown, client.ErrUnavailable)
				}
				if len(h.calls) != 6 {
					t.Errorf("observed %d calls, want 6", len(h.calls))
				}
				if n, m := left(t, plain, "k", "100/d"), left(t, plain, "r", "100/d"); n != 60 || m != 60 || v.seen("refund") != 0 {
					t.Errorf("%d and %d are left after %d refunds", n, m, v.seen("refund"))
				}
			})
		})
	}
}

// If a fallback decided, because no server made a decision, Settle corrects nothing, even if the
// estimate was 0.
func TestSettleOfNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, plain *client.Client) {
		c := v.client(t, client.WithPrefix("rl:"), client.WithFallback(client.FailOpen))
		v.refuse = func(string, int) (error, error) { return answered("LOADING"), nil }
		hold := must[*client.Estimate](t)(c.TakeEstimate(t.Context(), client.For("k", "100/d", 0)))
		v.refuse = nil
		if res, err := hold.Settle(t.Context(), 5); err != nil || res.Source != "fallback" || left(t, plain, "k", "100/d") != 100 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// What a shadow policy did not charge is neither given back nor corrected.
func TestShadowIsNotGivenBack(t *testing.T) {
	const day = "fixed_window 100/d"
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "new", Limits: []functions.PolicyLimit{{Limit: "fixed_window 40/d"}}, Shadow: true},
		functions.Policy{Name: "more", Limits: []functions.PolicyLimit{{Limit: "fixed_window 40/d"}}, Shadow: true},
	)))
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		keys := []string{"{x}a", "{x}b", "{x}c"}
		want := func(name string, used ...int64) {
			t.Helper()
			for i, n := range used {
				if got := 100 - left(t, c, keys[i], day); got != n {
					t.Errorf("%s: %d of %s are used, want %d", name, got, keys[i], n)
				}
			}
		}
		for _, key := range keys {
			must[client.Result](t)(c.AllowN(ctx, key, day, 30))
		}
		// Under the shadow policy alone.
		hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For(keys[0], "@new", 20)))
		if res, err := hold.Settle(ctx, 5); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		want("a hold", 30)
		hold = must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For(keys[0], "@new", 10)))
		must[client.Result](t)(hold.Settle(ctx, 2))
		want("a hold that it allows", 32)
		must[client.Result](t)(c.Refund(ctx, client.For(keys[0], "@new", 2)))

		// Beside an enforced limit, and two of them at once.
		for _, actual := range []int64{5, 25} {
			hold = must[*client.Estimate](t)(c.TakeEstimate(ctx, client.Request{Keys: keys, Limits: []client.Limit{"@new", day, "@more"}, Costs: []int64{20}}))
			want("an estimate", 30, 50, 30)
			if res := hold.Result; res.Each != nil || res.Shadow == nil || res.Shadow.Allowed {
				t.Errorf("%+v", res)
			}
			must[client.Result](t)(hold.Settle(ctx, actual))
			want("a settlement", 30, 30+actual, 30)
			must[client.Result](t)(c.Refund(ctx, client.For(keys[1], day, actual)))
		}
	}, embedded.WithLibrary(build.Text()))
}

// With Each, it is exact what several shadow policies charged, however many keys they have.
func TestChargedBySeveralShadows(t *testing.T) {
	const day = client.Limit("fixed_window 100/d")
	limits := func(texts ...string) (all []functions.PolicyLimit) {
		for i, text := range texts {
			all = append(all, functions.PolicyLimit{Key: string(rune('a' + i)), Limit: text})
		}
		return all
	}
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "one", Limits: limits("fixed_window 40/d"), Shadow: true},
		functions.Policy{Name: "two", Limits: limits("fixed_window 10/d", "fixed_window 60/d"), Shadow: true},
		functions.Policy{Name: "queue", Limits: limits("leaky_bucket 10/m", "fixed_window 20/d")},
		functions.Policy{Name: "enforced", Limits: limits("fixed_window 90/d")},
	)))
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		ctx := t.Context()
		keys := []string{"{x}a", "{x}b", "{x}c", "{x}d"}
		all := func() (used []int64) {
			for _, key := range keys {
				used = append(used, 100-left(t, c, key, day))
			}
			return used
		}
		for _, tt := range []struct {
			limits []client.Limit
			costs  []int64
			want   []int64
		}{
			{[]client.Limit{"@one", "@two", "@enforced"}, []int64{5}, []int64{5, 5, 5, 5}},
			{[]client.Limit{"@one", "@two", "@enforced"}, []int64{5, 5, 70, 5}, []int64{5, 0, 0, 5}},
			{[]client.Limit{"@one", "@two", "@enforced"}, []int64{50, 20, 5, 5}, []int64{0, 0, 0, 5}},
			{[]client.Limit{"@two", "@one", day}, []int64{5, 70, 5, 5}, []int64{0, 0, 5, 5}},
			{[]client.Limit{"@two", "@one", "@enforced"}, []int64{20, 5, 50, 5}, []int64{0, 0, 0, 5}},
			{[]client.Limit{"@enforced", "@two", "@one"}, []int64{5, 20, 5, 5}, []int64{5, 0, 0, 5}},
			{[]client.Limit{"@one", "@two", "@enforced"}, []int64{5, 5, 5, 95}, []int64{0, 0, 0, 0}},
		} {
			req := client.Request{Keys: keys, Limits: tt.limits, Costs: tt.costs}
			took := func(what string, n []int64, err error) {
				t.Helper()
				if got := all(); err != nil || !slices.Equal(n, tt.want) || !slices.Equal(got, tt.want) {
					t.Errorf("%s %v %v: %v taken, Charged is %v, %v; want %v", what, tt.limits, tt.costs, got, n, err, tt.want)
				}
			}
			each := req
			each.Each = true
			n, err := must[client.Result](t)(c.Take(ctx, each)).Charged(each)
			took("Take", n, err)
			must[int64](t)(c.Reset(ctx, keys...))
			hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, req))
			took("Hold", tt.want, nil)
			must[client.Result](t)(hold.Settle(ctx, 0))
			if got := all(); slices.Max(got) > 0 {
				t.Errorf("Settle(0) of %v %v left %v", tt.limits, tt.costs, got)
			}
			must[int64](t)(c.Reset(ctx, keys...))
		}

		req := client.Request{Keys: keys, Limits: []client.Limit{"@one", "@two", "@enforced"}, Costs: []int64{95}, UpTo: true, Each: true}
		for _, want := range [][]int64{{40, 10, 10, 90}, {0, 0, 0, 0}} {
			if n := must[[]int64](t)(must[client.Result](t)(c.Take(ctx, req)).Charged(req)); !slices.Equal(n, want) || !slices.Equal(all(), []int64{40, 10, 10, 90}) {
				t.Errorf("up to 95: %v taken, Charged is %v, want %v", all(), n, want)
			}
		}
		must[int64](t)(c.Reset(ctx, keys...))

		// A turn that cannot be waited for is given back, and no more.
		queue := []string{"{x}d", "{x}e"}
		must[client.Result](t)(c.Take(ctx, client.Request{Keys: queue, Limits: []client.Limit{"@queue"}}))
		must[client.Result](t)(c.Take(ctx, client.Request{Keys: keys[:2], Limits: []client.Limit{"@two"}, Costs: []int64{5}}))
		turn := client.Request{Keys: append(keys[:3:3], queue...), Limits: []client.Limit{"@two", "@one", "@queue"}, Costs: []int64{5, 70, 5, 1, 1}}
		var limited *client.Error
		if err := c.Wait(ctx, until(turn, time.Now().Add(time.Second))); !asLimited(err, &limited) {
			t.Error(err)
		}
		if got := all()[:3]; !slices.Equal(got, []int64{5, 5, 0}) || left(t, c, queue[1], "fixed_window 20/d") != 19 {
			t.Errorf("after a turn that was given back, %v are used", got)
		}
	}, embedded.WithLibrary(build.Text()))
}
