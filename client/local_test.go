package client_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// alone returns a client whose LocalFallback uses half of each limit in reqs. The client learned
// these limits from a server that is gone now. The client's clock is stopped until advance is
// called.
func alone(t *testing.T, reqs ...client.Request) (c *client.Client, advance func(time.Duration)) {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "a", Limit: "8/s"}, {Key: "b", Limit: "4/s"}}},
		functions.Policy{Name: "try", Limits: []functions.PolicyLimit{{Limit: "2/s"}}, Shadow: true},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "4/s"}, {Key: "pool", Limit: "4/s"}}, Borrow: true, Floor: 80},
	)))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()))
	now := noon
	c = open(t, "redis://"+server.Addr(), client.WithFallback(client.LocalFallback(0.5)), client.WithTimeout(slow), client.WithClock(func() time.Time { return now }))
	for _, req := range reqs {
		if res := must[client.Result](t)(c.Take(t.Context(), req)); res.Source != "server" || res.Err != nil {
			t.Fatalf("%+v, with a server", res)
		}
		for _, limit := range req.Limits {
			eventually(t, "the client has learned "+string(limit), func() bool { return client.Knows(c, limit) })
		}
	}
	require(t, server.Close())
	return c, func(d time.Duration) { now = now.Add(d) }
}

func one(key string, limit client.Limit, costs ...int64) client.Request {
	return client.Request{Keys: []string{key}, Limits: []client.Limit{limit}, Costs: costs}
}

func wantLocal(t *testing.T, name string, c *client.Client, req client.Request, want client.Result) {
	t.Helper()
	got, err := c.Take(t.Context(), req)
	if !errors.Is(got.Err, client.ErrUnavailable) {
		t.Errorf("%s: decided by %s because of %v", name, got.Source, got.Err)
	}
	got.Err, want.Source = nil, "local"
	wantResult(t, name, got, err, want)
}

