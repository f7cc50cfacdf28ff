package client_test

import (
	"context"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// eachOf returns a request for the keys of a user and a tenant, with Each set.
func eachOf(costs ...int64) client.Request {
	return client.Request{Keys: []string{"{a}:user", "{a}"}, Limits: []client.Limit{"2/10s", "100/m"}, Costs: costs, Each: true}
}

func wantEach(t *testing.T, name string, got client.Result, err error, want ...client.Result) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(got.Each, want) {
		t.Errorf("%s: %+v, %v\nwant %+v", name, got.Each, err, want)
	}
}

// Take, Peek and Refund return the result for each key.
func TestEach(t *testing.T) {
	_, c := atNoon(t)
	ctx := t.Context()
	upTo := eachOf(5)
	upTo.UpTo = true
	full := client.Result{Allowed: true, Limit: 100, Remaining: 98, ResetAfter: 1200 * time.Millisecond}
	for _, step := range []struct {
		name string
		call func(context.Context, client.Request) (client.Result, error)
		req  client.Request
		want []client.Result
	}{
		{"up to", c.Take, upTo, []client.Result{{Allowed: true, Limit: 2, ResetAfter: 10 * time.Second}, full}},
		{"denied by one", c.Take, eachOf(), []client.Result{{Limit: 2, RetryAfter: 5 * time.Second, ResetAfter: 10 * time.Second}, full}},
		{"never", c.Peek, eachOf(3, 1), []client.Result{{Limit: 2, RetryAfter: client.Never, ResetAfter: 10 * time.Second}, full}},
		{"up to, denied", c.Take, upTo, []client.Result{{Limit: 2, RetryAfter: 5 * time.Second, ResetAfter: 10 * time.Second}, full}},
		{"refund", c.Refund, eachOf(1, 98), []client.Result{{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 5 * time.Second}, {Allowed: true, Limit: 100, Remaining: 100}}},
	} {
		got, err := step.call(ctx, step.req)
		wantEach(t, step.name, got, err, step.want...)
	}
	without := eachOf()
	without.Each = false
	got, err := c.Take(ctx, without)
	wantEach(t, "without Each", got, err)
}

// A newer library may add elements to a reply. They do not change Result.Each.
func TestEachOfANewerLibrary(t *testing.T) {
	each := []any{integers(1, 2, 1, 0, 5000), integers(1, 100, 99, 0, 600)}
	want := []client.Result{
		{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 5 * time.Second},
		{Allowed: true, Limit: 100, Remaining: 99, ResetAfter: 600 * time.Millisecond},
	}
	for _, shadow := range [][]any{nil, integers(1, 0, 2)} {
		reply := append(integers(1, 2, 1, 0, 5000, 1), shadow...)
		c := newClient(t, &fake{reply: append(reply, each, "added", []any{int64(8), int64(9)})})
		got, err := c.Take(t.Context(), eachOf())
		wantEach(t, "two more elements", got, err, want...)
		if (got.Shadow != nil) != (shadow != nil) {
			t.Errorf("the shadow is %+v, and the reply has %v", got.Shadow, shadow)
		}
	}
}

// A repeated call with an OnceKey returns the first call's Result.Each if both calls have Each set.
func TestEachOnce(t *testing.T) {
	_, c := atNoon(t)
	for _, first := range []bool{true, false} {
		req := one("{a}:"+map[bool]string{true: "x", false: "y"}[first], "3/3s")
		req.OnceKey, req.OnceTTL, req.Each = req.Keys[0]+":once", time.Minute, first
		must[client.Result](t)(c.Take(t.Context(), req))
		req.Each = true
		got, err := c.Take(t.Context(), req)
		want := []client.Result{{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: time.Second}}
		if !first {
			want = nil
		}
		wantEach(t, "repeated", got, err, want...)
		req.Each = false
		got, err = c.Take(t.Context(), req)
		wantEach(t, "repeated, without Each", got, err)
	}
}

