package client_test

import (
	"context"
	"reflect"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
)

// denied returns a client that remembers, for up to a second, a denial of key "k" under 4/s with
// cost 2. The units refill in 500 ms.
func (s *testbed) denied(t *testing.T) *client.Client {
	t.Helper()
	c := s.client(t, client.WithDenialMemory(time.Second))
	allow(t, c, "4/s", 4)
	if res := allow(t, c, "4/s", 2); res.Allowed || res.RetryAfter != 500*time.Millisecond || res.Source != "server" {
		t.Fatal(res)
	}
	s.sent()
	return c
}

// A denial is remembered until its RetryAfter has passed.
func TestDenialIsRemembered(t *testing.T) {
	s := newTestbed(t)
	c := s.denied(t)
	s.pass(199*time.Millisecond + time.Microsecond)
	got := allow(t, c, "4/s", 2)
	want := client.Result{Limit: 4, RetryAfter: 301 * time.Millisecond, ResetAfter: 801 * time.Millisecond, Index: 1, Source: "memory"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if res := allow(t, c, "4/s", 3); res.Source != "memory" || res.Allowed {
		t.Errorf("a higher cost: %+v", res)
	}
	if n := len(s.sent()); n != 0 {
		t.Errorf("%d requests", n)
	}
	s.pass(300*time.Millisecond + 998*time.Microsecond)
	wantSource(t, c, "4/s", 2, "memory")
	s.pass(time.Microsecond)
	if res := allow(t, c, "4/s", 2); res.Source != "server" || !res.Allowed {
		t.Errorf("when the wait is over: %+v", res)
	}
}

// An allowed call that has to wait, under leaky_bucket, is not remembered: the next call gets a later turn.
func TestAllowedWithAWaitIsNotRemembered(t *testing.T) {
	c := newTestbed(t).client(t, client.WithDenialMemory(time.Second))
	for turn := range 3 {
		res := allow(t, c, "leaky_bucket 10/s", 1)
		if want := time.Duration(turn) * 100 * time.Millisecond; !res.Allowed || res.RetryAfter != want || res.Source != "server" {
			t.Errorf("turn %d: %+v", turn, res)
		}
	}
}

// A remembered denial applies only to takes from the same single key and limit, with at least the
// same cost and no other options. All other calls are sent to the server.
func TestDenialOfAnotherCall(t *testing.T) {
	s := newTestbed(t)
	for name, req := range map[string]client.Request{
		"lower cost":   {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{1}},
		"cost 0":       {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{0}},
		"one":          {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}},
		"limit":        {Keys: []string{"k"}, Limits: []client.Limit{"5/s"}, Costs: []int64{2}},
		"key":          {Keys: []string{"l"}, Limits: []client.Limit{"4/s"}, Costs: []int64{2}},
		"up to":        {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{2}, UpTo: true},
		"force":        {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{2}, Force: true},
		"usage":        {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{2}, UsageKey: "u"},
		"once":         {Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{2}, OnceKey: "o", OnceTTL: time.Second},
		"several keys": {Keys: []string{"k", "l"}, Limits: []client.Limit{"4/s", "4/s"}, Costs: []int64{2}},
	} {
		t.Run(name, func(t *testing.T) {
			s.clear(t)
			c := s.denied(t)
			if res := must[client.Result](t)(c.Take(t.Context(), req)); res.Source != "server" {
				t.Errorf("%+v", res)
			}
			if n := len(s.sent()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// Denials of ever more floors end the memory of none of them.
func TestDenialsOfManyFloors(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithDenialMemory(time.Second))
	allow(t, c, "4/s", 4)
	ask := func(floor int, want string) {
		t.Helper()
		if res := must[client.Result](t)(c.Take(t.Context(), withFloor(one("k", "4/s", 1), floor))); res.Allowed || res.Source != want {
			t.Errorf("floor %d: %+v, want it from the %v", floor, res, want)
		}
	}
	for floor := range 70 {
		ask(floor+1, "server")
	}
	for floor := range 70 {
		ask(floor+1, "memory")
	}
	must[int64](t)(c.Reset(t.Context(), "k")) // finds the denials of all floors
	allow(t, c, "4/s", 4)
	ask(70, "server")
	ask(1, "server")
}

// After a denied call with UpTo, the client denies calls with UpTo and calls with any cost above 0.
func TestDenialOfUpTo(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithDenialMemory(time.Second))
	allow(t, c, "4/s", 4)
	for i, want := range []string{"server", "memory"} {
		if res := must[client.Result](t)(c.Take(t.Context(), upTo("k", "4/s", 3))); res.Allowed || res.Source != want {
			t.Errorf("%d: %+v", i, res)
		}
	}
	if res := must[client.Result](t)(c.Take(t.Context(), upTo("k", "4/s", 0))); res.Source != "server" {
		t.Errorf("of none: %+v", res)
	}
	if res := allow(t, c, "4/s", 1); res.Allowed || res.Source != "memory" {
		t.Errorf("one: %+v", res)
	}
}

// A denial is remembered for at most the time given to WithDenialMemory. This time begins before
// the denied call is sent. When it is over, changes by another process take effect.
func TestDenialEndsWithTheLongestTime(t *testing.T) {
	s := newTestbed(t)
	for limit, cost := range map[client.Limit]int64{"4/h": 4, "3/h": 4} { // 3/h never allows a cost of 4
		s.clear(t)
		c := s.client(t, client.WithDenialMemory(200*time.Millisecond))
		other := s.client(t)
		allow(t, other, limit, 1)
		s.hook = func(redis.Cmder) { s.pass(50 * time.Millisecond) }
		first := allow(t, c, limit, cost)
		s.hook = nil
		if first.Allowed {
			t.Fatal(first)
		}
		must[int64](t)(other.Reset(t.Context(), "k"))
		s.pass(150*time.Millisecond - 1)
		res := allow(t, c, limit, cost)
		if res.Source != "memory" {
			t.Errorf("%s: just before: %+v", limit, res)
		}
		if (res.RetryAfter == client.Never) != (first.RetryAfter == client.Never) {
			t.Errorf("%s: to be retried after %v, at first %v", limit, res.RetryAfter, first.RetryAfter)
		}
		s.pass(1)
		wantSource(t, c, limit, cost, "server")
	}
}

// acts are the calls that change a key and clear the client's memory of it.
var acts = map[string]func(context.Context, *client.Client) error{
	"reset": func(ctx context.Context, c *client.Client) error { return second(c.Reset(ctx, "k")) },
	"refund": func(ctx context.Context, c *client.Client) error {
		return second(c.Refund(ctx, client.For("k", "4/s", 4)))
	},
	"unblock":      func(ctx context.Context, c *client.Client) error { return second(c.Unblock(ctx, "k")) },
	"override":     func(ctx context.Context, c *client.Client) error { return c.Override(ctx, "4/s", time.Minute, "k") },
	"override end": func(ctx context.Context, c *client.Client) error { return second(c.EndOverride(ctx, "k")) },
	"block": func(ctx context.Context, c *client.Client) error {
		return c.Block(ctx, client.Block{For: time.Minute}, "k")
	},
}

func TestDenialIsForgotten(t *testing.T) {
	s := newTestbed(t)
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			s.clear(t)
			c := s.denied(t)
			require(t, act(t.Context(), c))
			wantSource(t, c, "4/s", 2, "server")
		})
		t.Run(name+" while the call is under way", func(t *testing.T) {
			s.clear(t)
			c := s.client(t, client.WithDenialMemory(time.Second))
			allow(t, c, "4/s", 4)
			acted := false // whether act has run; it runs once, after the decision and before the reply arrives
			s.lose = func(cmd redis.Cmder) bool {
				if cmd.Args()[1] == "ratelimit_take" && !acted {
					acted = true
					check(t, act(t.Context(), c))
				}
				return false
			}
			if res := allow(t, c, "4/s", 2); res.Allowed {
				t.Fatal(res)
			}
			wantSource(t, c, "4/s", 2, "server")
		})
	}
}

