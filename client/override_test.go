package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestOverride(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	must[client.Result](t)(c.AllowN(ctx, "{a}:1", "6/m", 3))
	require(t, c.Override(ctx, "1/m", time.Hour, "{a}:1", "{a}:2"))
	require(t, c.Override(ctx, "fixed_window 12/m", 30*time.Second-time.Nanosecond, "{a}:2")) // replaces the first
	require(t, c.Override(ctx, "12/m", 30*time.Second, "{a}:1"))
	got, err := c.Allow(ctx, "{a}:1", "6/m")
	wantResult(t, "what was used stays used", got, err, client.Result{Allowed: true, Limit: 12, Remaining: 5, ResetAfter: 35 * time.Second, Index: 1, Source: "server"})
	got, err = c.Take(ctx, client.Request{Keys: []string{"{a}:2", "{a}:3"}, Limits: []client.Limit{"6/m", "sliding_log 6/m"}})
	wantResult(t, "of one of two keys", got, err, client.Result{Allowed: true, Limit: 6, Remaining: 5, ResetAfter: time.Minute, Index: 2, Source: "server"})
	got, err = c.Peek(ctx, client.For("{a}:2", "6/m"))
	wantResult(t, "peek", got, err, client.Result{Allowed: true, Limit: 12, Remaining: 10, ResetAfter: time.Minute, Index: 1, Source: "server"})
	if n := must[int64](t)(c.EndOverride(ctx, "{a}:1", "{a}:3")); n != 1 {
		t.Errorf("EndOverride of a key with an override and another answers %d, want 1", n)
	}
	got, err = c.Peek(ctx, client.For("{a}:1", "6/m"))
	wantResult(t, "after EndOverride", got, err, client.Result{Allowed: true, Limit: 6, Remaining: 1, ResetAfter: 45 * time.Second, Index: 1, Source: "server"})
	server.Advance(30 * time.Second)
	got, err = c.Peek(ctx, client.For("{a}:2", "fixed_window 6/m"))
	wantResult(t, "after the end", got, err, client.Result{Allowed: true, Limit: 6, Remaining: 4, ResetAfter: 30 * time.Second, Index: 1, Source: "server"})
	if n := must[int64](t)(c.EndOverride(ctx, "{a}:2")); n != 0 {
		t.Errorf("EndOverride of a key whose override has ended answers %d, want 0", n)
	}

	lease := c.Lease("jobs", limits.Concurrency(1, time.Second), "")
	require(t, c.Override(ctx, limits.Concurrency(3, time.Minute), time.Hour, "jobs"))
	got, err = lease.Acquire(ctx)
	wantResult(t, "acquire", got, err, client.Result{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: time.Minute, Lease: time.Minute, Index: 1, Source: "server"})

	for name, err := range map[string]error{
		"no key":     c.Override(ctx, "6/m", time.Second),
		"two slots":  c.Override(ctx, "6/m", time.Second, "{a}", "{b}"),
		"too long":   c.Override(ctx, "6/m", 36501*24*time.Hour, "k"),
		"usage keys": c.Override(ctx, "6/m", time.Second, tracked(t, c)),
		"no limit":   c.Override(ctx, "", time.Second, "k"),
		"a policy":   c.Override(ctx, "@api", time.Second, "k"),
		"six rates":  c.Override(ctx, "1/s, 2/m, 3/h, 4/d, 5/2d, 6/3d", time.Second, "k"),
		"two kinds":  c.Override(ctx, "6/m", time.Second, "jobs"),
		"none ended": second(c.EndOverride(ctx)),
	} {
		want := map[string]error{
			"too long": typed("bad_args"), "two slots": typed("cross_slot"), "usage keys": typed("bad_state"), "two kinds": typed("bad_state"),
			"no limit": typed("bad_limit"), "a policy": typed("bad_limit"), "six rates": typed("bad_limit"),
		}[name]
		if want == nil {
			want = typed("bad_keys")
		}
		wantClasses(t, name, err, want)
	}
}

// A library from before overrides were added does not have these functions.
func TestOverrideOfAnOlderLibrary(t *testing.T) {
	text := functions.Source()
	for _, name := range []string{"'ratelimit_override'", "'ratelimit_override_end'"} {
		if !strings.Contains(text, name) {
			t.Fatalf("the library's text has no %s", name)
		}
		text = strings.Replace(text, name, "'ratelimit_of_a_later_version"+name[1:], 1)
	}
	server := embedded.Run(t, embedded.WithLibrary(text), embedded.WithTime(noon))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	wantClasses(t, "override", c.Override(t.Context(), "5/m", time.Minute, "k"), client.ErrNotDeployed)
	wantClasses(t, "end", second(c.EndOverride(t.Context(), "k")), client.ErrNotDeployed)
}

// A client drops its batch of a key when it overrides the key. Other clients may spend their
// batches for up to ttl. The same is true when the override ends.
func TestOverrideEndsBatches(t *testing.T) {
	s := newTestbed(t)
	c, other := s.warm(t), s.warm(t)
	require(t, c.Override(t.Context(), "1/h", time.Hour, "k"))
	if res := allow(t, c, wide, 1); res.Source != "server" || res.Limit != 1 {
		t.Errorf("of the client that overrides: %+v", res)
	}
	wantSource(t, other, wide, 1, "batch")
	s.pass(ttl)
	if res := allow(t, other, wide, 1); res.Source != "server" || res.Limit != 1 {
		t.Errorf("of another client, ttl later: %+v", res)
	}
	must[int64](t)(c.EndOverride(t.Context(), "k"))
	if res := allow(t, c, wide, 1); res.Limit != 100_000 {
		t.Errorf("of the client that ends the override: %+v", res)
	}
}

// Under a leaky_bucket, every unit has its own wait. If an override makes a key a leaky_bucket, the
// client therefore requests each unit separately. It drops one unit: the unspent unit of the first
// reply that has a wait.
func TestOverrideByAQueueIsNotBatched(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	must[int64](t)(c.Reset(t.Context(), "k"))
	require(t, c.Override(t.Context(), "leaky_bucket 36000/h", time.Hour, "k")) // one unit in 100 ms
	for turn := range 20 {
		lost := min(1, max(0, turn-1))
		if res := allow(t, c, wide, 1); !res.Allowed || res.Source != "server" || res.RetryAfter != time.Duration(turn+lost)*ttl {
			t.Errorf("number %d: %+v", turn, res)
		}
	}
}

// An override may refill the key faster than the limit. Close does not refund units that the
// override may already have refilled when the refund arrives.
func TestCloseUnderAnOverride(t *testing.T) {
	for limit, want := range map[client.Limit]string{
		"100000/d":             "14", // refills one in 864 ms
		"360000/h":             "",
		"fixed_window 10000/d": "14",
		"fixed_window 10000/s": "",
	} {
		s := newTestbed(t)
		c := s.client(t, client.WithBatches(16, 100*time.Second), client.WithTimeout(500*time.Millisecond))
		require(t, c.Override(t.Context(), limit, time.Hour, "k"))
		for range 1 + 2 + 4 + 8 + 1 { // leaves 15 units of the last batch of 16
			allow(t, c, "360/h", 1)
		}
		s.sent()
		check(t, c.Close())
		got := ""
		for _, line := range s.sent() {
			if line[1] == "ratelimit_refund" {
				got += line[6].(string)
			}
		}
		if got != want {
			t.Errorf("%s: gave back %q, want %q", limit, got, want)
		}
	}
}
