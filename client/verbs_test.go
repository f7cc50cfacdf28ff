package client_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// atNoon returns a server with the library, and a client for it. The server's clock is stopped.
func atNoon(t *testing.T, opts ...embedded.Option) (*embedded.Server, *client.Client) {
	t.Helper()
	opts = append([]embedded.Option{embedded.WithLibrary(functions.Source()), embedded.WithTime(noon), embedded.WithClusterRules()}, opts...)
	server := embedded.Run(t, opts...)
	return server, newClient(t, connect(t, redis.Options{Addr: server.Addr()}), client.WithPrefix("rl:"))
}

func wantResult(t *testing.T, name string, got client.Result, err error, want client.Result) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, want)
	}
}

func TestRefund(t *testing.T) {
	ctx := t.Context()
	_, c := atNoon(t)
	req := client.Request{Keys: []string{"{u}:m", "{u}:d"}, Limits: []client.Limit{"10/m", "token_bucket 24/d"}, Costs: []int64{5, 24}, UsageKey: "{u}:usage"}
	must[client.Result](t)(c.Take(ctx, req))
	got, err := c.Refund(ctx, req)
	wantResult(t, "all of it", got, err, client.Result{Allowed: true, Limit: 10, Remaining: 10, Index: 1, Source: "server"})
	got, err = c.Take(ctx, req)
	wantResult(t, "taken again", got, err, client.Result{Allowed: true, Limit: 24, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"})
	got, err = c.Refund(ctx, client.For("{u}:m", "10/m", 3))
	wantResult(t, "a part", got, err, client.Result{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: 12 * time.Second, Index: 1, Source: "server"})
	got, err = c.Refund(ctx, client.For("{u}:m", "10/m", 1000))
	wantResult(t, "more than was taken", got, err, client.Result{Allowed: true, Limit: 10, Remaining: 10, Index: 1, Source: "server"})
	if usage := must[client.Usage](t)(c.Usage(ctx, "{u}:usage")); usage.Allowed != 2 || usage.Cost != 10 {
		t.Errorf("refunds were counted under the usage key: %+v", usage)
	}
	require(t, c.Block(ctx, client.Block{For: time.Minute}, "{u}:m"))
	got, err = c.Refund(ctx, req)
	wantResult(t, "while one key is blocked", got, err, client.Result{Limit: 10, RetryAfter: time.Minute, ResetAfter: 24 * time.Hour, Index: 1, Source: "server"})
	if left := must[client.Result](t)(c.Peek(ctx, client.For("{u}:d", "token_bucket 24/d", 0))); left.Remaining != 0 {
		t.Errorf("a refund that was denied gave %d back to the other key", left.Remaining)
	}
	wantClasses(t, "cost", second(c.Refund(ctx, client.For("{u}:m", "10/m", -1))), typed("bad_cost"))
}

func TestBlock(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	must[client.Result](t)(c.AllowN(ctx, "{a}:1", "6/m", 6))
	require(t, c.Block(ctx, client.Block{For: time.Hour}, "{a}:1", "{a}:2"))
	if err := c.Block(ctx, client.Block{For: 30*time.Second - time.Nanosecond}, "{a}:1", "{a}:2"); err != nil { // replaces the first
		t.Fatal(err)
	}
	for _, key := range []string{"{a}:1", "{a}:2"} {
		got, err := c.Allow(ctx, key, "6/m")
		wantResult(t, key, got, err, client.Result{Limit: 6, RetryAfter: 30 * time.Second, ResetAfter: 30 * time.Second, Index: 1, Source: "server"})
	}
	// Extend shortens no block. The two keys above stay blocked for 30 s. The first call blocks
	// {a}:3 for 20 s, and the second call, for 10 s, changes nothing.
	for _, d := range []time.Duration{20 * time.Second, 10 * time.Second} {
		require(t, c.Block(ctx, client.Block{For: d, Extend: true}, "{a}:1", "{a}:2", "{a}:3"))
	}
	got, err := c.Peek(ctx, client.For("{a}:3", "6/m"))
	wantResult(t, "blocked with Extend alone", got, err, client.Result{Limit: 6, RetryAfter: 20 * time.Second, ResetAfter: 20 * time.Second, Index: 1, Source: "server"})
	server.Advance(20 * time.Second)
	if n := must[int64](t)(c.Unblock(ctx, "{a}:1", "{a}:3")); n != 1 {
		t.Errorf("unblock of a blocked key and another answers %d, want 1", n)
	}
	got, err = c.Allow(ctx, "{a}:1", "6/m")
	wantResult(t, "after 20 s two have come back", got, err, client.Result{Allowed: true, Limit: 6, Remaining: 1, ResetAfter: 50 * time.Second, Index: 1, Source: "server"})
	server.Advance(10 * time.Second)
	got, err = c.Allow(ctx, "{a}:2", "6/m")
	wantResult(t, "the block has ended", got, err, client.Result{Allowed: true, Limit: 6, Remaining: 5, ResetAfter: 10 * time.Second, Index: 1, Source: "server"})
	if n := must[int64](t)(c.Unblock(ctx, "{a}:2")); n != 0 {
		t.Errorf("unblock of a key whose block has ended answers %d, want 0", n)
	}
	for name, err := range map[string]error{
		"no key":     c.Block(ctx, client.Block{For: time.Second}),
		"two slots":  c.Block(ctx, client.Block{For: time.Second}, "{a}", "{b}"),
		"too long":   c.Block(ctx, client.Block{For: 36501 * 24 * time.Hour}, "k"),
		"usage keys": c.Block(ctx, client.Block{For: time.Second}, tracked(t, c)),
	} {
		want := map[string]error{"too long": typed("bad_args"), "two slots": typed("cross_slot"), "usage keys": typed("bad_state")}[name]
		if want == nil {
			want = typed("bad_keys")
		}
		wantClasses(t, name, err, want)
	}
}

// A block with Max is twice as long as the last one, knocks change nothing, and Peek shows it.
func TestBlockGrows(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	b := client.Block{For: time.Minute, Max: 3 * time.Minute, Forget: time.Hour}
	grow := client.For("a", "6/m")
	grow.Grow = true
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
		for range 3 {
			require(t, c.Block(ctx, b, "a"))
		}
		res := must[client.Result](t)(c.Peek(ctx, grow))
		if res.RetryAfter != want || len(res.Grown) != 1 || res.Grown[0].Length != want || res.Grown[0].Forgotten != want+time.Hour {
			t.Errorf("block %d: %+v, want %v", i+1, res, want)
		}
		server.Advance(want)
		if res := must[client.Result](t)(c.Allow(ctx, "a", "6/m")); !res.Allowed {
			t.Errorf("after block %d: %+v", i+1, res)
		}
	}
	if n := must[int64](t)(c.Unblock(ctx, "a")); n != 1 {
		t.Errorf("unblock of a remembered key answers %d, want 1", n)
	}
	if res := must[client.Result](t)(c.Peek(ctx, grow)); res.Grown[0].Length != 0 || res.Grown[0].Forgotten != 0 {
		t.Errorf("after unblock: %+v", res)
	}
	for name, b := range map[string]client.Block{
		"Max below For": {For: time.Minute, Max: time.Second, Forget: time.Hour},
		"no Max":        {For: time.Minute, Forget: time.Hour},
		"no Forget":     {For: time.Minute, Max: time.Hour},
		"a negative":    {For: time.Minute, Max: time.Hour, Forget: -time.Hour},
		"with Extend":   {For: time.Minute, Max: time.Hour, Forget: time.Hour, Extend: true},
	} {
		wantClasses(t, name, c.Block(ctx, b, "b"), typed("bad_args"))
	}
	_, err := c.Take(ctx, grow)
	wantClasses(t, "take with Grow", err, typed("bad_args"))
	if res := must[client.Result](t)(c.Allow(ctx, "b", "6/m")); !res.Allowed {
		t.Errorf("a refused block denies: %+v", res)
	}
}

// A library that does not have EXTEND or GROW rejects it as one argument too many.
func TestBlockExtendOfAnOlderLibrary(t *testing.T) {
	option := "local OPTIONS = { EXTEND = 'EXTEND', extend = 'EXTEND', GROW = 'GROW', grow = 'GROW' }"
	if !strings.Contains(functions.Source(), option) {
		t.Fatalf("the library's text has no %q", option)
	}
	server := embedded.Run(t, embedded.WithLibrary(strings.Replace(functions.Source(), option, "local OPTIONS = {}", 1)), embedded.WithTime(noon))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	err := c.Block(t.Context(), client.Block{For: time.Minute, Extend: true}, "k")
	want := `ratelimit: block "k": the library on the server is too old for a Block with Extend (RATELIMIT BADARGS "EXTEND": `
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v\nwant %s...", err, want)
	}
	wantClasses(t, "older library", err, client.ErrNotDeployed)
	err = c.Block(t.Context(), client.Block{For: time.Minute, Max: time.Hour, Forget: time.Hour}, "k")
	want = `ratelimit: block "k": the library on the server is too old for a Block with Max (RATELIMIT BADARGS "GROW": `
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v\nwant %s...", err, want)
	}
	wantClasses(t, "older library, Max", err, client.ErrNotDeployed)
	if got := must[client.Result](t)(c.Allow(t.Context(), "k", "5/m")); !got.Allowed {
		t.Errorf("the key is blocked: %+v", got)
	}
}

