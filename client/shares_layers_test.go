package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Each class and each floor has a batch of its own, which is spent by nobody else.
func TestSharesAreBatchedApart(t *testing.T) {
	s := newTestbed(t)
	policy := limited("100/m")
	policy.Classes = map[string]int{"critical": 0, "default": 20, "batch": 50}
	deployPolicy(t, s.rdb, policy)
	c := s.client(t, client.WithBatches(16, ttl))
	learns(t, c, "k")
	take := func(req client.Request, source string, allowed bool) client.Result {
		t.Helper()
		got := must[client.Result](t)(c.Take(t.Context(), req))
		if got.Source != source || got.Allowed != allowed {
			t.Errorf("%q, floor %d: %+v, want it from the %s, allowed: %v", req.Class, req.Floor, got, source, allowed)
		}
		return got
	}
	batch, critical, floor := withClass(one("k", "@p"), "batch"), withClass(one("k", "@p"), "critical"), withFloor(one("k", "@p"), 90)
	take(batch, "server", true)
	take(batch, "server", true)
	take(batch, "batch", true)
	take(batch, "server", true) // 4 units, of which 3 are left
	take(critical, "server", true)
	take(floor, "server", false) // 90 of 100 are not left
	take(one("k", "@p"), "server", true)
	take(batch, "batch", true)
	take(withClass(one("k", "@p"), "default"), "server", true) // as without a class, but in a batch of its own

	_, err := c.Take(t.Context(), withClass(one("k", "@p"), "bulk"))
	wantClasses(t, "an unknown class", err, client.ErrMisconfigured, typed("bad_args"))
	_, err = c.Take(t.Context(), withClass(one("k", wide), "batch"))
	wantClasses(t, "a class without a policy", err, client.ErrMisconfigured, typed("bad_args"))

	// What was charged for the class leaves its half, however many calls wait for its batch.
	s.pass(time.Minute)
	allowed := 0
	for range 100 {
		if must[client.Result](t)(c.Take(t.Context(), batch)).Allowed {
			allowed++
		}
	}
	if n := left(t, c, "k", "100/m"); allowed != 50 || n != 50 {
		t.Errorf("%d calls of the class were allowed, and %d units are left; want 50 and 50", allowed, n)
	}
	take(critical, "server", true)

	must[int64](t)(c.Reset(t.Context(), "k")) // ends the batches of all classes
	take(critical, "server", true)
	take(batch, "server", true)
}

// Units of a class that were not spent are given back when the client is closed, and never too many.
func TestCloseGivesSharesBack(t *testing.T) {
	s := newTestbed(t)
	deployPolicy(t, s.rdb, functions.Policy{Limits: []functions.PolicyLimit{{Limit: "100/h"}}, Classes: map[string]int{"batch": 50}})
	c := s.client(t, client.WithBatches(16, ttl), client.WithTimeout(time.Millisecond*100))
	learns(t, c, "k")
	for range 4 {
		must[client.Result](t)(c.Take(t.Context(), withClass(one("k", "@p"), "batch")))
	}
	charged := 100 - left(t, c, "k", "100/h")
	require(t, c.Close())
	if n := 100 - left(t, s.client(t), "k", "100/h"); n < 6 || n > charged {
		t.Errorf("%d units are charged, before Close %d; 6 were spent", n, charged)
	}
}

