package client_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// lending returns a client of a server with policies that have classes, and a guarantee with a pool.
func lending(t *testing.T, opts ...client.Option) (*embedded.Server, *client.Client) {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/m"}}, Classes: map[string]int{"critical": 0, "default": 20, "batch": 50}},
		functions.Policy{Name: "slots", Limits: []functions.PolicyLimit{{Limit: "concurrency 4 lease=30s"}}, Classes: map[string]int{"batch": 75}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "10/m"}}, Borrow: true, Floor: 50},
		functions.Policy{Name: "two", Limits: []functions.PolicyLimit{{Key: "a", Limit: "10/m"}, {Key: "b", Limit: "2/m"}}},
		functions.Policy{Name: "counted", Limits: []functions.PolicyLimit{{Limit: "10/m"}}, Track: true},
	)))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(noon))
	return server, open(t, "redis://"+server.Addr(), append(opts, client.WithTimeout(slow))...)
}

func withClass(req client.Request, class string) client.Request {
	req.Class = class
	return req
}

func withFloor(req client.Request, floor int) client.Request {
	req.Floor = floor
	return req
}

// loan returns a request for the guarantee and the pool of a tenant. The pool keeps half.
func loan(costs ...int64) client.Request {
	return client.Request{Keys: []string{"{p}:tenant", "{p}"}, Limits: []client.Limit{"2/m", "10/m"}, Costs: costs, Borrow: true, Floor: 50}
}

func wantLeft(t *testing.T, name string, c *client.Client, key string, limit client.Limit, want int64) {
	t.Helper()
	if n := left(t, c, key, limit); n != want {
		t.Errorf("%s: %d are left of %q, want %d", name, n, key, want)
	}
}

// Take, Peek and Wait keep free what the class or the floor of the call keeps.
func TestClassAndFloor(t *testing.T) {
	ctx := t.Context()
	_, c := lending(t)
	for _, tt := range []struct {
		name string
		req  client.Request
	}{
		{"batch", withClass(one("k", "@api", 5), "batch")},
		{"default", one("k", "@api", 3)},
		{"floor", withFloor(one("k", "10/m", 1), 10)},
		{"critical", withClass(one("k", "@api", 1), "critical")},
	} {
		if got := must[client.Result](t)(c.Peek(ctx, tt.req)); !got.Allowed || got.Remaining != 0 {
			t.Errorf("%s: a peek returns %+v", tt.name, got)
		}
		if got := must[client.Result](t)(c.Take(ctx, tt.req)); !got.Allowed || got.Remaining != 0 {
			t.Errorf("%s: %+v", tt.name, got)
		}
		tt.req.Costs = nil
		if got := must[client.Result](t)(c.Take(ctx, tt.req)); got.Allowed || got.RetryAfter != 6*time.Second {
			t.Errorf("%s: one more returns %+v", tt.name, got)
		}
		tt.req.WaitUntil = time.Now().Add(time.Second)
		var e *client.Error
		if err := c.Wait(ctx, tt.req); !asLimited(err, &e) || e.RetryAfter != 6*time.Second {
			t.Errorf("%s: a wait returns %v", tt.name, err)
		}
	}
	back := withClass(one("k", "@api", 10), "batch") // a refund ignores the class
	if got := must[client.Result](t)(c.Refund(ctx, back)); got.Remaining != 10 {
		t.Errorf("a refund: %+v", got)
	}
	if _, err := c.Take(ctx, withClass(one("k", "@api"), "bulk")); !errors.Is(err, client.ErrMisconfigured) || !strings.Contains(err.Error(), "bulk") {
		t.Errorf("an unknown class: %v", err)
	}
}