// tracked makes a call with a usage key, and returns the key.
func tracked(t *testing.T, c *client.Client) string {
	t.Helper()
	must[client.Result](t)(c.Take(t.Context(), client.Request{Keys: []string{"{x}"}, Limits: []client.Limit{"1/s"}, UsageKey: "{x}:usage"}))
	return "{x}:usage"
}

func TestUsage(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	if got := must[client.Usage](t)(c.Usage(ctx, "{u}:usage")); !reflect.DeepEqual(got, client.Usage{Interval: time.Minute}) {
		t.Errorf("of a key that was never used: %+v", got)
	}
	req := client.Request{Keys: []string{"{u}", "{u}:bytes"}, Limits: []client.Limit{"4/h", "1000000/h"}, Costs: []int64{2, 500}, UsageKey: "{u}:usage"}
	for range 3 {
		must[client.Result](t)(c.Take(ctx, req))
		server.Advance(25 * time.Second)
	}
	must[client.Result](t)(c.Peek(ctx, req))
	want := client.Usage{
		Allowed: 2, Denied: 1, Cost: 4, First: noon, Last: noon.Add(50 * time.Second), Interval: time.Minute,
		Series: []minute{{Start: noon, Allowed: 2, Denied: 1}},
	}
	if got := must[client.Usage](t)(c.Usage(ctx, "{u}:usage")); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	must[client.Result](t)(c.Take(ctx, req)) // the call is made at 75 s
	want.Denied, want.Last = 2, noon.Add(75*time.Second)
	want.Series = append(want.Series, minute{Start: noon.Add(time.Minute), Denied: 1})
	if got := must[client.Usage](t)(c.Usage(ctx, "{u}:usage")); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	_, err := c.Usage(ctx, "{u}")
	wantClasses(t, "of a limiter", err, typed("bad_state"))
}