// A single process admits its share of each limit, separately for each key, and returns what a
// server would return for that share.
func TestLocalFallback(t *testing.T) {
	const limit = "10/s burst=20" // half of it: 5 a second, 10 at once
	upTo := one("up", limit, 7)
	upTo.UpTo = true
	c, advance := alone(t, one("k", limit), one("k", "10/s burst=20, 60/m"), one("k", "1/m"))
	wantLocal(t, "the first", c, one("k", limit), client.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 200 * time.Millisecond, Index: 1})
	wantLocal(t, "the rest", c, one("k", limit, 9), client.Result{Allowed: true, Limit: 10, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "more", c, one("k", limit, 2), client.Result{Limit: 10, RetryAfter: 400 * time.Millisecond, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "nothing", c, one("k", limit, 0), client.Result{Allowed: true, Limit: 10, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "more than the share holds", c, one("k", limit, 11), client.Result{Limit: 10, RetryAfter: time.Second, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "as much as the limit holds", c, one("k", limit, 20), client.Result{Limit: 10, RetryAfter: time.Second, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "too much for ever", c, one("k", limit, 21), client.Result{Limit: 10, RetryAfter: client.Never, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "another key", c, one("l", limit), client.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 200 * time.Millisecond, Index: 1})
	advance(399 * time.Millisecond)
	wantLocal(t, "too early", c, one("k", limit, 2), client.Result{Limit: 10, Remaining: 1, RetryAfter: time.Millisecond, ResetAfter: 1601 * time.Millisecond, Index: 1})
	advance(time.Millisecond)
	wantLocal(t, "after the wait", c, one("k", limit, 2), client.Result{Allowed: true, Limit: 10, ResetAfter: 2 * time.Second, Index: 1})

	wantLocal(t, "up to", c, upTo, client.Result{Allowed: true, Taken: 7, Limit: 10, Remaining: 3, ResetAfter: 1400 * time.Millisecond, Index: 1})
	wantLocal(t, "up to what is left", c, upTo, client.Result{Allowed: true, Taken: 3, Limit: 10, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "up to nothing", c, upTo, client.Result{Limit: 10, RetryAfter: 200 * time.Millisecond, ResetAfter: 2 * time.Second, Index: 1})

	forced := one("forced", limit, 15)
	forced.Force = true
	wantLocal(t, "forced", c, forced, client.Result{Allowed: true, Limit: 10, RetryAfter: 1200 * time.Millisecond, ResetAfter: 3 * time.Second, Index: 1})
	forced.Costs = []int64{1000}
	wantLocal(t, "forced to the end of the debt", c, forced, client.Result{Allowed: true, Limit: 10, RetryAfter: 2200 * time.Millisecond, ResetAfter: 4 * time.Second, Index: 1})
	upTo.Keys = forced.Keys
	wantLocal(t, "up to, in debt", c, upTo, client.Result{Limit: 10, RetryAfter: 2200 * time.Millisecond, ResetAfter: 4 * time.Second, Index: 1})

	wantLocal(t, "two rates", c, one("two", "10/s burst=20, 60/m", 10), client.Result{Allowed: true, Limit: 10, ResetAfter: 20 * time.Second, Index: 1})
	advance(4 * time.Second)
	wantLocal(t, "two rates, the slower", c, one("two", "10/s burst=20, 60/m", 10), client.Result{Allowed: true, Limit: 10, ResetAfter: 36 * time.Second, Index: 1})
	wantLocal(t, "half a token is one", c, one("few", "1/m"), client.Result{Allowed: true, Limit: 1, ResetAfter: 2 * time.Minute, Index: 1})
}

// A LocalFallback charges either all keys of a call or none. A shadow policy never denies a call.
func TestLocalFallbackOfSeveralKeys(t *testing.T) {
	calc := client.Request{Keys: []string{"{x}a", "{x}b"}, Limits: []client.Limit{"@calc"}}
	both := client.Request{Keys: []string{"{x}t", "{x}c"}, Limits: []client.Limit{"@try", "4/s"}}
	try := one("{x}t", "@try", 100)
	c, _ := alone(t, calc, both)
	wantLocal(t, "one", c, calc, client.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 500 * time.Millisecond, Index: 2})
	wantLocal(t, "two", c, calc, client.Result{Allowed: true, Limit: 2, ResetAfter: time.Second, Index: 2})
	wantLocal(t, "three", c, calc, client.Result{Limit: 2, RetryAfter: 500 * time.Millisecond, ResetAfter: time.Second, Index: 2})
	costs := calc
	costs.Costs = []int64{2, 0}
	wantLocal(t, "what a denied call left", c, costs, client.Result{Allowed: true, Limit: 4, ResetAfter: time.Second, Index: 1})
	costs.Costs = []int64{1, 0}
	wantLocal(t, "the first key denies", c, costs, client.Result{Limit: 4, RetryAfter: 250 * time.Millisecond, ResetAfter: time.Second, Index: 1})
	wantLocal(t, "beside a shadow", c, both, client.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 500 * time.Millisecond, Index: 2})
	costs.Costs = []int64{0, 3}
	wantLocal(t, "more than the share of one", c, costs, client.Result{Limit: 2, RetryAfter: time.Second, ResetAfter: time.Second, Index: 2})
	wantLocal(t, "a shadow alone", c, try, client.Result{Allowed: true, Index: 1})

	calc.Keys = calc.Keys[:1]
	_, err := c.Take(t.Context(), calc)
	wantClasses(t, "a key too few", err, typed("bad_keys"))
}

// Under a policy of a guarantee and a pool, each tenant has the share of its guarantee, whatever others took
// from the pool.
func TestLocalFallbackOfAGuarantee(t *testing.T) {
	of := func(tenant string) client.Request {
		return client.Request{Keys: []string{tenant + "{p}", "pool{p}"}, Limits: []client.Limit{"@tenant"}, Costs: []int64{2}}
	}
	c, _ := alone(t, of("other"))
	for _, tenant := range []string{"ann", "bob"} {
		wantLocal(t, tenant, c, of(tenant), client.Result{Allowed: true, Limit: 2, ResetAfter: time.Second, Index: 1})
		wantLocal(t, tenant+" again", c, of(tenant), client.Result{Limit: 2, RetryAfter: time.Second, ResetAfter: time.Second, Index: 1})
	}
}

// The longest wait of the keys that deny is the wait of the call, and Never is the longest.
func TestLocalFallbackWaitsForTheSlowestKey(t *testing.T) {
	const slowest, fastest = "2/s", "10/s burst=20"
	c, _ := alone(t, one("slowest", slowest), one("fastest", fastest))
	both := func(cost int64) client.Request {
		return client.Request{Keys: []string{"slowest", "fastest"}, Limits: []client.Limit{slowest, fastest}, Costs: []int64{cost, 1}}
	}
	wantLocal(t, "the slowest", c, one("slowest", slowest), client.Result{Allowed: true, Limit: 1, ResetAfter: time.Second, Index: 1})
	wantLocal(t, "the fastest", c, one("fastest", fastest, 10), client.Result{Allowed: true, Limit: 10, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "both", c, both(1), client.Result{Limit: 1, RetryAfter: time.Second, ResetAfter: 2 * time.Second, Index: 1})
	wantLocal(t, "never", c, both(3), client.Result{Limit: 1, RetryAfter: client.Never, ResetAfter: 2 * time.Second, Index: 1})
}

// A request's LocalFallback without policies has those of the client's; with policies, it has only its own.
func TestLocalFallbackOfARequest(t *testing.T) {
	build := func(limit string) []functions.Policy {
		return must[functions.Build](t)(functions.New(functions.WithPolicies(
			functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: limit}}}))).Policies()
	}
	c := open(t, "redis://127.0.0.1:1", client.WithFallback(client.LocalFallback(1, build("8/s")...)), client.WithTimeout(slow))
	for want, fallback := range map[int64]client.Fallback{8: client.LocalFallback(1), 4: client.LocalFallback(1, build("4/s")...)} {
		req := one(fmt.Sprint(want), "@api")
		req.Fallback = fallback
		if res, err := c.Take(t.Context(), req); err != nil || res.Limit != want || res.Source != "local" {
			t.Errorf("%+v, %v, want a limit of %d", res, err, want)
		}
	}
}

// The local limiter does not decide on a policy that it has learned neither from a server nor from
// LocalFallback, or on a limit that cannot be parsed. The call returns the error.
func TestLocalFallbackOfUnknownLimits(t *testing.T) {
	c, _ := alone(t)
	_, err := c.Allow(t.Context(), "k", "5/x")
	if err == nil || !strings.HasSuffix(err.Error(), `; and no local limiter stands in for the limit "5/x": it cannot be read: "x" is not a period such as 1s, 5m or 30d, of at most 36500d`) {
		t.Error(err)
	}
	_, err = c.Allow(t.Context(), "k", "@try")
	if err == nil || !strings.HasSuffix(err.Error(), `; and no local limiter stands in for the limit "@try": no server has told yet what it says; give it to LocalFallback`) {
		t.Error(err)
	}
	wantClasses(t, "unknown", err, client.ErrUnavailable)
	req := one("k", "5/m")
	for _, share := range []float64{-1, 0, 1.01} {
		req.Fallback = client.LocalFallback(share)
		_, err := c.Take(t.Context(), req)
		wantClasses(t, fmt.Sprint("a share of ", share), err, typed("bad_args"))
	}

	// This library is too old: its ratelimit_info does not accept a limit.
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "five", Limits: []functions.PolicyLimit{{Limit: "5/m"}}})))
	server := embedded.Run(t, embedded.WithLibrary(tooOldForLimits(t, build.Text())))
	p := startProxy(t, server.Addr())
	old := open(t, "redis://"+p.addr(), client.WithFallback(client.LocalFallback(1)), client.WithTimeout(slow))
	must[client.Result](t)(old.Allow(t.Context(), "k", "@five"))
	eventually(t, "it is asked for", func() bool { return p.seen() == 2 })
	require(t, server.Close())
	_, err = old.Allow(t.Context(), "k", "@five")
	if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "no local limiter stands in") {
		t.Errorf("not told: %v", err)
	}
}

