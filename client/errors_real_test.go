package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestErrorsOfRealServers checks errors that real servers return, and the library's own errors.
func TestErrorsOfRealServers(t *testing.T) {
	ctx := t.Context()
	server := redistest.Run(t)
	rdb := connect(t, redis.Options{Addr: server.Addr})
	c := newClient(t, rdb)
	check := func(name string, c *client.Client, key string, limit client.Limit, part string, class ...error) {
		t.Helper()
		_, err := c.Allow(ctx, key, limit)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v\nwant %s", name, err, part)
		}
		wantClasses(t, name, err, class...)
	}

	check("not deployed", c, "k", "5/m", "(ERR Function not found); deploy the library with: ratelimit deploy, or with package loader", client.ErrNotDeployed)
	deploy(t, rdb)
	check("limit", c, "k", "100/x", `take "k": BADLIMIT "100/x"`, typed("bad_limit"))
	check("empty limit", c, "k", "", `BADLIMIT ""`, typed("bad_limit"))
	check("policy", c, "k", "@none", `NOPOLICY "@none"`, typed("no_policy"))
	require(t, rdb.LPush(ctx, "list", "x").Err())
	check("state", c, "list", "5/m", `BADSTATE key "list"`, typed("bad_state"))
	_, err := c.AllowN(ctx, "k", "5/m", -1)
	wantClasses(t, "cost", err, typed("bad_cost"))
	_, err = c.Take(ctx, client.Request{Keys: []string{"a", "b"}, Limits: []client.Limit{"5/m"}})
	wantClasses(t, "keys", err, typed("bad_keys"))
	_, err = c.Reset(ctx)
	wantClasses(t, "reset of nothing", err, typed("bad_keys"))
	_, err = c.Take(ctx, client.Request{Keys: []string{"a"}, Limits: []client.Limit{"5/m"}, Costs: []int64{1, 2}})
	wantClasses(t, "args", err, typed("bad_args"))

	for user, rules := range map[string][]any{
		"nofcall": {"on", "nopass", "~*", "-@all", "+hello", "+ping"},
		"nokeys":  {"on", "nopass", "+@all"},
	} {
		require(t, rdb.Do(ctx, append([]any{"acl", "setuser", user}, rules...)...).Err())
		as := newClient(t, connect(t, redis.Options{Addr: server.Addr, Username: user, Password: "x"}))
		check(user, as, "k", "5/m", "(NOPERM ", typed("no_permission"))
	}
	// If a command within the function is denied, earlier commands of the function remain in
	// effect.
	require(t, rdb.Do(ctx, "acl", "setuser", "nohset", "on", "nopass", "~*", "+@all", "-hset").Err())
	as := newClient(t, connect(t, redis.Options{Addr: server.Addr, Username: "nohset", Password: "x"}))
	_, err = as.Take(ctx, client.Request{Keys: []string{"within"}, Limits: []client.Limit{"5/d"}, UsageKey: "usage"})
	wantClasses(t, "within the function", err, typed("no_permission"), client.ErrOutcomeUnknown)
	if left := must[client.Result](t)(c.Peek(ctx, client.For("within", "5/d"))).Remaining; left != 3 {
		t.Errorf("%d are left, want 3: the refused call had charged one", left)
	}
	// A long value is written with several commands. If the user lacks permission for one of them,
	// the value does not change.
	const long = "sliding_log 1000/d"
	for range 300 {
		must[client.Result](t)(c.Allow(ctx, "long", long))
	}
	value := must[string](t)(rdb.Get(ctx, "long").Result())
	for _, command := range []string{"append", "set", "getrange", "strlen"} {
		require(t, rdb.Do(ctx, "acl", "setuser", "without", "reset", "on", "nopass", "~*", "+@all", "-"+command).Err())
		as := newClient(t, connect(t, redis.Options{Addr: server.Addr, Username: "without", Password: "x"}))
		for verb, err := range map[string]error{
			"refund":   second(as.Refund(ctx, client.Request{Keys: []string{"long"}, Limits: []client.Limit{long}})),
			"block":    as.Block(ctx, client.Block{For: time.Minute}, "long"),
			"override": as.Override(ctx, "5/m", time.Minute, "long"),
		} {
			wantClasses(t, verb+" without "+command, err, typed("no_permission"), client.ErrOutcomeUnknown)
		}
		if left := must[string](t)(rdb.Get(ctx, "long").Result()); left != value {
			t.Errorf("without %s, %d bytes became %d", command, len(value), len(left))
			break
		}
	}
	check("login", newClient(t, connect(t, redis.Options{Addr: server.Addr, Username: "nobody", Password: "x"})), "k", "5/m",
		"the server refuses the login", typed("no_permission"))

	replica := redistest.Run(t, "--replicaof", strings.Replace(server.Addr, ":", " ", 1))
	onReplica := connect(t, redis.Options{Addr: replica.Addr})
	eventually(t, "the replica has the library", func() bool {
		return onReplica.FCallRO(ctx, "ratelimit_info", nil).Err() == nil
	})
	check("replica", newClient(t, onReplica), "k", "5/m", "(READONLY", client.ErrUnavailable)
	if _, err := newClient(t, onReplica).Peek(ctx, client.For("k", "5/m")); err != nil {
		t.Errorf("peek on a replica: %v", err)
	}

	fcall := func(verb string, args ...any) error {
		return rdb.FCall(ctx, "ratelimit_"+verb, []string{"jobs"}, args...).Err()
	}
	require(t, fcall("acquire", "concurrency 2 lease=30s", "x"))
	require(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	check("memory", c, "k", "5/m", "raise its maxmemory", client.ErrUnavailable)
	for verb, args := range map[string][]any{"refund": {"5/m"}, "acquire": {"concurrency 2 lease=30s", "y"}} {
		if err := fcall(verb, args...); !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("%s out of memory: %v", verb, err)
		}
	}
	for _, call := range [][]any{
		{"renew", "concurrency 2 lease=30s", "x"}, {"block", 60000}, {"unblock"}, {"override", "concurrency 1 lease=30s", 60000}, {"override_end"},
		{"release", "concurrency 2 lease=30s", "x"}, {"reset"},
	} {
		if err := fcall(call[0].(string), call[1:]...); err != nil {
			t.Errorf("%s out of memory: %v", call[0], err)
		}
	}

	gone := connect(t, redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	check("gone", newClient(t, gone), "k", "5/m", "no connection, nothing was counted (dial tcp 127.0.0.1:1: connect: connection refused)", client.ErrUnavailable)
}