// In a reply, the results for Each come after the shadow decision.
func TestEachUnderAShadow(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "try", Limits: []functions.PolicyLimit{{Limit: "1/h"}}, Shadow: true})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(noon))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	req := one("k", "@try", 2)
	req.Each = true
	got, err := c.Take(t.Context(), req)
	wantResult(t, "over the shadow", got, err, client.WithCharged(client.Result{Allowed: true, Limit: 1, Remaining: 1, Index: 1, Source: "server",
		Shadow: &client.Result{RetryAfter: client.Never, Index: 1}, Each: []client.Result{{Limit: 1, Remaining: 1, RetryAfter: client.Never}}}, 0))
}

// A server decides a request with Each even if the client has units in a batch or remembers a
// denial.
func TestEachAsksTheServer(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, ttl), client.WithDenialMemory(time.Second))
	for range 4 {
		allow(t, c, "100000/m", 1)
	}
	req := one("k", "100000/m")
	req.Each = true
	if got := must[client.Result](t)(c.Take(t.Context(), req)); got.Source != "server" || len(got.Each) != 1 {
		t.Errorf("beside a batch: %+v", got)
	}
	must[client.Result](t)(c.AllowN(t.Context(), "j", "2/h", 2))
	must[client.Result](t)(c.Allow(t.Context(), "j", "2/h"))
	if got := must[client.Result](t)(c.Allow(t.Context(), "j", "2/h")); got.Source != "memory" {
		t.Errorf("a remembered denial: %+v", got)
	}
	req = one("j", "2/h")
	req.Each = true
	if got := must[client.Result](t)(c.Take(t.Context(), req)); got.Source != "server" || len(got.Each) != 1 {
		t.Errorf("beside a denial: %+v", got)
	}
}

// If the reply's element for Each is malformed, Result.Each is nil.
func TestRepliesToEach(t *testing.T) {
	entry := func(n ...int64) any { return integers(n...) }
	for _, tt := range []struct {
		name string
		list []any
		want int
	}{
		{"two", []any{entry(1, 3, 2, 0, 1000), entry(0, 0, 0, -1, 0)}, 2},
		{"one for two keys", []any{entry(1, 3, 2, 0, 1000)}, 0},
		{"too short", []any{entry(1, 3, 2, 0, 1000), entry(1, 3, 2, 0)}, 0},
		{"negative", []any{entry(1, 3, 2, 0, 1000), entry(1, 3, -1, 0, 1000)}, 0},
		{"a wait below -1", []any{entry(1, 3, 2, 0, 1000), entry(1, 3, 2, -2, 1000)}, 0},
		{"a reset below 0", []any{entry(1, 3, 2, 0, 1000), entry(1, 3, 2, 0, -1)}, 0},
		{"no integers", []any{entry(1, 3, 2, 0, 1000), "x"}, 0},
	} {
		f := &fake{reply: append(integers(1, 3, 2, 0, 1000, 1), any(tt.list))}
		c := newClient(t, f)
		got, err := c.Take(t.Context(), eachOf())
		if err != nil || len(got.Each) != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
	got, err := newClient(t, &fake{reply: integers(1, 3, 2, 0, 1000, 1)}).Take(t.Context(), eachOf())
	wantEach(t, "none", got, err)
}

// A library that predates EACH parses this option as a limit. The error is then ErrNotDeployed.
func TestEachOfAnOlderLibrary(t *testing.T) {
	option := regexp.MustCompile(`(?i:\beach) = 'EACH',`)
	if n := len(option.FindAllString(functions.Source(), -1)); n != 2 {
		t.Fatalf("the options are in the library's text %d times; this test knows of 2", n)
	}
	server := embedded.Run(t, embedded.WithLibrary(option.ReplaceAllString(functions.Source(), "")), embedded.WithTime(noon))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	req := one("k", "5/m", 3)
	for _, req.UpTo = range []bool{false, true} {
		req.Each = true
		_, err := c.Take(t.Context(), req)
		wantClasses(t, "older library", err, client.ErrNotDeployed)
	}
	if got := must[client.Result](t)(c.Peek(t.Context(), client.For("k", "5/m", 0))); got.Remaining != 5 {
		t.Errorf("%d are left of 5: something was counted", got.Remaining)
	}
}
