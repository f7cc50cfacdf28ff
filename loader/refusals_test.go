package loader_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

const rights = "+function|load +function|list +function|delete +function|stats +time +role +wait"

// TestRealServersThatRefuse checks the errors for real servers to which a build cannot be deployed.
func TestRealServersThatRefuse(t *testing.T) {
	ctx := t.Context()
	b := build(t)
	addr, _ := startRedis(t)
	rdb := at(t, addr)

	_, err := newLoader(t, at(t, "127.0.0.1:1")).Deploy(ctx, b, loader.Options{})
	want(t, "unreachable", err, nodes.ErrUnreachable)

	noHost := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no-such-host.invalid", IsNotFound: true}}
	}
	_, err = newLoader(t, connect(t, redis.Options{Addr: "no-such-host.invalid:6379", Dialer: noHost})).Status(ctx, b)
	want(t, "no host", err, nodes.ErrUnreachable)

	_, err = newLoader(t, connect(t, redis.Options{Addr: addr, TLSConfig: &tls.Config{ServerName: "x"}}), timeout(100*time.Millisecond)).Status(ctx, b)
	want(t, "TLS where there is none", err, nodes.ErrUnreachable)
	want(t, "TLS where there is none", err, dialing.ErrNoTLS)

	lacks := func(name string, err error, user, step string) {
		t.Helper()
		if e := want(t, name, err, nodes.ErrNoPermission); e.User != user || e.Step != step || e.Code != "NOPERM" || strings.Join(e.Rights, " ") != rights {
			t.Errorf("%s: %+v", name, e)
		}
	}
	as := func(user string) *loader.Loader {
		return newLoader(t, connect(t, redis.Options{Addr: addr, Username: user, Password: "x"}))
	}
	mustRun(t, rdb, "ACL", "SETUSER", "bob", "on", ">x", "+ping", "+get")
	_, err = as("bob").Deploy(ctx, b, loader.Options{})
	lacks("no rights", err, "bob", "FUNCTION STATS")
	mustRun(t, rdb, "ACL", "SETUSER", "bob", "+function|stats")
	_, err = as("bob").Status(ctx, b)
	lacks("no list", err, "bob", "FUNCTION LIST")
	mustRun(t, rdb, "ACL", "SETUSER", "bob", "+function|list")
	report, err := as("bob").Deploy(ctx, b, loader.Options{})
	lacks("no load", err, "bob", "FUNCTION LOAD")
	if n := report.Nodes[0]; n.State != loader.Absent || n.Changed || n.ServerVersion == "" {
		t.Errorf("%+v", n)
	}
	// The permissions that the error names are enough.
	mustRun(t, rdb, append([]any{"ACL", "SETUSER", "deployer", "on", ">x"}, words(rights)...)...)
	if report, err := as("deployer").Deploy(ctx, b, loader.Options{}); err != nil || !report.InStep() {
		t.Errorf("with the rights in the error: %v\n%s", err, states(report))
	}
	_, err = as("nobody").Status(ctx, b)
	if e := want(t, "login", err, nodes.ErrNoPermission); e.User != "nobody" || e.Code != "WRONGPASS" {
		t.Errorf("%+v", e)
	}
	// A user name without a password is never sent. It is not shown either, because it may be a
	// password.
	mustRun(t, rdb, "ACL", "SETUSER", "default", "-function")
	_, err = newLoader(t, connect(t, redis.Options{Addr: addr, Username: "secret"})).Status(ctx, b)
	mustRun(t, rdb, "ACL", "SETUSER", "default", "+function")
	lacks("a user without a password", err, "default", "FUNCTION STATS")

	host, port := hostPort(addr)
	replica, _ := startRedis(t, "--replicaof", host+" "+port)
	eventually(t, "the replica has the library", func() bool {
		libraries, err := at(t, replica).FunctionList(ctx, redis.FunctionListQuery{}).Result()
		return err == nil && len(libraries) == 1
	})
	_, err = newLoader(t, at(t, replica)).Deploy(ctx, b, loader.Options{})
	if e := want(t, "replica", err, nodes.ErrReadOnly); e.Primary != addr {
		t.Errorf("%+v", e)
	}
	report, err = newLoader(t, at(t, replica)).Status(ctx, b)
	if err != nil || report.Nodes[0].Role != "replica" || !report.InStep() {
		t.Errorf("status of a replica: %v\n%s", err, states(report))
	}
	mustRun(t, at(t, replica), append([]any{"ACL", "SETUSER", "deployer", "on", ">x", "-role"}, words(strings.Replace(rights, " +role", "", 1))...)...)
	_, err = newLoader(t, connect(t, redis.Options{Addr: replica, Username: "deployer", Password: "x"})).Deploy(ctx, b, loader.Options{})
	if e := want(t, "replica that does not name its primary", err, nodes.ErrReadOnly); e.Primary != "" {
		t.Errorf("%+v", e)
	}

	mustRun(t, rdb, "FUNCTION", "FLUSH")
	require(t, rdb.FunctionLoad(ctx, "#!lua name=mine\nredis.register_function('RATELIMIT_peek', function() return 1 end)").Err())
	report, err = newLoader(t, rdb).Deploy(ctx, b, loader.Options{})
	want(t, "name taken", err, loader.ErrNameTaken)
	if report.Nodes[0].State != loader.Absent {
		t.Errorf("%s", states(report))
	}
	mustRun(t, rdb, "FUNCTION", "FLUSH")

	require(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err = newLoader(t, rdb).Deploy(ctx, b, loader.Options{})
	want(t, "memory", err, nodes.ErrNotWritable)
	require(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())

	require(t, rdb.ConfigSet(ctx, "busy-reply-threshold", "1").Err())
	require(t, rdb.FunctionLoad(ctx, "#!lua name=slow\nredis.register_function('slow', function() while true do end end)").Err())
	ended := make(chan error, 1)
	go func() { ended <- connect(t, redis.Options{Addr: addr, ReadTimeout: -1}).FCall(ctx, "slow", nil).Err() }()
	eventually(t, "the server is busy", func() bool {
		err := rdb.Get(ctx, "k").Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	_, err = newLoader(t, rdb).Deploy(ctx, b, loader.Options{})
	want(t, "busy", err, nodes.ErrNotWritable)
	mustRun(t, rdb, "FUNCTION", "KILL")
	<-ended
	if report, err := newLoader(t, rdb).Deploy(ctx, b, loader.Options{}); err != nil || report.Changed() != 1 {
		t.Errorf("after all that: %v\n%s", err, states(report))
	}

	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = newLoader(t, rdb).Status(done, b)
	want(t, "cancelled", err, context.Canceled)
}

func words(s string) []any {
	var list []any
	for _, w := range strings.Fields(s) {
		list = append(list, w)
	}
	return list
}

// TestOtherServersThatRefuse simulates servers that the tests cannot start, and errors that occur
// rarely.
func TestOtherServersThatRefuse(t *testing.T) {
	b := build(t)
	for _, tt := range []struct {
		name   string
		handle func(string) string
		step   string
		class  error
		state  loader.State
	}{
		{"Redis 6.2", but(unknown, "HELLO", hello("redis", "6.2.14", "standalone", "master")), "FUNCTION STATS", nodes.ErrNoFunctions, loader.Unknown},
		{"Redis 5.0", but(unknown, "INFO", resp("# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\n")), "FUNCTION STATS", nodes.ErrNoFunctions, loader.Unknown},
		{"Sentinel", but(unknown, "HELLO", hello("redis", "7.0.15", "sentinel", "sentinel")), "FUNCTION STATS", nodes.ErrSentinel, loader.Unknown},
		{"Valkey without Lua", but(but(healthy, "FUNCTION STATS", resp(list{"running_script", nil, "engines", list{}})), "HELLO", hello("valkey", "9.1.2", "standalone", "master")), "FUNCTION STATS", nodes.ErrNoFunctions, loader.Unknown},
		{"loading", but(healthy, "FUNCTION LIST", resp(errors.New("LOADING Redis is loading the dataset in memory"))), "FUNCTION LIST", nodes.ErrNotWritable, loader.Unknown},
		{"no login", but(healthy, "HELLO", resp(errors.New("NOAUTH HELLO must be called with the client already authenticated"))), "HELLO", nodes.ErrNoPermission, loader.Unknown},
		{"hangs up", func(string) string { return "" }, "HELLO", nodes.ErrUnreachable, loader.Unreachable},
		{"hangs", func(string) string { return silence }, "HELLO", nodes.ErrUnreachable, loader.Unreachable},
		{"hangs later", but(healthy, "FUNCTION LIST", silence), "FUNCTION LIST", nodes.ErrUnreachable, loader.Unreachable},
		{"answers OK to all", func(string) string { return "+OK\r\n" }, "HELLO", nodes.ErrBadReply, loader.Unknown},
		{"HTTP", func(string) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" }, "HELLO", nodes.ErrBadReply, loader.Unknown},
		{"announces too much", but(healthy, "FUNCTION LIST", "*1000000000\r\n"), "FUNCTION LIST", nodes.ErrBadReply, loader.Unknown},
		{"odd greeting", but(healthy, "HELLO", resp(list{"server", 7})), "HELLO", nodes.ErrBadReply, loader.Unknown},
		{"odd statistics", but(healthy, "FUNCTION STATS", ":7\r\n"), "FUNCTION STATS", nodes.ErrBadReply, loader.Unknown},
		{"odd list", but(healthy, "FUNCTION LIST", resp(list{"x"})), "FUNCTION LIST", nodes.ErrBadReply, loader.Unknown},
		{"list without code", but(healthy, "FUNCTION LIST", resp(list{list{"library_name", "ratelimit"}})), "FUNCTION LIST", nodes.ErrBadReply, loader.Unknown},
		{"refuses the text", but(healthy, "FUNCTION LOAD", resp(errors.New("ERR Error compiling function: user_function:7: '=' expected near 'x'"))), "FUNCTION LOAD", loader.ErrRefused, loader.Absent},
		{"takes too long", but(healthy, "FUNCTION LOAD", resp(errors.New("ERR FUNCTION LOAD timeout"))), "FUNCTION LOAD", loader.ErrRefused, loader.Absent},
		{"cannot save", but(healthy, "FUNCTION LOAD", resp(errors.New("MISCONF Errors writing to the AOF file: No space left on device"))), "FUNCTION LOAD", nodes.ErrNotWritable, loader.Absent},
		{"odd time", but(healthy, "TIME", resp(list{"x", "y"})), "TIME", nodes.ErrBadReply, loader.Absent},
		{"says something else", but(healthy, "FUNCTION LOAD", resp(errors.New("ERR no"))), "FUNCTION LOAD", nil, loader.Absent},
		{"forgets at once", but(healthy, "FUNCTION LOAD", resp("ratelimit")), "FUNCTION LIST", loader.ErrOverwritten, loader.Absent},
		{"a pattern's other matches", but(healthy, "FUNCTION LIST", library("Ratelimit", "x")), "FUNCTION LOAD", nil, loader.Absent},
		{"a cluster without shards", but(healthy, "HELLO", hello("redis", "7.0.15", "cluster", "master")), "CLUSTER SHARDS", nil, loader.Unknown},
	} {
		addr := startFake(t, tt.handle)
		var opts []option
		if strings.HasPrefix(tt.name, "hangs") {
			opts = append(opts, timeout(100*time.Millisecond))
		}
		report, err := newLoader(t, at(t, addr), opts...).Deploy(t.Context(), b, loader.Options{})
		if e := want(t, tt.name, err, tt.class); e.Step != tt.step || e.Addr != addr {
			t.Errorf("%s: %s at %s, want %s at %s", tt.name, e.Step, e.Addr, tt.step, addr)
		}
		if len(report.Nodes) != 1 || report.Nodes[0].State != tt.state || report.Nodes[0].Changed || report.Nodes[0].Addr != addr {
			t.Errorf("%s: %s", tt.name, states(report))
		}
	}
}

// If the reply to the load is lost, the outcome depends on what the server runs afterwards.
func TestLostReplyOfLoad(t *testing.T) {
	b := build(t)
	var libraries sync.Map // by name
	addr := fakeredis.Run(t, func(words []string) string {
		command := strings.ToUpper(strings.Join(words, " "))
		code := words[len(words)-1]
		name, _, _ := strings.Cut(strings.TrimPrefix(code, "#!lua name="), "\n")
		switch {
		case strings.HasPrefix(command, "FUNCTION LOAD") && name == "ratelimit":
			libraries.Store(name, code)
			return fakeredis.HangUp
		case strings.HasPrefix(command, "FUNCTION LOAD #!LUA"):
			libraries.Store(name, code)
			return resp("OK")
		case strings.HasPrefix(command, "FUNCTION LIST LIBRARYNAME"):
			var found list
			libraries.Range(func(name, code any) bool {
				found = append(found, list{"library_name", name, "engine", "LUA", "functions", list{}, "library_code", code})
				return true
			})
			return resp(found)
		}
		return healthy(command)
	})
	report, err := newLoader(t, at(t, addr)).Deploy(t.Context(), b, loader.Options{})
	if err != nil || !report.InStep() || report.Changed() != 1 {
		t.Errorf("%v\n%s", err, states(report))
	}
}

// Every address of a cluster client is tried, and the error names the addresses that fail.
func TestNoSeedAnswers(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}})
	t.Cleanup(func() { _ = rdb.Close() })
	report, err := newLoader(t, rdb).Status(t.Context(), build(t))
	want(t, "no seed", err, nodes.ErrUnreachable)
	if report.Topology != nodes.Cluster || len(report.Nodes) != 2 {
		t.Errorf("%s\n%s", report.Topology, states(report))
	}
	own := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return nil, errors.New("no answer from the registry")
	}})
	t.Cleanup(func() { _ = own.Close() })
	_, err = newLoader(t, own).Status(t.Context(), build(t))
	want(t, "the caller's list", err, nodes.ErrUnreachable)
}