func TestErrorsOfCluster(t *testing.T) {
	c := startCluster(t)
	rdb, _ := proxied(t, c)
	_, err := newClient(t, rdb).Take(t.Context(), client.Request{Keys: []string{lowKey, highKey}, Limits: []client.Limit{"5/m", "5/m"}})
	wantClasses(t, "slots", err, typed("cross_slot"))
	one := newClient(t, connect(t, redis.Options{Addr: c.nodes[1].Addr}))
	_, err = one.Allow(t.Context(), lowKey, "5/m")
	wantClasses(t, "a single node", err, client.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "(MOVED 3300 127.0.0.1:") {
		t.Errorf("%v", err)
	}
	err = one.Check(t.Context(), "5/m")
	wantClasses(t, "a check of a single node", err, client.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "write redis+cluster://") {
		t.Errorf("%v", err)
	}
}

func TestContext(t *testing.T) {
	server := redistest.Run(t)
	direct := connect(t, redis.Options{Addr: server.Addr})
	deploy(t, direct)
	p := startProxy(t, server.Addr)
	c := newClient(t, connect(t, redis.Options{Addr: p.addr(), ContextTimeoutEnabled: true}))
	must[client.Result](t)(c.Peek(t.Context(), client.For("k", "5/m")))

	done, cancel := context.WithCancel(t.Context())
	cancel()
	p.lose(0, false)
	_, err := c.Allow(done, "k", "5/m")
	wantClasses(t, "before", err, client.ErrUnavailable)
	if !errors.Is(err, context.Canceled) || p.seen() != 0 {
		t.Errorf("%d calls, %v; want none and context.Canceled", p.seen(), err)
	}

	// On a busy machine the deadline may pass before the call is sent; the test then tries again
	// with a later deadline.
	p.lose(1000, true)
	for d := 50 * time.Millisecond; !errors.Is(err, client.ErrOutcomeUnknown); d *= 2 {
		if d > time.Minute {
			t.Fatalf("within %v: %v", d/2, err)
		}
		short, cancel := context.WithTimeout(t.Context(), d)
		_, err = c.Allow(short, "k", "5/m")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want context.DeadlineExceeded", err)
		}
	}
	wantClasses(t, "meanwhile", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
}