// A denial is remembered for calls of the same class or floor only.
func TestSharesAreDeniedApart(t *testing.T) {
	s := newTestbed(t)
	policy := limited("10/h")
	policy.Classes = map[string]int{"critical": 0, "batch": 50}
	deployPolicy(t, s.rdb, policy)
	c := s.client(t, client.WithDenialMemory(time.Second))
	for _, tt := range []struct {
		req     client.Request
		allowed bool
		source  string
	}{
		{withClass(one("k", "@p", 5), "batch"), true, "server"},
		{withClass(one("k", "@p"), "batch"), false, "server"},
		{withClass(one("k", "@p"), "batch"), false, "memory"},
		{withClass(one("k", "@p"), "critical"), true, "server"},
		{one("k", "@p"), true, "server"},
		{withFloor(one("k", "@p"), 50), false, "server"},
		{withFloor(one("k", "@p"), 50), false, "memory"},
		{withFloor(one("k", "@p"), 30), false, "server"},
		{withFloor(one("k", "@p"), 20), true, "server"},
		{withClass(one("k", "@p"), "batch"), false, "memory"},
	} {
		got := must[client.Result](t)(c.Take(t.Context(), tt.req))
		if got.Allowed != tt.allowed || got.Source != tt.source {
			t.Errorf("%q, floor %d: %+v, want %v from the %s", tt.req.Class, tt.req.Floor, got, tt.allowed, tt.source)
		}
	}
	must[client.Result](t)(c.Refund(t.Context(), client.For("k", "@p", 9))) // forgets the denials of all classes
	if got := must[client.Result](t)(c.Take(t.Context(), withClass(one("k", "@p"), "batch"))); !got.Allowed {
		t.Errorf("after a refund: %+v", got)
	}
}

// wantFrom takes what req asks for, and checks who decided, and how.
func wantFrom(t *testing.T, c *client.Client, req client.Request, source string, allowed bool) {
	t.Helper()
	if got := must[client.Result](t)(c.Take(t.Context(), req)); got.Source != source || got.Allowed != allowed {
		t.Errorf("%q, class %q, floor %d: %+v, want it from the %s, allowed: %v", req.Keys, req.Class, req.Floor, got, source, allowed)
	}
}

// However many classes and floors a client has seen, it batches those that are in use, and remembers their
// denials. A Reset finds all entries of its key, and what has no entry is not kept.
func TestManyShares(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, ttl), client.WithDenialMemory(time.Second))
	must[client.Result](t)(c.AllowN(t.Context(), "spent", "10/h", 10))
	take := func(req client.Request, source string, allowed bool) {
		t.Helper()
		wantFrom(t, c, req, source, allowed)
	}
	for floor := range 100 {
		for _, source := range []string{"server", "server", "batch", "server"} {
			take(withFloor(one("k", wide), floor), source, true)
		}
		take(withFloor(one("spent", "10/h"), floor), "server", false)
		take(withFloor(one("spent", "10/h"), floor), "memory", false)
	}
	for floor := range 100 { // nothing made room: each floor still has the units that it took in advance
		take(withFloor(one("k", wide), floor), "batch", true)
		take(withFloor(one("spent", "10/h"), floor), "memory", false)
	}
	if kept := client.Kept(c); kept.Batches != 200 || kept.Denials != 100 || kept.Shares != 198 {
		t.Errorf("kept: %+v", kept)
	}
	must[int64](t)(c.Reset(t.Context(), "k", "spent"))
	if kept := client.Kept(c); kept.Batches != 0 || kept.Denials != 0 || kept.Shares != 0 {
		t.Errorf("kept after a reset: %+v", kept)
	}
	for floor := range 100 {
		take(withFloor(one("spent", "10/h"), floor), "server", floor <= 90)
		must[int64](t)(c.Reset(t.Context(), "spent"))
	}
	for range 3 { // no limit keeps more than all of it
		if _, err := c.Take(t.Context(), withFloor(one("k", wide), 101)); !errors.Is(err, client.ErrMisconfigured) {
			t.Error(err)
		}
	}
	if kept := client.Kept(c); kept.Shares != 0 {
		t.Errorf("kept: %+v", kept)
	}
}

// A full table makes room for the share that is in use, and forgets the one that was not used for longest.
func TestSharesMakeRoom(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithTables(8, 8), client.WithBatches(16, ttl), client.WithDenialMemory(time.Second))
	must[client.Result](t)(c.AllowN(t.Context(), "spent", "10/h", 10))
	for floor := range 100 {
		for _, source := range []string{"server", "server", "batch"} {
			wantFrom(t, c, withFloor(one("k", wide), floor), source, true)
		}
		for _, source := range []string{"server", "memory"} {
			wantFrom(t, c, withFloor(one("spent", "10/h"), floor), source, false)
		}
	}
	if kept := client.Kept(c); kept.Batches != 8 || kept.Denials != 8 || kept.Shares != 4+8 {
		t.Errorf("kept: %+v", kept)
	}
}