func TestInfo(t *testing.T) {
	ctx := t.Context()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Limit: "1/d"}}},
		functions.Policy{Name: "tenant", Borrow: true, Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "1/d"}, {Key: "pool", Limit: "4/d"}}},
	)))
	_, c := atNoon(t, embedded.WithLibrary(build.Text()))
	for range 3 {
		must[client.Result](t)(c.Allow(ctx, "k", "@export"))
	}
	want := client.Info{
		Version: build.Version(), Contract: functions.Contract, BuildID: build.ID(),
		Policies: []string{"calc", "export", "tenant"}, ShadowDenied: map[string]int64{"export": 2},
		PolicyCalls: map[string]client.PolicyCalls{"calc": {}, "export": {Allowed: 1, Denied: 2}, "tenant": {Pool: &struct{ Guaranteed, Borrowed int64 }{}}},
	}
	if got := must[client.Info](t)(c.Info(ctx)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	_, err := newClient(t, &fake{err: answered("ERR Function not found"), sent: true}).Info(ctx)
	if want := "ratelimit: info: the server does not have the library (ERR Function not found); deploy the library with: ratelimit deploy, or with package loader"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	wantClasses(t, "not deployed", err, client.ErrNotDeployed)
}

// TestInfoAndUsageOfOtherVersions checks valid replies from newer and older libraries with the same
// contract.
func TestInfoAndUsageOfOtherVersions(t *testing.T) {
	ctx := t.Context()
	full := client.Info{Version: "0.1.0", Contract: 1, BuildID: "abc", Policies: []string{"calc", "export"}, ShadowDenied: map[string]int64{"export": 3}}
	older := full
	older.ShadowDenied = nil
	counting := full
	counting.PolicyCalls = map[string]client.PolicyCalls{
		"calc":   {Allowed: 5, Denied: 1},
		"export": {Allowed: 90, Denied: 3, CanaryShare: 50, CanaryAllowed: 4, CanaryDenied: 2},
	}
	calls := []any{append([]any{"calc"}, integers(5, 1)...), append([]any{"export"}, integers(90, 3, 50, 4, 2, 7)...)}
	shares := full
	shares.PolicyCalls = map[string]client.PolicyCalls{
		"calc":   {Allowed: 5, Denied: 1, Classes: map[string]struct{ Allowed, Denied int64 }{"batch": {1, 1}, "default": {4, 0}}},
		"export": {Allowed: 90, Denied: 3, CanaryShare: 50, CanaryAllowed: 4, CanaryDenied: 2, Pool: &struct{ Guaranteed, Borrowed int64 }{80, 14}},
	}
	classes := []any{[]any{"calc", "batch", int64(1), int64(1)}, []any{"calc", "default", int64(4), int64(0)}, []any{"unknown", "batch", int64(4), int64(0)}}
	noPolicies := full
	noPolicies.PolicyCalls = map[string]client.PolicyCalls{}
	for _, tt := range []struct {
		reply any
		want  client.Info
	}{
		{infoReply(), full},
		{infoReply("more", []any{int64(1), nil}), full},
		{append([]any{"before", "x"}, infoReply()...), full},
		{infoReply("shadow_denied", nil), older},
		{infoReply("policy_calls", calls), counting},
		{infoReply("policy_calls", calls, "class_calls", classes, "borrow_calls", []any{append([]any{"export"}, integers(80, 14, 5)...)}), shares},
		{infoReply("policy_calls", []any{}), noPolicies},
	} {
		if got, err := newClient(t, &fake{reply: tt.reply}).Info(ctx); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: %+v, %v", tt.reply, got, err)
		}
	}
	want := client.Usage{
		Allowed: 7, Denied: 2, Cost: 30, First: time.UnixMilli(1_700_000_000_000).UTC(), Last: time.UnixMilli(1_700_000_060_500).UTC(), Interval: time.Minute,
		Series: []minute{
			{Start: time.UnixMilli(1_699_999_980_000).UTC(), Allowed: 6}, {Start: time.UnixMilli(1_700_000_040_000).UTC(), Allowed: 1, Denied: 2},
		},
	}
	more := usageReply("series", []any{append(integers(1_699_999_980_000, 6, 0), "more"), integers(1_700_000_040_000, 1, 2, 9)}, "more", nil)
	for _, reply := range []any{usageReply(), append(more, "more", []any{})} {
		if got, err := newClient(t, &fake{reply: reply}).Usage(ctx, "u"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, %v", reply, got, err)
		}
	}
}