// A lease has a class or a floor, too.
func TestLeaseClassAndFloor(t *testing.T) {
	ctx := t.Context()
	_, c := lending(t)
	for i, tt := range []struct {
		class string
		floor int
		want  bool
	}{{"batch", 0, true}, {"batch", 0, false}, {"", 75, false}, {"", 50, true}, {"", 0, true}} {
		l := c.Lease("jobs", "@slots", "")
		l.Class, l.Floor = tt.class, tt.floor
		if got := must[client.Result](t)(l.Acquire(ctx)); got.Allowed != tt.want {
			t.Errorf("lease %d: %+v", i+1, got)
		}
		if tt.want {
			if got := must[client.Result](t)(l.Renew(ctx)); !got.Allowed {
				t.Errorf("lease %d, renewed: %+v", i+1, got)
			}
		}
	}
	l := c.Lease("jobs", "@slots", "")
	l.Class, l.Floor = "batch", 20
	_, err := l.Acquire(ctx)
	wantClasses(t, "both", err, client.ErrMisconfigured, typed("bad_args"))
}

// A call with Borrow is charged to both keys or to the pool, and whoever paid gets the units back.
func TestBorrow(t *testing.T) {
	ctx := t.Context()
	_, c := lending(t)
	policy := client.Request{Keys: []string{"{p}:tenant", "{p}"}, Limits: []client.Limit{"@tenant"}, Borrow: true}
	for name, req := range map[string]client.Request{"limits": loan(), "policy": policy} {
		must[int64](t)(c.Reset(ctx, req.Keys...))
		for _, step := range []struct {
			cost    int64
			index   int
			charged []int64
			tenant  int64 // left
			pool    int64
		}{
			{2, 1, []int64{2, 2}, 0, 8},
			{3, 2, []int64{0, 3}, 0, 5},
		} {
			req.Costs = []int64{step.cost}
			got := must[client.Result](t)(c.Take(ctx, req))
			if !got.Allowed || got.Index != step.index {
				t.Errorf("%s: %+v, want index %d", name, got, step.index)
			}
			if charged := must[[]int64](t)(got.Charged(req)); !reflect.DeepEqual(charged, step.charged) {
				t.Errorf("%s: charged %v, want %v", name, charged, step.charged)
			}
			wantLeft(t, name, c, "{p}:tenant", "2/m", step.tenant)
			wantLeft(t, name, c, "{p}", "10/m", step.pool)
		}
		if got := must[client.Result](t)(c.Take(ctx, req)); got.Allowed || got.Index != 1 {
			t.Errorf("%s: %+v, want a denial", name, got)
		}
		for _, back := range []struct {
			costs        []int64
			tenant, pool int64
		}{{[]int64{0, 3}, 0, 8}, {[]int64{2, 2}, 2, 10}} {
			req.Costs = back.costs
			must[client.Result](t)(c.Refund(ctx, req))
			wantLeft(t, name, c, "{p}:tenant", "2/m", back.tenant)
			wantLeft(t, name, c, "{p}", "10/m", back.pool)
		}
	}
}

// Borrow under a policy without a guarantee and a pool is an error: who paid would be wrong, or the pool would be
// taken for a usage key.
func TestBorrowOtherPolicies(t *testing.T) {
	_, c := lending(t)
	for _, limit := range []client.Limit{"@two", "@counted", "@api"} {
		req := client.Request{Keys: []string{"{p}:tenant", "{p}"}, Limits: []client.Limit{limit}, Costs: []int64{2}, Borrow: true}
		for name, call := range map[string]func(context.Context, client.Request) (client.Result, error){"take": c.Take, "peek": c.Peek} {
			if got, err := call(t.Context(), req); !errors.Is(err, client.ErrMisconfigured) {
				t.Errorf("%s %s: %+v, %v", name, limit, got, err)
			}
		}
	}
	if n := must[int64](t)(c.Reset(t.Context(), "{p}:tenant", "{p}")); n != 0 {
		t.Errorf("%d keys were charged", n)
	}
}