// A LocalFallback keeps the floor, or that of the class, of its share. It admits the share of a
// guarantee, and lends nothing.
func TestLocalFallbackShares(t *testing.T) {
	server, c := lending(t, client.WithFallback(client.LocalFallback(1)), client.WithClock(func() time.Time { return noon }))
	must[client.Result](t)(c.Take(t.Context(), one("k", "@api")))
	eventually(t, "the client has learned @api", func() bool { return client.Knows(c, "@api") })
	require(t, server.Close())
	limited := func(n int64, wait time.Duration) client.Result {
		return client.Result{Limit: 10, Remaining: n, RetryAfter: wait, ResetAfter: 48 * time.Second, Index: 1}
	}
	for key, limit := range map[string]client.Limit{"k": "10/m", "l": "@api"} {
		must[client.Result](t)(c.Take(t.Context(), client.For(key, limit, 8)))
		for _, tt := range []struct {
			name string
			req  client.Request
			want client.Result
		}{
			{"half", withFloor(one(key, limit), 50), limited(0, 24*time.Second)},
			{"never", withFloor(one(key, limit, 6), 50), limited(0, client.Never)},
			{"nothing", withFloor(one(key, limit, 0), 100), client.Result{Allowed: true, Limit: 10, ResetAfter: 48 * time.Second, Index: 1}},
			{"up to", withFloor(upTo(key, limit, 5), 10), client.Result{Allowed: true, Taken: 1, Limit: 10, ResetAfter: 54 * time.Second, Index: 1}},
		} {
			wantLocal(t, key+", "+tt.name, c, tt.req, tt.want)
		}
	}
	late := client.Result{Limit: 10, ResetAfter: 54 * time.Second, Index: 1}
	late.RetryAfter = 30 * time.Second
	wantLocal(t, "batch", c, withClass(one("l", "@api"), "batch"), late)
	late.RetryAfter = 12 * time.Second
	wantLocal(t, "default", c, one("l", "@api"), late)
	late.Allowed, late.RetryAfter, late.ResetAfter = true, 0, time.Minute
	wantLocal(t, "critical", c, withClass(one("l", "@api"), "critical"), late)

	_, err := c.Take(t.Context(), withClass(one("l", "@api"), "bulk"))
	wantClasses(t, "an unknown class", err, client.ErrMisconfigured, typed("bad_args"))
	if err == nil || !strings.Contains(err.Error(), `"bulk": no such class; the policy has batch, critical, default`) {
		t.Error(err)
	}
	_, err = c.Take(t.Context(), withClass(one("k", "10/m"), "batch"))
	wantClasses(t, "a class without a policy", err, client.ErrMisconfigured, typed("bad_args"))

	wantLocal(t, "guarantee", c, loan(2), client.Result{Allowed: true, Limit: 2, ResetAfter: time.Minute, Index: 1})
	wantLocal(t, "no loan", c, loan(1), client.Result{Limit: 2, RetryAfter: 30 * time.Second, ResetAfter: time.Minute, Index: 1})
	wantLocal(t, "a server may lend as many", c, loan(5), client.Result{Limit: 2, RetryAfter: time.Second, ResetAfter: time.Minute, Index: 1})
	wantLocal(t, "no server lends as many", c, loan(6), client.Result{Limit: 2, RetryAfter: client.Never, ResetAfter: time.Minute, Index: 1})
}

