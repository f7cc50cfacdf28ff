package client_test

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Whatever the client's options are, invalid input returns the right error and changes nothing.
func TestBadInputChangesNothing(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	rdb := connect(t, redis.Options{Addr: server.Addr()})
	for name, opts := range map[string][]client.Option{
		"plain":   nil,
		"batches": {client.WithBatches(8, ttl)},
		"memory":  {client.WithDenialMemory(time.Second)},
		"shared":  nil,
		"local":   {client.WithFallback(client.LocalFallback(1))},
		"open":    {client.WithFallback(client.FailOpen), client.WithBatches(8, ttl), client.WithDenialMemory(time.Second)},
	} {
		c := open(t, "redis://"+server.Addr(), append(opts, client.WithTimeout(slow))...)
		for _, bad := range []struct {
			key   string
			limit client.Limit
			n     int64
			class error
		}{
			{"k", limits.WithBurst(limits.PerMinute(0), 5), 1, typed("bad_limit")},
			{"k", "0/m, 5/s", 1, typed("bad_limit")},
			{"k", "each", 1, typed("bad_limit")},
			{"k", "5/0s", 1, typed("bad_limit")},
			{"k", limits.WithBurst(limits.PerMinute(5), 0), 1, typed("bad_limit")},
			{"k", limits.PerMinute(-5), 1, typed("bad_limit")},
			{"k", "", 1, typed("bad_limit")},
			{"k", "5/m", -1, typed("bad_cost")},
			{"k", "5/m", -1 << 63, typed("bad_cost")},
			{"k", "5/m", 1<<53 + 1, typed("bad_cost")},
			{"", "5/m", 1, typed("bad_keys")},
		} {
			for call, err := range map[string]error{
				"AllowN": second(c.AllowN(t.Context(), bad.key, bad.limit, bad.n)),
				"UpTo":   second(c.Take(t.Context(), upTo(bad.key, bad.limit, bad.n))),
				"Peek":   second(c.Peek(t.Context(), client.For(bad.key, bad.limit, bad.n))),
				"Refund": second(c.Refund(t.Context(), client.For(bad.key, bad.limit, bad.n))),
			} {
				wantClasses(t, fmt.Sprintf("%s: %s(%q, %q, %d)", name, call, bad.key, bad.limit, bad.n), err, bad.class)
			}
		}
		if keys := must[[]string](t)(rdb.Keys(t.Context(), "*").Result()); len(keys) > 0 {
			t.Fatalf("%s: bad input left the keys %q", name, keys)
		}
	}
}

// A key with unbalanced braces works in a cluster, and the braces are part of the key.
func TestUnbalancedBracesInACluster(t *testing.T) {
	nodes := startCluster(t)
	direct := flushCluster(t, nodes)
	keys := []string{"user:{42", "user:}42", "}user:{42", "user:{}42", "user:{{42}", "{", "}", "{}", "a{b}c}", "user:{42}{"}
	for name, opts := range map[string][]client.Option{"plain": {client.Alone()}, "shared": nil, "batches": {client.WithBatches(2, ttl)}} {
		c := open(t, nodes.nodes[0].Addr+","+nodes.nodes[1].Addr, append(opts, client.WithTimeout(slow), client.WithPrefix(name+":"))...)
		for _, key := range keys {
			for n := range int64(3) {
				if res, err := c.Allow(t.Context(), key, perDay); err != nil || !res.Allowed || res.Remaining != 9-n {
					t.Errorf("%s: call %d under the key %q: %+v, %v", name, n+1, key, res, err)
				}
			}
		}
		check(t, c.Close())
	}
	kept := must[int64](t)(direct[0].DBSize(t.Context()).Result()) + must[int64](t)(direct[1].DBSize(t.Context()).Result())
	if want := int64(3 * len(keys)); kept != want {
		t.Errorf("the cluster keeps %d keys, want %d", kept, want)
	}
}

// The server's clock decides. With a local clock that is wrong by a day, the client, its local
// limiter, its batches and its denial memory give the same decisions as with a correct clock.
func TestAClockThatIsADayWrong(t *testing.T) {
	decided := map[time.Duration][]client.Result{}
	for _, wrong := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour} {
		server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
		var passed atomic.Int64
		now := func() time.Time { return noon.Add(wrong + time.Duration(passed.Load())) }
		ask := func(c *client.Client, key string) {
			for range 20 {
				res := must[client.Result](t)(c.Allow(t.Context(), key, "6/s"))
				res.Err = nil // not compared, because the errors contain the addresses of different servers
				decided[wrong] = append(decided[wrong], res)
				passed.Add(int64(30 * time.Millisecond))
				server.Advance(30 * time.Millisecond)
			}
		}
		for i, opt := range []client.Option{client.WithObserver(client.LogTo(nil)), client.WithBatches(4, ttl), client.WithDenialMemory(time.Second)} {
			c := open(t, "redis://"+server.Addr(), client.WithTimeout(slow), client.WithClock(now), opt)
			ask(c, fmt.Sprint("k", i))
		}
		c := open(t, "redis://"+server.Addr(), client.WithTimeout(slow), client.WithClock(now), client.WithFallback(client.LocalFallback(1)))
		ask(c, "local")
		eventually(t, "the client knows the limit", func() bool { return client.Knows(c, "6/s") })
		check(t, server.Close())
		ask(c, "local")
		if !reflect.DeepEqual(decided[wrong], decided[0]) {
			t.Errorf("with a clock %v wrong:\n%+v\nwith a right one:\n%+v", wrong, decided[wrong], decided[0])
		}
	}
}
