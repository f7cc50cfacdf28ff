package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestCharged(t *testing.T) {
	lost := &client.Result{Source: client.SourcePolicy, Allowed: true, Err: client.ErrOutcomeUnknown}
	down := &client.Result{Source: client.SourceLocal, Allowed: true, Err: client.ErrUnavailable}
	denied := func(index int, each ...bool) *client.Result {
		res := &client.Result{Allowed: true, Shadow: &client.Shadow{Index: index}}
		for _, allowed := range each {
			res.Each = append(res.Each, client.KeyResult{Allowed: allowed})
		}
		return res
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
		{"from a batch", "1/s", 1, nil, false, &client.Result{Allowed: true, Source: client.SourceBatch}, []int64{1}, nil},
		{"denied", "1/s", 1, nil, false, &client.Result{}, []int64{0}, nil},
		{"from memory", "1/s", 1, nil, false, &client.Result{Source: client.SourceMemory}, []int64{0}, nil},
		{"no server", "1/s", 1, nil, false, down, []int64{0}, nil},
		{"lost", "1/s", 1, nil, false, lost, []int64{0}, client.ErrOutcomeUnknown},
		{"lost and denied", "1/s", 1, nil, false, &client.Result{Source: client.SourceLocal, Err: client.ErrOutcomeUnknown}, []int64{0}, client.ErrOutcomeUnknown},
		{"up to", "1/s", 1, []int64{9}, true, &client.Result{Allowed: true, Taken: 4}, []int64{4}, nil},
		{"not the request", "1/s", 2, nil, false, &client.Result{Allowed: true}, nil, client.ErrBadKeys},

		{"shadow that allows", "@a", 1, nil, false, &client.Result{Allowed: true, Shadow: &client.Shadow{Allowed: true, Index: 1}}, []int64{1}, nil},
		{"shadow", "@a", 2, []int64{3, 5}, false, denied(2), []int64{0, 0}, nil},
		{"between limits", "1/s @a 1/s", 4, []int64{2}, false, denied(3), []int64{2, 0, 0, 2}, nil},
		{"first of two", "@a @b", 2, nil, false, denied(1), []int64{0, 1}, nil},
		{"second of two", "@a @b", 2, nil, false, denied(2), []int64{1, 0}, nil},
		{"both of two", "@a 1/s @b", 3, nil, false, denied(1, false, true, false), []int64{0, 1, 0}, nil},
		{"two of unknown sizes", "@a 1/s @b", 4, nil, false, denied(2, true, false, true, true), []int64{1, 0, 1, 1}, nil},
		{"up to, shadow", "1/s @a", 2, []int64{9}, true, &client.Result{Allowed: true, Taken: 4, Shadow: &client.Shadow{Allowed: true, Taken: 2, Index: 2}}, []int64{4, 2}, nil},
		{"up to, shadow that denies", "1/s @a", 2, []int64{9}, true, &client.Result{Allowed: true, Taken: 4, Shadow: &client.Shadow{Index: 2}}, []int64{4, 0}, nil},
	} {
		req := client.Request{Keys: []string{"a", "b", "c", "d"}[:tt.keys], Costs: tt.costs, UpTo: tt.upTo}
		for limit := range strings.FieldsSeq(tt.limits) {
			req.Limits = append(req.Limits, client.Limit(limit))
		}
		if got, err := tt.res.Charged(req); !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// If a fallback decided because a reply was lost, a Hold and a Reservation give nothing back, and
// say that the units may have been charged.
func TestLostReplyIsNotGivenBack(t *testing.T) {
	for name, fallback := range map[string]client.Fallback{"FailOpen": client.FailOpen, "FailClosed": client.FailClosed, "LocalLimiter": client.LocalLimiter(1)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *virtual, plain *client.Client) {
				ctx, h := t.Context(), &heard{}
				c := v.client(t, client.WithPrefix("rl:"), client.WithFallback(fallback), client.WithObserver(h.observer()))
				v.refuse = func(string, int) (error, error) { return nil, context.DeadlineExceeded }
				hold := must[*client.Hold](t)(c.Hold(ctx, "k", "100/d", 40))
				r := must[*client.Reservation](t)(c.ReserveN(ctx, "r", "100/d", 40))
				v.refuse = nil
				h.calls = nil
				want := `ratelimit: refund "rl:k": not sent, since the units may not have been taken: the outcome of the take is unknown (ratelimit: take "rl:k": sent, but the reply was lost;`
				for range 2 {
					for _, actual := range []int64{0, 40, 60} {
						if _, err := hold.Settle(ctx, actual); !errors.Is(err, client.ErrOutcomeUnknown) || !strings.HasPrefix(err.Error(), want) {
							t.Errorf("settled with %d: %v", actual, err)
						}
					}
					wantClasses(t, "canceled", r.Cancel(ctx), client.ErrOutcomeUnknown, client.ErrUnavailable)
				}
				if len(h.calls) != 8 {
					t.Errorf("observed %d calls, want 8", len(h.calls))
				}
				if n, m := left(t, plain, "k", "100/d"), left(t, plain, "r", "100/d"); n != 60 || m != 60 || v.seen("refund") != 0 {
					t.Errorf("%d and %d are left after %d refunds", n, m, v.seen("refund"))
				}
			})
		})
	}
}

// If a fallback decided and no server was reached, nothing is corrected, even of an estimate of 0.
func TestSettleOfNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, plain *client.Client) {
		c := v.client(t, client.WithPrefix("rl:"), client.WithFallback(client.FailOpen))
		v.refuse = func(string, int) (error, error) { return answered("LOADING"), nil }
		hold := must[*client.Hold](t)(c.Hold(t.Context(), "k", "100/d", 0))
		v.refuse = nil
		if res, err := hold.Settle(t.Context(), 5); err != nil || res.Source != client.SourcePolicy || left(t, plain, "k", "100/d") != 100 {
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
		r := must[*client.Reservation](t)(c.ReserveN(ctx, keys[0], "@new", 20))
		if err := r.Cancel(ctx); err != nil || !r.OK() {
			t.Error(err)
		}
		want("a reservation", 30)
		hold := must[*client.Hold](t)(c.Hold(ctx, keys[0], "@new", 20))
		if res, err := hold.Settle(ctx, 5); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		want("a hold", 30)
		hold = must[*client.Hold](t)(c.Hold(ctx, keys[0], "@new", 10))
		must[client.Result](t)(hold.Settle(ctx, 2))
		want("a hold that it allows", 32)
		must[client.Result](t)(c.RefundN(ctx, keys[0], "@new", 2))

		// Beside an enforced limit, and two of them at once.
		for _, actual := range []int64{5, 25} {
			hold = must[*client.Hold](t)(c.HoldRequest(ctx, client.Request{Keys: keys, Limits: []client.Limit{"@new", day, "@more"}, Costs: []int64{20}}))
			want("an estimate", 30, 50, 30)
			if res := hold.Result(); res.Each != nil || res.Shadow == nil || res.Shadow.Allowed {
				t.Errorf("%+v", res)
			}
			must[client.Result](t)(hold.Settle(ctx, actual))
			want("a settlement", 30, 30+actual, 30)
			must[client.Result](t)(c.RefundN(ctx, keys[1], day, actual))
		}
	}, embedded.WithLibrary(build.Text()))
}