func TestLease(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	limit := limits.Concurrency(2, 30*time.Second)
	one, two, three := c.Lease("jobs", limit, "one"), c.Lease("jobs", limit, ""), c.Lease("jobs", limit, "")
	if one.ID != "one" || len(two.ID) < 26 || two.ID == three.ID {
		t.Fatalf("ids %q, %q, %q", one.ID, two.ID, three.ID)
	}
	got, err := one.Acquire(ctx)
	wantResult(t, "the first", got, err, client.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 30 * time.Second, Lease: 30 * time.Second, Index: 1, Source: "server"})
	got, err = one.Acquire(ctx)
	wantResult(t, "the same again", got, err, client.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: 30 * time.Second, Lease: 30 * time.Second, Index: 1, Source: "server"})
	server.Advance(10 * time.Second)
	must[client.Result](t)(two.Acquire(ctx))
	got, err = three.Acquire(ctx)
	wantResult(t, "a third", got, err, client.Result{Limit: 2, RetryAfter: 20 * time.Second, ResetAfter: 30 * time.Second, Index: 1, Source: "server"})
	got, err = one.Renew(ctx)
	wantResult(t, "renewed", got, err, client.Result{Allowed: true, Limit: 2, ResetAfter: 30 * time.Second, Lease: 30 * time.Second, Index: 1, Source: "server"})
	got, err = three.Renew(ctx)
	wantResult(t, "renewed without one", got, err, client.Result{Limit: 2, RetryAfter: client.Never, ResetAfter: 30 * time.Second, Index: 1, Source: "server"})

	elsewhere := c.Lease("jobs", limit, two.ID)
	for _, step := range []struct {
		lease *client.Lease
		want  bool
	}{{three, false}, {elsewhere, true}, {two, false}} {
		if held := must[bool](t)(step.lease.Release(ctx)); held != step.want {
			t.Errorf("release of %q answers %v, want %v", step.lease.ID, held, step.want)
		}
	}
	server.Advance(30 * time.Second)
	if got := must[client.Result](t)(one.Renew(ctx)); got.Allowed || got.RetryAfter != client.Never {
		t.Errorf("a lease that has lapsed was renewed: %+v", got)
	}

	_, err = c.Lease("jobs", limit, string(make([]byte, 257))).Acquire(ctx)
	wantClasses(t, "a long id", err, typed("bad_args"))
	_, err = c.Lease("jobs", "5/m", "").Acquire(ctx)
	wantClasses(t, "another algorithm", err, typed("bad_limit"))
	_, err = c.Lease("jobs", "@none", "").Release(ctx)
	wantClasses(t, "no policy", err, typed("no_policy"))
	if _, err = c.Allow(ctx, "jobs", limit); typeOf(err) != "bad_limit" {
		t.Errorf("take of a lease's limit: %v", err)
	}
}

// With a shadow policy, Acquire allows a call beyond the limit, but takes no lease.
func TestShadowLease(t *testing.T) {
	ctx := t.Context()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=1m"}}, Shadow: true},
	)))
	_, c := atNoon(t, embedded.WithLibrary(build.Text()))
	one, two := c.Lease("jobs", "@jobs", ""), c.Lease("jobs", "@jobs", "")
	if got := must[client.Result](t)(one.Acquire(ctx)); !got.Allowed || got.Shadow == nil || !got.Shadow.Allowed || got.Lease != time.Minute {
		t.Errorf("%+v", got)
	}
	got, err := two.Acquire(ctx)
	wantResult(t, "more than the policy has", got, err, client.Result{Allowed: true, Limit: 1, ResetAfter: time.Minute, Index: 1, Source: "server",
		Shadow: &client.Result{RetryAfter: time.Minute, Index: 1}})
	if must[bool](t)(two.Release(ctx)) || !must[bool](t)(one.Release(ctx)) {
		t.Error("two was held, or one was not")
	}
}
