package client_test

import (
	"crypto/tls"
	"fmt"
	"math"
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

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		rdb  redis.UniversalClient
		opts []client.Option
		want string
	}{
		{"nil", nil, nil, "ratelimit: client.New: the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient"},
		{"nil of a type", (*redis.ClusterClient)(nil), nil, "ratelimit: client.New: the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient"},
		{"AutoPipeliner", must[*redis.AutoPipeliner](t)((&fake{}).client().AutoPipeline()), nil,
			"ratelimit: client.New: the Redis client is a *redis.AutoPipeliner, which may ignore deadlines; pass a *redis.Client, *redis.ClusterClient or *redis.Ring"},
		{"another type", &fake{}, nil,
			"ratelimit: client.New: the Redis client is a *client_test.fake, which may ignore deadlines; pass a *redis.Client, *redis.ClusterClient or *redis.Ring"},
		{"Client without deadlines", redis.NewClient(&redis.Options{}), nil,
			"ratelimit: client.New: the Redis client ignores deadlines of contexts; set ContextTimeoutEnabled: true in its options"},
		{"Client that reads without a deadline", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, ReadTimeout: -2}), nil,
			"ratelimit: client.New: the Redis client reads without a deadline; set ReadTimeout in its options to -1 or more"},
		{"Ring without deadlines", redis.NewRing(&redis.RingOptions{}), nil,
			"ratelimit: client.New: the Redis client ignores deadlines of contexts; set ContextTimeoutEnabled: true in its options"},
		{"Ring that writes without a deadline", redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, WriteTimeout: -2}), nil,
			"ratelimit: client.New: the Redis client writes without a deadline; set WriteTimeout in its options to -1 or more"},
		{"ClusterClient without deadlines", redis.NewClusterClient(&redis.ClusterOptions{}), nil,
			"ratelimit: client.New: the Redis client ignores deadlines of contexts; set ContextTimeoutEnabled: true in its options"},
		{"ClusterClient that reads from replicas", redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, RouteRandomly: true}), nil,
			"ratelimit: client.New: the Redis client reads from replicas, and then ignores deadlines; leave ReadOnly, RouteByLatency and RouteRandomly out of its options"},
		{"nil option", (&fake{}).client(), []client.Option{nil}, "ratelimit: client.New: an option is nil; leave it out"},
		{"two prefixes", (&fake{}).client(), []client.Option{client.WithPrefix("a:"), client.WithPrefix("b:")},
			`ratelimit: client.New: WithPrefix is given twice, as "a:" and as "b:"; give it once`},
		{"no time", (&fake{}).client(), []client.Option{client.WithTimeout(0)}, "ratelimit: client.New: the timeout 0s is not above 0; give one such as 500ms"},
		{"TLS", (&fake{}).client(), []client.Option{client.WithTLS(&tls.Config{})}, "ratelimit: client.New: WithTLS is for Open; set TLSConfig in the options of the Redis client"},
		{"no healer", (&fake{}).client(), []client.Option{client.WithHealer(nil)}, "ratelimit: client.New: the healer is nil; leave WithHealer out"},
		{"no share", (&fake{}).client(), []client.Option{client.WithFallback(client.LocalFallback(0))},
			"ratelimit: client.New: the share 0 of LocalFallback is not above 0 and up to 1; give one such as 0.1"},
		{"no fallback", (&fake{}).client(), []client.Option{client.WithFallback(client.Fallback{})},
			"ratelimit: client.New: the fallback is the zero value; give ReturnError, FailOpen, FailClosed or LocalFallback"},
	} {
		c, err := client.New(tt.rdb, tt.opts...)
		if c != nil || err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, %v\nwant %s", tt.name, c, err, tt.want)
		}
		if strings.HasPrefix(fmt.Sprintf("%T", tt.rdb), "*redis.") && !reflect.ValueOf(tt.rdb).IsNil() {
			check(t, tt.rdb.Close())
		}
	}
}