// Settle gives back to who paid, and charges more to who paid. A policy takes units back, but no more.
func TestSettleBorrow(t *testing.T) {
	ctx := t.Context()
	_, c := lending(t)
	policy := client.Request{Keys: []string{"{p}:tenant", "{p}"}, Limits: []client.Limit{"@tenant"}, Borrow: true}
	for _, tt := range []struct {
		name         string
		req          client.Request
		cost, actual int64
		tenant, pool int64 // left at the end
		refused      bool
	}{
		{name: "guarantee, less", req: loan(), cost: 2, actual: 1, tenant: 1, pool: 9},
		{name: "guarantee, more", req: loan(), cost: 1, actual: 2, tenant: 0, pool: 8},
		{name: "loan, less", req: loan(), cost: 4, actual: 1, tenant: 2, pool: 9},
		{name: "loan, more", req: loan(), cost: 4, actual: 5, tenant: 2, pool: 5},
		{name: "policy, guarantee, less", req: policy, cost: 2, actual: 1, tenant: 1, pool: 9},
		{name: "policy, guarantee, nothing", req: policy, cost: 2, actual: 0, tenant: 2, pool: 10},
		{name: "policy, loan, less", req: policy, cost: 4, actual: 1, tenant: 2, pool: 9},
		{name: "policy, loan, as much", req: policy, cost: 4, actual: 4, tenant: 2, pool: 6},
		{name: "policy, loan, more", req: policy, cost: 4, actual: 5, tenant: 2, pool: 6, refused: true},
	} {
		must[int64](t)(c.Reset(ctx, "{p}", "{p}:tenant"))
		tt.req.Costs = []int64{tt.cost}
		hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, tt.req))
		if !hold.Result.Allowed {
			t.Fatalf("%s: %+v", tt.name, hold.Result)
		}
		if _, err := hold.Settle(ctx, tt.actual); errors.Is(err, client.ErrMisconfigured) != tt.refused || (err != nil) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
		wantLeft(t, tt.name, c, "{p}:tenant", "2/m", tt.tenant)
		wantLeft(t, tt.name, c, "{p}", "10/m", tt.pool)
	}
}

// What the library would refuse, or would understand differently, is not sent.
func TestSharesBadInput(t *testing.T) {
	ctx := t.Context()
	s := newTestbed(t)
	c := s.client(t)
	with := func(req client.Request, change func(*client.Request)) client.Request { change(&req); return req }
	k := one("k", "10/m", 1)
	for _, tt := range []struct {
		text string // the value in the error
		call func(context.Context, client.Request) (client.Result, error)
		req  client.Request
	}{
		{`Class is "batch" and Floor is 20`, c.Take, withFloor(withClass(k, "batch"), 20)},
		{`Force is set and Class is "batch"`, c.Take, with(withClass(k, "batch"), func(r *client.Request) { r.Force = true })},
		{"Force is set and Floor is 20", c.Take, with(withFloor(k, 20), func(r *client.Request) { r.Force = true })},
		{"Floor is 101", c.Take, withFloor(k, 101)},
		{"Floor is -1", c.Peek, withFloor(k, -1)},
		{"Floor is 101", c.Refund, withFloor(loan(1), 101)},
		{"UpTo", c.Take, with(loan(1), func(r *client.Request) { r.UpTo = true })},
		{"Force", c.Take, with(loan(1), func(r *client.Request) { r.Force = true })},
		{"Each", c.Peek, with(loan(1), func(r *client.Request) { r.Each = true })},
		{`Class is "batch"`, c.Take, withClass(loan(1), "batch")},
		{"the costs [1 2]", c.Take, loan(1, 2)},
		{`1 keys and the limits ["10/m"]`, c.Take, with(k, func(r *client.Request) { r.Borrow = true })},
		{`["@a" "10/m"]`, c.Take, with(loan(1), func(r *client.Request) { r.Limits = []client.Limit{"@a", "10/m"} })},
		{"Floor is 50", c.Take, with(loan(1), func(r *client.Request) { r.Limits = []client.Limit{"@tenant"} })},
		{"the costs [1]", c.Refund, loan(1)},
		{"the costs []", c.Refund, loan()},
		{"the costs [2 1]", c.Refund, loan(2, 1)},
		{"the costs [2 0]", c.Refund, loan(2, 0)},
		{`"floor"`, c.Take, one("k", "floor")},
		{`"PAID"`, c.Take, one("k", "PAID")},
	} {
		_, err := tt.call(ctx, tt.req)
		if !errors.Is(err, client.ErrMisconfigured) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%v, want one with %q", err, tt.text)
		}
	}
	wantClasses(t, "wait", c.Wait(ctx, withFloor(k, 101)), client.ErrMisconfigured, typed("bad_args"))
	if n := len(s.sent()); n > 0 {
		t.Errorf("%d calls were sent", n)
	}
}

