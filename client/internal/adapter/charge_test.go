package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// wire is the connection to a server. It is used as a hook of the Redis client.
type wire struct {
	down bool // calls are not sent
	lose bool // calls are executed, and their replies are lost
}

func (w *wire) hook(_ context.Context, _ string, next func() error) error {
	if w.down {
		return redis.ErrPoolTimeout
	}
	err := next()
	if w.lose {
		return io.ErrUnexpectedEOF
	}
	return err
}

// charging returns a client that is connected by wire to a server with the policies, and a client
// that is always connected.
func charging(t *testing.T, w *wire, fallback client.Fallback, policies ...functions.Policy) (limiter, plain *client.Client) {
	t.Helper()
	build := limitertest.Must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(limitertest.Noon))
	return limitertest.Hooked(t, server, w.hook, client.WithFallback(fallback)), limitertest.Open(t, server)
}

// take takes units, and returns their charge.
func take(t *testing.T, limiter *client.Client, req client.Request) *adapter.Charge {
	t.Helper()
	result := limitertest.Must[client.Result](t)(adapter.Take(t.Context(), limiter, req))
	if !result.Allowed {
		t.Fatalf("%+v", result)
	}
	return adapter.NewCharge(limiter, req, result, func(client.Request, client.Result) {})
}

func one(n int64) client.Request {
	return client.Request{Keys: []string{"k"}, Limits: []client.Limit{"100/d"}, Costs: []int64{n}}
}

// wantMore charges n more units.
func wantMore(t *testing.T, c *adapter.Charge, n, want int64, class error) {
	t.Helper()
	if charged, err := c.More(t.Context(), n); charged != want || !errors.Is(err, class) {
		t.Errorf("%d more: %d, %v; want %d, %v", n, charged, err, want, class)
	}
}

// wantRefund gives n units back. If text is not empty, it wants an error with this text.
func wantRefund(t *testing.T, c *adapter.Charge, n int64, text string, class error) {
	t.Helper()
	err := c.Refund(t.Context(), n)
	if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) || class != nil && !errors.Is(err, class) {
		t.Errorf("a refund of %d: %v, want %q", n, err, text)
	}
}

// Nothing is given back that no server charged, whatever the fallback says, and a lost reply is
// reported, whatever the fallback says.
func TestChargeIsWhatAServerCharged(t *testing.T) {
	for name, fallback := range limitertest.Fallbacks {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			limiter, plain := charging(t, w, fallback)
			limitertest.Must[client.Result](t)(plain.AllowN(t.Context(), "k", "100/d", 30)) // by others
			charge := take(t, limiter, one(1))
			byLocal, most := name == "LocalFallback", int64(1)

			w.down = true
			if byLocal {
				wantMore(t, charge, 20, 20, nil)
				most = 21
			} else {
				wantMore(t, charge, 20, 0, client.ErrUnavailable)
			}
			w.down = false
			wantRefund(t, charge, most+1, fmt.Sprintf("where the request is charged %d;", most), nil)
			limitertest.WantUsed(t, plain, "k", 31)

			w.lose = true
			wantMore(t, charge, 10, 0, client.ErrOutcomeUnknown)
			w.lose = false
			limitertest.WantUsed(t, plain, "k", 41)
			wantRefund(t, charge, most+1, fmt.Sprintf("where the request is charged %d;", most), nil)

			wantMore(t, charge, 5, 5, nil)
			wantRefund(t, charge, 4, "", nil)
			limitertest.WantUsed(t, plain, "k", 42)
			wantRefund(t, charge, most+1, "", nil) // 2 of the server, and all that only this process charged
			limitertest.WantUsed(t, plain, "k", 40)
			wantRefund(t, charge, 1, "where the request is charged 0;", nil)
		})
	}
}

// After a refund whose outcome is unknown, a second refund is not sent. The error says why.
func TestChargeRefundsOnce(t *testing.T) {
	w := &wire{}
	limiter, plain := charging(t, w, client.ReturnError)
	limitertest.Must[client.Result](t)(plain.AllowN(t.Context(), "k", "100/d", 60))
	charge := take(t, limiter, one(20))
	w.down = true
	wantRefund(t, charge, 10, "no connection", client.ErrUnavailable) // not executed, so it can be repeated
	w.down, w.lose = false, true
	wantRefund(t, charge, 10, "the reply was lost", client.ErrOutcomeUnknown)
	w.lose = false
	for range 2 {
		wantRefund(t, charge, 10, "a refund of 10, not sent, since an earlier refund of the request may have given the units back", client.ErrOutcomeUnknown)
	}
	limitertest.WantUsed(t, plain, "k", 70)
	wantMore(t, charge, 5, 5, nil)
	limitertest.WantUsed(t, plain, "k", 75)
}