// The client fetches a policy from a server after the first decision on it, and again once a minute
// has passed, because the policy may have changed.
func TestLocalFallbackLearnsAnew(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "five", Limits: []functions.PolicyLimit{{Limit: "5/m"}}})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()))
	p := startProxy(t, server.Addr())
	now := noon
	c := open(t, "redis://"+p.addr(), client.WithFallback(client.LocalFallback(1)), client.WithTimeout(slow), client.WithClock(func() time.Time { return now }))
	for minute := range 2 {
		for i := range 5 {
			must[client.Result](t)(c.Allow(t.Context(), "k", "@five"))
			if i == 0 {
				eventually(t, "it is asked for", func() bool { return p.seen() == 6*minute+2 })
			}
		}
		if n := p.seen(); n != 6*(minute+1) {
			t.Errorf("%d calls, want 5 takes and one question a minute", n)
		}
		eventually(t, "it is known", func() bool { return client.Knows(c, "@five") })
		now = now.Add(client.RefreshAfter)
	}
}

// If the wait for a unit of a slow limit exceeds the longest time.Duration, RetryAfter is that
// duration.
func TestLocalFallbackOfASlowLimit(t *testing.T) {
	const limit = "1/36500d"
	c, advance := alone(t, one("k", limit))
	must[client.Result](t)(c.Take(t.Context(), one("k", limit)))
	wantLocal(t, "the second", c, one("k", limit), client.Result{Limit: 1, RetryAfter: 73000 * 24 * time.Hour, ResetAfter: 73000 * 24 * time.Hour, Index: 1})
	slow := one("l", limit)
	slow.Fallback = client.LocalFallback(0.01)
	must[client.Result](t)(c.Take(t.Context(), slow))
	advance(time.Millisecond)
	wantLocal(t, "beyond what a time.Duration holds", c, slow, client.Result{Limit: 1, RetryAfter: math.MaxInt64, ResetAfter: math.MaxInt64, Index: 1})
}