// A denial is not remembered if its RetryAfter has passed by the time the reply arrives.
func TestDenialThatComesTooLate(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithDenialMemory(time.Second))
	allow(t, c, "4/s", 4)
	s.lose = func(redis.Cmder) bool { s.pass(500 * time.Millisecond); return false }
	allow(t, c, "4/s", 2)
	if n := client.Kept(c).Denials; n != 0 {
		t.Errorf("%d are remembered", n)
	}
}

// Decisions that involve a shadow policy are not remembered.
func TestDenialWithShadowIsNotRemembered(t *testing.T) {
	for reply, want := range map[string]string{"six": "memory", "nine": "server"} {
		integers := integers(0, 4, 0, 500, 1000, 1)
		if reply == "nine" {
			integers = append(integers, int64(0), int64(500), int64(1))
		}
		at := time.UnixMilli(0)
		c := newClient(t, &fake{reply: integers}, client.WithDenialMemory(time.Second), client.WithClock(func() time.Time { return at }))
		allow(t, c, "@p", 1)
		if res := allow(t, c, "@p", 1); res.Source != want {
			t.Errorf("%s: %+v", reply, res)
		}
	}
}

// Units in a batch are used before a remembered denial; if the batch is empty, the denial saves a
// request.
func TestDenialMemoryWithBatches(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t, client.WithDenialMemory(time.Second))
	allow(t, s.client(t), wide, 100000-31)
	s.sent()
	if res := allow(t, c, wide, 16); res.Allowed { // 16 units are more than the batch has
		t.Fatal(res)
	}
	for range 15 {
		if res := allow(t, c, wide, 1); !res.Allowed || res.Source != "batch" {
			t.Fatal(res)
		}
	}
	for _, want := range []string{"server", "memory"} {
		if res := allow(t, c, wide, 1); res.Allowed || res.Source != want {
			t.Errorf("%+v, want it from the %v", res, want)
		}
	}
}