func TestCommandLines(t *testing.T) {
	ctx := t.Context()
	two := client.Request{Keys: []string{"{u}:m", "{u}:d"}, Limits: []client.Limit{"100/m", "5000/d"}, Costs: []int64{1, 250}}
	all := two
	most := client.Request{Keys: []string{"a"}, Limits: []client.Limit{"1/s"}, Costs: []int64{8}, UpTo: true, OnceKey: "o", OnceTTL: time.Minute, UsageKey: "u"}
	all.Costs, all.OnceKey, all.OnceTTL, all.UsageKey = []int64{3}, "{u}:once", time.Minute, "{u}:usage"
	tracked := client.Request{Keys: []string{"a"}, Limits: []client.Limit{"1/s"}, UsageKey: "u"}
	lease := func(c *client.Client) *client.Lease {
		return c.Lease("jobs", limits.Concurrency(3, 30*time.Second), "job 7")
	}
	prefix := []client.Option{client.WithPrefix("rl:")}
	decision := integers(1, 5, 4, 0, 1, 1)
	for _, tt := range []struct {
		name  string
		opts  []client.Option
		reply any
		call  func(*client.Client) error
		want  string
	}{
		{"Allow", nil, decision, func(c *client.Client) error { return second(c.Allow(ctx, "user:42", "100/m")) },
			`[fcall ratelimit_take 1 user:42 100/m]`},
		{"AllowN", nil, decision, func(c *client.Client) error { return second(c.AllowN(ctx, "user:42", "100/m", 0)) },
			`[fcall ratelimit_take 1 user:42 100/m COST 0]`},
		{"UpTo", nil, decision, func(c *client.Client) error { return second(c.Take(ctx, upTo("user:42", "100/m", 8))) },
			`[fcall ratelimit_take 1 user:42 100/m COST 8 UPTO]`},
		{"Peek", nil, decision, func(c *client.Client) error { return second(c.Peek(ctx, client.For("user:42", "100/m"))) },
			`[fcall_ro ratelimit_peek 1 user:42 100/m]`},
		{"Peek of 7", nil, decision, func(c *client.Client) error { return second(c.Peek(ctx, client.For("user:42", "100/m", 7))) },
			`[fcall_ro ratelimit_peek 1 user:42 100/m COST 7]`},
		{"Take", nil, decision, func(c *client.Client) error { return second(c.Take(ctx, two)) },
			`[fcall ratelimit_take 2 {u}:m {u}:d 100/m 5000/d COST 1 250]`},
		{"Peek of two", nil, decision, func(c *client.Client) error { return second(c.Peek(ctx, two)) },
			`[fcall_ro ratelimit_peek 2 {u}:m {u}:d 100/m 5000/d COST 1 250]`},
		{"Reset", nil, int64(2), func(c *client.Client) error { return second(c.Reset(ctx, "a", "b")) },
			`[fcall ratelimit_reset 2 a b]`},
		{"Take with all", nil, decision, func(c *client.Client) error { return second(c.Take(ctx, all)) },
			`[fcall ratelimit_take 4 {u}:m {u}:d {u}:once {u}:usage 100/m 5000/d COST 3 ONCE 60000 TRACK]`},
		{"Take once", nil, decision, func(c *client.Client) error {
			return second(c.Take(ctx, client.Request{Keys: []string{"a"}, Limits: []client.Limit{"1/s"}, OnceKey: "o", OnceTTL: time.Millisecond + 1}))
		}, `[fcall ratelimit_take 2 a o 1/s ONCE 2]`},
		{"Take up to a number, with all", nil, decision, func(c *client.Client) error { return second(c.Take(ctx, most)) },
			`[fcall ratelimit_take 3 a o u 1/s COST 8 UPTO ONCE 60000 TRACK]`},
		{"Take by force, with all", nil, decision, func(c *client.Client) error {
			forced := all
			forced.Force = true
			return second(c.Take(ctx, forced))
		}, `[fcall ratelimit_take 4 {u}:m {u}:d {u}:once {u}:usage 100/m 5000/d COST 3 FORCE ONCE 60000 TRACK]`},
		{"Take one by force", nil, decision, func(c *client.Client) error {
			return second(c.Take(ctx, client.Request{Keys: []string{"a"}, Limits: []client.Limit{"1/s"}, Force: true}))
		}, `[fcall ratelimit_take 1 a 1/s COST 1 FORCE]`},
		{"Take with a policy of several keys", nil, decision, func(c *client.Client) error {
			return second(c.Take(ctx, client.Request{Keys: []string{"a", "b"}, Limits: []client.Limit{"@calc"}, UsageKey: "u"}))
		}, `[fcall ratelimit_take 3 a b u @calc TRACK]`},
		{"Peek without the usage key", nil, decision, func(c *client.Client) error { return second(c.Peek(ctx, tracked)) },
			`[fcall_ro ratelimit_peek 1 a 1/s]`},
		{"Refund", nil, decision, func(c *client.Client) error { return second(c.Refund(ctx, two)) },
			`[fcall ratelimit_refund 2 {u}:m {u}:d 100/m 5000/d COST 1 250]`},
		{"Refund without the usage key", nil, decision, func(c *client.Client) error { return second(c.Refund(ctx, tracked)) },
			`[fcall ratelimit_refund 1 a 1/s]`},
		{"Refund once", nil, decision, func(c *client.Client) error { return second(c.Refund(ctx, all)) },
			`[fcall ratelimit_refund 3 {u}:m {u}:d {u}:once 100/m 5000/d COST 3 ONCE 60000]`},
		{"Refund of 3", nil, decision, func(c *client.Client) error { return second(c.Refund(ctx, client.For("a", "1/s", 3))) },
			`[fcall ratelimit_refund 1 a 1/s COST 3]`},
		{"Block", nil, int64(2), func(c *client.Client) error { return c.Block(ctx, client.Block{For: time.Minute}, "a", "b") },
			`[fcall ratelimit_block 2 a b 60000]`},
		{"Block for less than a ms", nil, int64(1), func(c *client.Client) error { return c.Block(ctx, client.Block{For: 1}, "a") },
			`[fcall ratelimit_block 1 a 1]`},
		{"Block with Extend", nil, int64(2), func(c *client.Client) error {
			return c.Block(ctx, client.Block{For: time.Minute, Extend: true}, "a", "b")
		},
			`[fcall ratelimit_block 2 a b 60000 EXTEND]`},
		{"Block with Max", nil, []any{int64(1), int64(60000), int64(5)}, func(c *client.Client) error {
			return c.Block(ctx, client.Block{For: time.Minute, Max: time.Hour, Forget: 24 * time.Hour}, "a", "b")
		},
			`[fcall ratelimit_block 2 a b 60000 GROW 3600000 86400000]`},
		{"Unblock", nil, int64(1), func(c *client.Client) error { return second(c.Unblock(ctx, "a", "b")) },
			`[fcall ratelimit_unblock 2 a b]`},
		{"Override", nil, int64(2), func(c *client.Client) error { return c.Override(ctx, "10/s, 500/m", time.Hour, "a", "b") },
			`[fcall ratelimit_override 2 a b 10/s, 500/m 3600000]`},
		{"prefix of Override", prefix, int64(1), func(c *client.Client) error { return c.Override(ctx, "5/m", 1, "a") },
			`[fcall ratelimit_override 1 rl:a 5/m 1]`},
		{"EndOverride", nil, int64(1), func(c *client.Client) error { return second(c.EndOverride(ctx, "a", "b")) },
			`[fcall ratelimit_override_end 2 a b]`},
		{"prefix of EndOverride", prefix, int64(0), func(c *client.Client) error { return second(c.EndOverride(ctx, "a")) },
			`[fcall ratelimit_override_end 1 rl:a]`},
		{"Acquire", nil, decision, func(c *client.Client) error { return second(lease(c).Acquire(ctx)) },
			`[fcall ratelimit_acquire 1 jobs concurrency 3 lease=30s job 7]`},
		{"Renew", nil, decision, func(c *client.Client) error { return second(lease(c).Renew(ctx)) },
			`[fcall ratelimit_renew 1 jobs concurrency 3 lease=30s job 7]`},
		{"Release", nil, int64(1), func(c *client.Client) error { return second(lease(c).Release(ctx)) },
			`[fcall ratelimit_release 1 jobs concurrency 3 lease=30s job 7]`},
		{"Usage", nil, usageReply(), func(c *client.Client) error { return second(c.Usage(ctx, "u")) },
			`[fcall_ro ratelimit_usage 1 u]`},
		{"Info", prefix, infoReply(), func(c *client.Client) error { return second(c.Info(ctx)) },
			`[fcall_ro ratelimit_info 0]`},
		{"prefix of every key", prefix, decision, func(c *client.Client) error { return second(c.Take(ctx, all)) },
			`[fcall ratelimit_take 4 rl:{u}:m rl:{u}:d rl:{u}:once rl:{u}:usage 100/m 5000/d COST 3 ONCE 60000 TRACK]`},
		{"prefix of Block", prefix, int64(1), func(c *client.Client) error { return c.Block(ctx, client.Block{For: time.Second}, "a") },
			`[fcall ratelimit_block 1 rl:a 1000]`},
		{"prefix of Unblock", prefix, int64(1), func(c *client.Client) error { return second(c.Unblock(ctx, "a")) },
			`[fcall ratelimit_unblock 1 rl:a]`},
		{"prefix of a lease", prefix, decision, func(c *client.Client) error { return second(lease(c).Acquire(ctx)) },
			`[fcall ratelimit_acquire 1 rl:jobs concurrency 3 lease=30s job 7]`},
		{"prefix of Usage", prefix, usageReply(), func(c *client.Client) error { return second(c.Usage(ctx, "u")) },
			`[fcall_ro ratelimit_usage 1 rl:u]`},
		{"prefix", []client.Option{client.WithPrefix("rl:")}, decision, func(c *client.Client) error { return second(c.Take(ctx, two)) },
			`[fcall ratelimit_take 2 rl:{u}:m rl:{u}:d 100/m 5000/d COST 1 250]`},
		{"prefix of Reset", []client.Option{client.WithPrefix("rl:")}, int64(0), func(c *client.Client) error { return second(c.Reset(ctx, "a")) },
			`[fcall ratelimit_reset 1 rl:a]`},
		{"empty prefix", []client.Option{client.WithPrefix("")}, decision, func(c *client.Client) error { return second(c.Allow(ctx, "a", "1/s")) },
			`[fcall ratelimit_take 1 a 1/s]`},
	} {
		f := &fake{reply: tt.reply}
		if err := tt.call(newClient(t, f, tt.opts...)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := fmt.Sprint(f.lines[0]); got != tt.want {
			t.Errorf("%s sends %s\nwant %s", tt.name, got, tt.want)
		}
	}
	if two.Keys[0] != "{u}:m" || len(two.Keys) != 2 {
		t.Errorf("the caller's request was written to: %v", two.Keys)
	}
}

func TestLimits(t *testing.T) {
	for got, want := range map[client.Limit]string{
		limits.PerSecond(10):                         "10/s",
		limits.PerMinute(100):                        "100/m",
		limits.PerHour(1000):                         "1000/h",
		limits.PerDay(5000):                          "5000/d",
		limits.WithBurst(limits.PerSecond(10), 20):   "10/s burst=20",
		limits.WithBurst("gcra 5/m", 9):              "gcra 5/m burst=9",
		limits.PerSecond(-1):                         "-1/s",
		limits.Concurrency(3, 30*time.Second):        "concurrency 3 lease=30s",
		limits.Concurrency(1, time.Hour):             "concurrency 1 lease=1h",
		limits.Concurrency(1, 1500*time.Millisecond): "concurrency 1 lease=1500ms",
		limits.Concurrency(1, time.Second+1):         "concurrency 1 lease=1001ms",
		limits.Concurrency(0, 0):                     "concurrency 0 lease=0ms",
		limits.Concurrency(1, -time.Second):          "concurrency 1 lease=-1000ms",
	} {
		if string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReplies(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply any
		want  client.Result
	}{
		{"allowed", integers(1, 5, 4, 0, 6000, 1), client.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 6 * time.Second, Index: 1, Source: "server"}},
		{"denied", integers(0, 5, 0, 5999, 30000, 2), client.Result{Limit: 5, RetryAfter: 5999 * time.Millisecond, ResetAfter: 30 * time.Second, Index: 2, Source: "server"}},
		{"never", integers(0, 5, 5, -1, 0, 1), client.Result{Limit: 5, Remaining: 5, RetryAfter: client.Never, Index: 1, Source: "server"}},
		{"a newer library", append(integers(1, 5, 4, 0, 6000, 1), "more", []any{int64(7)}),
			client.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 6 * time.Second, Index: 1, Source: "server"}},
		{"longer than a Duration", integers(0, 1<<53, 1<<53, math.MaxInt64, 1<<53, 1),
			client.Result{Limit: 1 << 53, Remaining: 1 << 53, RetryAfter: math.MaxInt64, ResetAfter: math.MaxInt64, Index: 1, Source: "server"}},
	} {
		c := newClient(t, &fake{reply: tt.reply})
		req := client.Request{Keys: []string{"a", "b"}, Limits: []client.Limit{"5/m", "5/m"}}
		got, err := c.Take(t.Context(), req)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: take gives %+v, %v\nwant %+v", tt.name, got, err, tt.want)
		}
		if got, err := c.Peek(t.Context(), req); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: peek gives %+v, %v\nwant %+v", tt.name, got, err, tt.want)
		}
	}
}