// A monthly quota refills within 31 days, the longest month. Waits are rounded up.
func TestLocalFallbackOfAMonth(t *testing.T) {
	const limit = "fixed_window 62/mo align=clock zone=+05:30"
	c, advance := alone(t, one("k", limit))
	wantLocal(t, "half the quota", c, one("k", limit, 31), client.Result{Allowed: true, Limit: 31, ResetAfter: 31 * 24 * time.Hour, Index: 1})
	advance(23 * time.Hour)
	wantLocal(t, "one more", c, one("k", limit), client.Result{Limit: 31, RetryAfter: time.Hour + time.Millisecond, ResetAfter: (30*24 + 1) * time.Hour, Index: 1})
}

// With Each, a local limiter returns a separate result for each key.
func TestLocalFallbackEach(t *testing.T) {
	req := client.Request{Keys: []string{"{x}a", "{x}t", "{x}b"}, Limits: []client.Limit{"4/s", "@try", "8/s, 16/m"}}
	c, _ := alone(t, req)
	req.Each = true
	key := func(allowed bool, limit, remaining int64, retry, reset time.Duration) client.Result {
		return client.Result{Allowed: allowed, Limit: limit, Remaining: remaining, RetryAfter: retry * time.Millisecond, ResetAfter: reset * time.Millisecond}
	}
	shadow := key(true, 0, 0, 0, 0)
	for _, step := range []struct {
		name  string
		costs []int64
		upTo  bool
		want  []client.Result
	}{
		{"allowed", []int64{1, 9, 2}, false, []client.Result{key(true, 2, 1, 0, 500), shadow, key(true, 4, 2, 0, 15000)}},
		{"denied by the first", []int64{2}, false, []client.Result{key(false, 2, 1, 500, 500), shadow, key(true, 4, 2, 0, 15000)}},
		{"as many as fit", []int64{9}, true, []client.Result{key(true, 2, 0, 0, 1000), shadow, key(true, 4, 1, 0, 22500)}},
		{"nothing", []int64{0}, true, []client.Result{key(false, 2, 0, 0, 1000), {Limit: 0}, key(false, 4, 1, 0, 22500)}},
		{"none fits", []int64{9}, true, []client.Result{key(false, 2, 0, 500, 1000), shadow, key(true, 4, 1, 0, 22500)}},
	} {
		req.Costs, req.UpTo = step.costs, step.upTo
		got, err := c.Take(t.Context(), req)
		wantEach(t, step.name, got, err, step.want...)
	}
}