// A LocalFallback takes any Class only under `classes: any`, whether it was given the policy or learned it.
func TestLocalFallbackOfAnyClass(t *testing.T) {
	one := []functions.PolicyLimit{{Limit: "10/m"}}
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "open", Limits: one, AnyClass: true}, functions.Policy{Name: "plain", Limits: one})))
	for name, given := range map[string][]functions.Policy{"given": build.Policies(), "learned": nil} {
		server := embedded.Run(t, embedded.WithLibrary(build.Text()))
		c := open(t, "redis://"+server.Addr(), client.WithFallback(client.LocalFallback(1, given...)), client.WithTimeout(slow))
		if given == nil {
			for _, policy := range []client.Limit{"@open", "@plain"} {
				must[client.Result](t)(c.Take(t.Context(), client.For("k", policy)))
				eventually(t, "the client has learned "+string(policy), func() bool { return client.Knows(c, policy) })
			}
		}
		require(t, server.Close())
		if res, err := c.Take(t.Context(), withClass(client.For("k", "@open"), "bulk")); err != nil || !res.Allowed {
			t.Errorf("%s: %+v, %v under classes: any", name, res, err)
		}
		_, err := c.Take(t.Context(), withClass(client.For("k", "@plain"), "bulk"))
		wantClasses(t, name, err, client.ErrMisconfigured, typed("bad_args"))
		if err == nil || !strings.Contains(err.Error(), `"bulk": the policy has no classes; give it some, or classes: any`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A LocalFallback refuses what a server refuses for a policy with a guarantee.
func TestLocalFallbackRefusesForAGuarantee(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
		Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "10/m"}}, Borrow: true})))
	c := open(t, "redis://127.0.0.1:1", client.WithFallback(client.LocalFallback(1, build.Policies()...)), client.WithTimeout(slow))
	for word, change := range map[string]func(*client.Request){
		"":      func(*client.Request) {},
		"UpTo":  func(r *client.Request) { r.UpTo = true },
		"Force": func(r *client.Request) { r.Force = true },
		"Each":  func(r *client.Request) { r.Each = true },
		"Class": func(r *client.Request) { r.Class = "batch" },
	} {
		req := client.Request{Keys: []string{"{p}:tenant", "{p}"}, Limits: []client.Limit{"@tenant"}, Costs: []int64{1}}
		change(&req)
		_, err := c.Take(t.Context(), req)
		if word == "" && err != nil || word != "" && (!errors.Is(err, client.ErrMisconfigured) || !strings.Contains(err.Error(), word+` is set for the policy "@tenant"; a guarantee and a pool do not take it`)) {
			t.Errorf("%q: %v", word, err)
		}
	}
}

// In a LocalFallback with a small share, the call of a class or a floor that a server could allow is not
// denied for the whole outage. One that no server allows stays denied.
func TestLocalFallbackOfASmallShare(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
		Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/m"}}, Classes: map[string]int{"critical": 0, "default": 20, "never": 100}})))
	for share, first := range map[float64]int64{0.1: 1, 0.3: 2} { // of 3, the default class keeps 0.6, rounded up
		now := noon
		c := open(t, "redis://127.0.0.1:1", client.WithFallback(client.LocalFallback(share, build.Policies()...)), client.WithTimeout(slow), client.WithClock(func() time.Time { return now }))
		take := func(name string, req client.Request, want bool) {
			t.Helper()
			if got := must[client.Result](t)(c.Take(t.Context(), req)); got.Allowed != want || got.Source != "local" {
				t.Errorf("a share of %v, %s: %+v, want allowed %v", share, name, got, want)
			}
		}
		for range first {
			take("default", one("k", "@api", 1), true)
		}
		take("default, one more", one("k", "@api", 1), false)
		take("critical", withClass(one("k", "@api", 1), "critical"), share == 0.3)
		take("never", withClass(one("l", "@api", 1), "never"), false)
		take("floor of 95", withFloor(one("m", "10/m", 1), 95), false) // rounded up, all 10 are kept
		take("floor of 90", withFloor(one("m", "10/m", 1), 90), true)
		now = now.Add(time.Minute)
		take("default, later", one("k", "@api", 1), true)
	}
}