// An older library names the word that it does not know.
func TestSharesOfAnOlderLibrary(t *testing.T) {
	for word, req := range map[string]client.Request{
		"Floor": withFloor(one("k", "5/m", 2), 20), "Class": withClass(one("k", "@api"), "batch"), "Borrow": loan(1),
	} {
		for _, each := range []bool{false, true} {
			if req.Each = each && !req.Borrow; word == "Class" {
				req.Limits = []client.Limit{"5/m"}
			}
			option := regexp.MustCompile(`(?i:\b` + word + `) = '` + strings.ToUpper(word) + `',`)
			text := option.ReplaceAllString(functions.Source(), "")
			if text == functions.Source() {
				t.Fatalf("the library has no %v", option)
			}
			server := embedded.Run(t, embedded.WithLibrary(text), embedded.WithTime(noon))
			c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
			_, err := c.Take(t.Context(), req)
			wantClasses(t, word, err, client.ErrNotDeployed)
			if err == nil || !strings.Contains(err.Error(), "the library on the server is too old for "+word+" (") {
				t.Errorf("%s: %v", word, err)
			}
		}
	}
	// A policy of an older library has no guarantee, but two limits.
	option := regexp.MustCompile(`(?i:\bborrow|\bgrow) = '[A-Z]+',`)
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
		Name: "tenant", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "2/m"}, {Key: "pool", Limit: "10/m"}},
	})))
	server := embedded.Run(t, embedded.WithLibrary(option.ReplaceAllString(build.Text(), "")), embedded.WithTime(noon))
	older := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	refund := loan(2, 2)
	refund.Limits, refund.Floor = []client.Limit{"@tenant"}, 0
	grow := one("k", "5/m")
	grow.Grow = true
	for text, err := range map[string]error{
		"too old for Borrow (": second(older.Refund(t.Context(), refund)), "too old for Grow (": second(older.Peek(t.Context(), grow)),
	} {
		wantClasses(t, text, err, client.ErrNotDeployed)
		if err == nil || !strings.Contains(err.Error(), "the library on the server is "+text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	c := newClient(t, &fake{err: answered("RATELIMIT BADARGS the number of arguments is 4; acquire takes a limit and a lease id")})
	l := c.Lease("jobs", "concurrency 4 lease=10s", "")
	l.Floor = 20
	_, err := l.Acquire(t.Context())
	wantClasses(t, "a lease", err, client.ErrNotDeployed)
}

// No release makes room for a lease whose Floor leaves every place to others. Wait and Run say so at once.
func TestLeaseThatIsNeverFree(t *testing.T) {
	_, c := lending(t)
	l := c.Lease("jobs", "concurrency 4 lease=10s", "")
	l.Floor = 100
	for verb, err := range map[string]error{
		"Wait": l.Wait(t.Context()),
		"Run":  l.Run(t.Context(), func(context.Context) error { return nil }),
	} {
		const want = `no place of "concurrency 4 lease=10s" is ever free for this lease: the limit has none, or its Class or Floor leaves all of them to others`
		if !errors.Is(err, client.ErrLimited) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}