// The tables have a maximum size, regardless of the number of keys and limits, and shrink when keys
// are no longer used. The test lowers the maximum, to be fast.
func TestTablesAreBounded(t *testing.T) {
	const part = 16
	at := time.UnixMilli(0)
	f := &fake{}
	const most = client.MostKeys / part
	c := newClient(t, f, client.WithBatches(8, ttl), client.WithDenialMemory(time.Second), client.WithClock(func() time.Time { return at }),
		client.WithTables(most, client.MostLimits/part))
	if client.MostKeys != 65536 || client.MostLimits != 1000 {
		t.Errorf("the tables hold %d keys and %d limits", client.MostKeys, client.MostLimits)
	}
	var fallback client.Fallback
	ask := func(n int, keys string) {
		for i := range n {
			req := one(keys+strconv.Itoa(i), "10/s")
			req.Fallback = fallback
			must[client.Result](t)(c.Take(t.Context(), req))
			f.lines = nil
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}

	f.reply = integers(1, 10, 9, 0, 1000, 1)
	ask(2*most, "allowed:")
	if n := client.Kept(c).Batches; n != most {
		t.Errorf("%d batches are kept, want %d", n, most)
	}
	at = at.Add(time.Second)
	ask(most, "later:")
	if n := client.Kept(c).Batches; n > most {
		t.Errorf("%d batches are kept, want %d at most", n, most)
	}
	at = at.Add(time.Second)
	for range 40 { // each new key removes up to two expired batches
		ask(most/64, "a few:"+at.String())
		at = at.Add(time.Millisecond)
	}
	if n := client.Kept(c).Batches; n >= most {
		t.Errorf("%d batches are still kept", n)
	}

	f.reply = integers(0, 10, 0, 60000, 60000, 1)
	before := heap()
	ask(2*most, "denied:")
	if n := client.Kept(c).Denials; n != most {
		t.Errorf("%d denials are kept, want %d", n, most)
	}
	if grown := heap() - before; grown > 100<<20/part {
		t.Errorf("the memory of %d denials is %d kB", most, grown>>10)
	}
	at = at.Add(2 * time.Second)
	ask(most/2, "another:")
	if n := client.Kept(c).Denials; n > most/2 {
		t.Errorf("%d denials are still kept, most of which are over", n)
	}

	f.reply = []any{"limit", []any{integers(0, 5, 60000, 5)}}
	for i := range 2 * 1000 / part {
		client.Learn(c, limits.PerMinute(int64(i+1)))
	}
	if n := client.Kept(c).Limits; n != 1000/part {
		t.Errorf("%d limits are kept, want %d", n, 1000/part)
	}
	client.Learn(c, "10/s")
	at = at.Add(time.Minute)
	f.err, fallback = redis.ErrPoolTimeout, client.LocalFallback(1)
	ask(2*most, "local:")
	if n := client.Kept(c).Buckets; n != most {
		t.Errorf("%d buckets are kept, want %d", n, most)
	}
	runtime.KeepAlive(c)
}

// After a block denied a call with cost 0, the client denies calls with any cost.
func TestDenialOfNothing(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithDenialMemory(time.Second))
	require(t, s.client(t).Block(t.Context(), client.Block{For: time.Minute}, "k"))
	for cost, want := range []string{"server", "memory", "memory"} {
		if res := allow(t, c, wide, int64(cost)); res.Allowed || res.Source != want || res.RetryAfter != time.Minute {
			t.Errorf("cost %d: %+v, want it from the %v", cost, res, want)
		}
	}
}