// Without a server, a limit with a count of 0 still allows nothing.
func TestLocalFallbackOfNothing(t *testing.T) {
	c, advance := alone(t, one("k", "0/m"), client.Request{Keys: []string{"{x}a", "{x}b"}, Limits: []client.Limit{"8/s", "fixed_window 0/h"}})
	never := client.Result{RetryAfter: client.Never, Index: 1}
	wantLocal(t, "one", c, one("k", "0/m"), never)
	advance(time.Hour)
	wantLocal(t, "after a while", c, one("k", "0/m"), never)
	wantLocal(t, "no unit", c, one("k", "0/m", 0), client.Result{Allowed: true, Index: 1})
	both := client.Request{Keys: []string{"{x}a", "{x}b"}, Limits: []client.Limit{"8/s", "fixed_window 0/h"}}
	wantLocal(t, "beside another", c, both, client.Result{RetryAfter: client.Never, Index: 2})
	both.Costs, both.UpTo = []int64{3}, true
	wantLocal(t, "up to", c, both, client.Result{RetryAfter: client.Never, Index: 2})
}

// Even if no server has ever replied, a client decides on limits such as "4/m" and on the policies
// of LocalFallback. Once a server has reported a policy, the server's limits apply instead of those of
// LocalFallback.
func TestLocalFallbackWithoutAServerEver(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "free", Limits: []functions.PolicyLimit{{Limit: "2/m"}}},
		functions.Policy{Name: "two", Limits: []functions.PolicyLimit{{Key: "a", Limit: "4/m"}, {Key: "b", Limit: "fixed_window 8/mo align=clock"}}},
		functions.Policy{Name: "try", Limits: []functions.PolicyLimit{{Limit: "1/s"}}, Shadow: true},
		functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 2 lease=9s"}}},
	)))
	deployed := must[[]functions.Policy](t)(functions.ReadPolicies(build.Text()))
	now := noon
	opts := []client.Option{client.WithFallback(client.LocalFallback(0.5, deployed...)), client.WithTimeout(slow), client.WithClock(func() time.Time { return now })}
	c := open(t, "redis://127.0.0.1:1", opts...)
	wantLocal(t, "written", c, one("k", "4/m"), client.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 30 * time.Second, Index: 1})
	wantLocal(t, "a policy", c, one("p", "@free"), client.Result{Allowed: true, Limit: 1, ResetAfter: time.Minute, Index: 1})
	wantLocal(t, "a policy again", c, one("p", "@free"), client.Result{Limit: 1, RetryAfter: time.Minute, ResetAfter: time.Minute, Index: 1})
	both := client.Request{Keys: []string{"{x}a", "{x}b"}, Limits: []client.Limit{"@two"}}
	wantLocal(t, "two keys", c, both, client.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 186 * time.Hour, Index: 1})
	wantLocal(t, "a shadow", c, one("s", "@try", 9), client.Result{Allowed: true, Index: 1})
	_, err := c.Allow(t.Context(), "k", "@jobs")
	wantClasses(t, "a policy of leases", err, client.ErrUnavailable)

	server := embedded.Run(t, embedded.WithLibrary(must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "free", Limits: []functions.PolicyLimit{{Limit: "20/m"}}},
	))).Text()))
	c = open(t, "redis://"+server.Addr(), opts...)
	must[client.Result](t)(c.Allow(t.Context(), "k", "@free"))
	eventually(t, "the client has learned the policy", func() bool { return client.KnowsPolicy(c, "k", "@free") })
	require(t, server.Close())
	wantLocal(t, "what the server said", c, one("k", "@free"), client.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 6 * time.Second, Index: 1})

	_, err = client.Open("redis://127.0.0.1:1", client.WithFallback(client.LocalFallback(1, functions.Policy{Name: "x", Limits: []functions.PolicyLimit{{Limit: "5/x"}}})))
	wantText(t, err, `ratelimit: client.Open: LocalFallback: policy "x": the limit "5/x": "x" is not a period such as 1s, 5m or 30d, of at most 36500d`)
}