// TestAgainstLibrary makes calls to the real library, whose clock the test controls.
func TestAgainstLibrary(t *testing.T) {
	ctx := t.Context()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(time.UnixMilli(1_700_000_000_000)))
	rdb := connect(t, redis.Options{Addr: server.Addr()})
	c := newClient(t, rdb, client.WithPrefix("rl:"))
	three := limits.PerDay(3)
	request := func(limits ...client.Limit) client.Request {
		return client.Request{Keys: []string{"other", "k"}, Limits: limits}
	}
	const never = client.Never
	for _, step := range []struct {
		name string
		wait time.Duration // time that passes before the call
		call func() (client.Result, error)
		want client.Result
	}{
		{"peek", 0, func() (client.Result, error) { return c.Peek(ctx, client.For("k", three)) },
			client.Result{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 8 * time.Hour, Index: 1, Source: "server"}},
		{"allow", 0, func() (client.Result, error) { return c.Allow(ctx, "k", three) },
			client.Result{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 8 * time.Hour, Index: 1, Source: "server"}},
		{"cost above capacity", time.Hour, func() (client.Result, error) { return c.AllowN(ctx, "k", three, 4) },
			client.Result{Limit: 3, Remaining: 2, RetryAfter: never, ResetAfter: 7 * time.Hour, Index: 1, Source: "server"}},
		{"peek at more than is left", 0, func() (client.Result, error) { return c.Peek(ctx, client.For("k", three, 3)) },
			client.Result{Limit: 3, Remaining: 2, RetryAfter: 7 * time.Hour, ResetAfter: 7 * time.Hour, Index: 1, Source: "server"}},
		{"the last two", 0, func() (client.Result, error) { return c.AllowN(ctx, "k", three, 2) },
			client.Result{Allowed: true, Limit: 3, ResetAfter: 23 * time.Hour, Index: 1, Source: "server"}},
		{"cost 0", 0, func() (client.Result, error) { return c.AllowN(ctx, "k", three, 0) },
			client.Result{Allowed: true, Limit: 3, ResetAfter: 23 * time.Hour, Index: 1, Source: "server"}},
		{"two keys, the second empty", 0, func() (client.Result, error) { return c.Take(ctx, request("9/d", three)) },
			client.Result{Limit: 3, RetryAfter: 7 * time.Hour, ResetAfter: 23 * time.Hour, Index: 2, Source: "server"}},
		{"the same, later", 7 * time.Hour, func() (client.Result, error) { return c.Take(ctx, request("9/d", three)) },
			client.Result{Allowed: true, Limit: 3, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"}},
		{"peek at two keys", 8 * time.Hour, func() (client.Result, error) { return c.Peek(ctx, request("9/d", three)) },
			client.Result{Allowed: true, Limit: 3, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"}},
	} {
		server.Advance(step.wait)
		got, err := step.call()
		if err != nil || !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", step.name, got, err, step.want)
		}
	}
	// By now "other" is full again, and nothing is stored for a full key.
	if n := must[int64](t)(c.Reset(ctx, "k", "other", "nothing")); n != 1 {
		t.Errorf("reset of a held key and two empty ones answers %d, want 1", n)
	}
	if keys := must[[]string](t)(rdb.Keys(ctx, "*").Result()); len(keys) != 0 {
		t.Errorf("after reset: %q", keys)
	}
}

// TestResultExample checks the example in the documentation of Result.
func TestResultExample(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(time.UnixMilli(1_700_000_000_000)))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	var got []client.Result
	for range 6 {
		got = append(got, must[client.Result](t)(c.Allow(t.Context(), "k", "10/m burst=5")))
	}
	first := client.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 6 * time.Second, Index: 1, Source: "server"}
	sixth := client.Result{Limit: 5, RetryAfter: 6 * time.Second, ResetAfter: 30 * time.Second, Index: 1, Source: "server"}
	if !reflect.DeepEqual(got[0], first) || !reflect.DeepEqual(got[5], sixth) {
		t.Errorf("first %+v, sixth %+v", got[0], got[5])
	}
}

func TestSources(t *testing.T) {
	down := newClient(t, &fake{err: redis.ErrPoolTimeout})
	if res, err := down.Allow(t.Context(), "k", "5/m"); err == nil || res.Source != "" {
		t.Errorf("a call without a server: %+v, %v", res, err)
	}
}