// If a LocalFallback allowed the request, later units of a server are given back, and no others.
func TestChargeAfterALocalFallback(t *testing.T) {
	w := &wire{down: true}
	limiter, plain := charging(t, w, client.LocalFallback(1))
	charge := take(t, limiter, one(10))
	w.down = false
	limitertest.Must[client.Result](t)(plain.AllowN(t.Context(), "k", "100/d", 30))
	wantRefund(t, charge, 1, "", nil) // of those that only this process charged
	wantMore(t, charge, 50, 50, nil)
	wantRefund(t, charge, 60, "where the request is charged 59;", nil)
	w.down = true
	wantRefund(t, charge, 51, "connection", nil) // neither part is given back
	w.down = false
	wantRefund(t, charge, 51, "", nil)
	wantRefund(t, charge, 8, "", nil)
	wantRefund(t, charge, 1, "where the request is charged 0;", nil)
	limitertest.WantUsed(t, plain, "k", 30)

	// If the reply of the server was lost, it may have charged the request.
	w.lose = true
	charge = take(t, limiter, one(10))
	w.lose = false
	limitertest.WantUsed(t, plain, "k", 40)
	wantRefund(t, charge, 10, "a refund of 10, not sent, since the units may not have been charged", client.ErrOutcomeUnknown)
	wantMore(t, charge, 50, 50, nil)
	wantRefund(t, charge, 51, "a refund of 51, not sent, since the units may not have been charged", client.ErrOutcomeUnknown)
	wantRefund(t, charge, 50, "", nil)
	limitertest.WantUsed(t, plain, "k", 40)
}

// What a shadow policy did not charge is not given back to it, and what it would have denied is not
// charged to it later. The enforced limits are corrected as if there were no shadow policy.
func TestChargeUnderAShadow(t *testing.T) {
	const day = "fixed_window 100/d"
	limit := func(key string) functions.PolicyLimit { return functions.PolicyLimit{Key: key, Limit: day} }
	policies := []functions.Policy{
		{Name: "old", Limits: []functions.PolicyLimit{limit("a"), limit("b")}},
		{Name: "new", Limits: []functions.PolicyLimit{{Limit: "fixed_window 40/d"}}, Shadow: true},
		{Name: "more", Limits: []functions.PolicyLimit{{Limit: "fixed_window 40/d"}}, Shadow: true},
		{Name: "two", Limits: []functions.PolicyLimit{limit("a"), {Key: "b", Limit: "fixed_window 40/d"}}, Shadow: true},
	}
	for _, tt := range []struct {
		name   string
		limits []client.Limit
		cost   int64
		upTo   bool
		want   [4][]int64 // units used of each key after a take, a refund of 3, 5 more, and a refund of all
	}{
		{"shadow alone", []client.Limit{"@new"}, 20, false, [4][]int64{{30}, {30}, {30}, {30}}},
		{"shadow that allows", []client.Limit{"@new"}, 10, false, [4][]int64{{40}, {37}, {42}, {30}}},
		{"limit and shadow", []client.Limit{day, "@new"}, 20, false, [4][]int64{{50, 30}, {47, 30}, {52, 30}, {30, 30}}},
		{"shadow and limit", []client.Limit{"@new", day}, 20, false, [4][]int64{{30, 50}, {30, 47}, {30, 52}, {30, 30}}},
		{"shadow of two keys", []client.Limit{day, "@two", day}, 20, false, [4][]int64{{50, 30, 30, 50}, {47, 30, 30, 47}, {52, 30, 30, 52}, {30, 30, 30, 30}}},
		{"two shadows", []client.Limit{"@more", day, "@new"}, 20, false, [4][]int64{{30, 50, 30}, {30, 47, 30}, {30, 52, 30}, {30, 30, 30}}},
		{"policy of two keys and shadow", []client.Limit{"@old", "@new"}, 20, false, [4][]int64{{50, 50, 30}, {47, 47, 30}, {52, 52, 30}, {30, 30, 30}}},
		{"up to", []client.Limit{day, "@new"}, 20, true, [4][]int64{{50, 40}, {47, 40}, {52, 45}, {30, 30}}},
		{"up to, shadow alone", []client.Limit{"@new"}, 20, true, [4][]int64{{40}, {40}, {45}, {30}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, plain := charging(t, &wire{}, client.ReturnError, policies...)
			keys := []string{"{x}a", "{x}b", "{x}c", "{x}d"}[:len(tt.want[0])]
			want := func(step int) {
				t.Helper()
				var got []int64
				for _, key := range keys {
					got = append(got, 100-limitertest.Must[client.Result](t)(plain.Peek(t.Context(), client.For(key, day, 0))).Remaining)
				}
				if !slices.Equal(got, tt.want[step]) {
					t.Errorf("step %d: %v are used, want %v", step, got, tt.want[step])
				}
			}
			for _, key := range keys {
				limitertest.Must[client.Result](t)(plain.AllowN(t.Context(), key, day, 30))
			}
			charge := take(t, limiter, client.Request{Keys: keys, Limits: tt.limits, Costs: []int64{tt.cost}, UpTo: tt.upTo})
			want(0)
			wantRefund(t, charge, 3, "", nil)
			want(1)
			charged, err := charge.More(t.Context(), 5)
			limitertest.Check(t, err)
			want(2)
			wantRefund(t, charge, tt.cost-3+charged, "", nil)
			want(3)
		})
	}
}

// The methods of a nil Charge do nothing. 0 units are not sent, and neither are units for a shadow
// policy that takes no part.
func TestChargeOfNothing(t *testing.T) {
	var none *adapter.Charge
	wantRefund(t, none, 5, "", nil)
	wantMore(t, none, 5, 0, nil)
	if result := none.Result(); result.Allowed || result.Source != "" {
		t.Errorf("%+v", result)
	}

	w := &wire{}
	limiter, _ := charging(t, w, client.ReturnError, functions.Policy{Name: "new", Limits: []functions.PolicyLimit{{Limit: "40/d"}}, Shadow: true})
	charge := take(t, limiter, one(10))
	denied := take(t, limiter, client.Request{Keys: []string{"k"}, Limits: []client.Limit{"@new"}, Costs: []int64{50}})
	w.down = true
	wantRefund(t, charge, 0, "", nil)
	wantMore(t, charge, 0, 0, nil)
	wantRefund(t, denied, 5, "", nil)
	wantMore(t, denied, 5, 0, nil)
}

// A key with the cost 0 takes part in later charges, next to a shadow policy too.
func TestChargeWithoutACost(t *testing.T) {
	limiter, plain := charging(t, &wire{}, client.ReturnError, functions.Policy{Name: "new", Limits: []functions.PolicyLimit{{Limit: "40/d"}}, Shadow: true})
	charge := take(t, limiter, client.Request{Keys: []string{"{x}a", "{x}b"}, Limits: []client.Limit{"100/d", "@new"}, Costs: []int64{0, 50}})
	wantMore(t, charge, 5, 5, nil)
	limitertest.WantUsed(t, plain, "{x}a", 5)
}

// old is a hook that makes a server reply as a library without EACH.
type old struct{}

func (old) DialHook(next redis.DialHook) redis.DialHook { return next }

func (old) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }

func (old) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("EACH")) {
			cmd.SetErr(badLimit{})
			return badLimit{}
		}
		return next(ctx, cmd)
	}
}

type badLimit struct{}

func (badLimit) Error() string { return `RATELIMIT BADLIMIT "EACH": not a limit` }
func (badLimit) RedisError()   {}

// Take sets Each only for several policies.
func TestTakeWithoutEach(t *testing.T) {
	limiter, _ := charging(t, &wire{}, client.ReturnError)
	if result := limitertest.Must[client.Result](t)(adapter.Take(t.Context(), limiter, one(1))); len(result.Each) != 0 {
		t.Errorf("%+v", result.Each)
	}
}

// A library that is too old for Each still decides.
func TestTakeNeedsNoEach(t *testing.T) {
	build := limitertest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "a", Limits: []functions.PolicyLimit{{Limit: "1/d"}}}, functions.Policy{Name: "b", Limits: []functions.PolicyLimit{{Limit: "9/d"}}, Shadow: true})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(limitertest.Noon))
	for name, fallback := range limitertest.Fallbacks {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		rdb.AddHook(old{})
		limiter := limitertest.Must[*client.Client](t)(client.New(rdb, client.WithFallback(fallback)))
		req := client.Request{Keys: []string{name + "{k}1", name + "{k}2"}, Limits: []client.Limit{"@a", "@b"}}
		for _, want := range []bool{true, false} {
			result, err := adapter.Take(t.Context(), limiter, req)
			if err != nil || result.Allowed != want || result.Source != "server" {
				t.Errorf("%s: %+v, %v; want %v from the server", name, result, err, want)
			}
		}
		req.Each = true // asked for by the caller
		if _, err := adapter.Take(t.Context(), limiter, req); fallback == client.ReturnError && !errors.Is(err, client.ErrNotDeployed) {
			t.Errorf("%s: %v, want ErrNotDeployed", name, err)
		}
		limitertest.Check(t, limiter.Close())
		limitertest.Check(t, rdb.Close())
	}
}

// A charge with Borrow is given back to who paid, and more is charged to the same keys.
func TestChargeOfALoan(t *testing.T) {
	for _, tt := range []struct {
		name string
		cost int64
		want [3][2]int64 // units used of the guarantee and the pool after the take, a refund of 1, and 2 more
	}{
		{"guarantee", 5, [3][2]int64{{5, 5}, {4, 4}, {6, 6}}},
		{"loan", 20, [3][2]int64{{0, 20}, {0, 19}, {0, 21}}},
	} {
		limiter, plain := charging(t, &wire{}, client.ReturnError)
		req := client.Request{Keys: []string{"{p}:a", "{p}"}, Limits: []client.Limit{"10/d", "100/d"}, Costs: []int64{tt.cost}, Borrow: true, Floor: 50}
		charge := take(t, limiter, req)
		for i, step := range []func(){
			func() {},
			func() { wantRefund(t, charge, 1, "", nil) },
			func() { wantMore(t, charge, 2, 2, nil) },
		} {
			step()
			for k, want := range tt.want[i] {
				got := limitertest.Must[client.Result](t)(plain.Peek(t.Context(), client.For(req.Keys[k], req.Limits[k], 0)))
				if used := got.Limit - got.Remaining; used != want {
					t.Errorf("%s, step %d: %d of %s are used, want %d", tt.name, i, used, req.Keys[k], want)
				}
			}
		}
	}
}
