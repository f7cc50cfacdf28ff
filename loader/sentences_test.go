package loader_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

const rights = "+function|load +function|list +function|delete +function|stats +time +role +wait"

// granting returns the command line that grants these rights.
func granting(addr, user string) string {
	host, port := hostPort(addr)
	return "redis-cli -h " + host + " -p " + port + " ACL SETUSER " + user + " '+function|load' '+function|list' '+function|delete' '+function|stats' +time +role +wait"
}

// Errors from real servers that cannot be deployed to.
func TestRealServersThatRefuse(t *testing.T) {
	ctx := t.Context()
	b := build(t)
	addr, _ := startRedis(t)
	rdb := at(t, addr)

	_, err := newLoader(t, at(t, "127.0.0.1:1")).Deploy(ctx, b)
	want(t, "unreachable", err, "cannot reach 127.0.0.1:1: connection refused; check the address, and that the server runs", loader.ErrUnreachable)

	noHost := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no-such-host.invalid", IsNotFound: true}}
	}
	_, err = newLoader(t, connect(t, redis.Options{Addr: "no-such-host.invalid:6379", Dialer: noHost})).Status(ctx, b)
	want(t, "no host", err, `cannot reach no-such-host.invalid:6379: there is no host named "no-such-host.invalid"; check the address, and that the server runs`, loader.ErrUnreachable)

	_, err = newLoader(t, connect(t, redis.Options{Addr: addr, TLSConfig: &tls.Config{ServerName: "x"}}), loader.WithTimeout(100*time.Millisecond)).Status(ctx, b)
	want(t, "TLS where there is none", err, "cannot reach "+addr+": no answer within 100ms; does it speak TLS? redis in place of rediss in the URL goes without", loader.ErrUnreachable)

	as := func(user string) *loader.Loader {
		return newLoader(t, connect(t, redis.Options{Addr: addr, Username: user, Password: "x"}))
	}
	mustRun(t, rdb, "ACL", "SETUSER", "bob", "on", ">x", "+ping", "+get")
	_, err = as("bob").Deploy(ctx, b)
	want(t, "no rights", err, addr+` does not let the user "bob" call FUNCTION STATS; give a deployer its rights with: `+granting(addr, "bob"), loader.ErrNoPermission)
	mustRun(t, rdb, "ACL", "SETUSER", "bob", "+function|stats")
	_, err = as("bob").Status(ctx, b)
	want(t, "no list", err, addr+` does not let the user "bob" call FUNCTION LIST; give a deployer its rights with: `+granting(addr, "bob"), loader.ErrNoPermission)
	mustRun(t, rdb, "ACL", "SETUSER", "bob", "+function|list")
	report, err := as("bob").Deploy(ctx, b)
	want(t, "no load", err, addr+` does not let the user "bob" call FUNCTION LOAD; give a deployer its rights with: `+granting(addr, "bob"), loader.ErrNoPermission)
	if n := report.Nodes[0]; n.State != loader.Absent || n.Changed || n.ServerVersion == "" {
		t.Errorf("%+v", n)
	}
	// The rights that the sentence names are sufficient.
	mustRun(t, rdb, append([]any{"ACL", "SETUSER", "deployer", "on", ">x"}, words(rights)...)...)
	if report, err := as("deployer").Deploy(ctx, b); err != nil || !report.InStep() {
		t.Errorf("with the rights that the sentence names: %v\n%s", err, states(report))
	}
	_, err = as("nobody").Status(ctx, b)
	want(t, "login", err, addr+` refuses the login of the user "nobody"; check the user name and the password`, loader.ErrNoPermission)
	// A user without a password is never sent, and its name may be a password, so it is not shown.
	mustRun(t, rdb, "ACL", "SETUSER", "default", "-function")
	_, err = newLoader(t, connect(t, redis.Options{Addr: addr, Username: "secret"})).Status(ctx, b)
	mustRun(t, rdb, "ACL", "SETUSER", "default", "+function")
	want(t, "a user without a password", err, addr+` does not let the user "default" call FUNCTION STATS; give a deployer its rights with: `+granting(addr, "default"), loader.ErrNoPermission)

	host, port := hostPort(addr)
	replica, _ := startRedis(t, "--replicaof", host+" "+port)
	eventually(t, "the replica has the library", func() bool {
		libraries, err := at(t, replica).FunctionList(ctx, redis.FunctionListQuery{}).Result()
		return err == nil && len(libraries) == 2
	})
	_, err = newLoader(t, at(t, replica)).Deploy(ctx, b)
	want(t, "replica", err, replica+" is a read-only replica; connect to its primary "+addr, loader.ErrReadOnly)
	report, err = newLoader(t, at(t, replica)).Status(ctx, b)
	if err != nil || report.Nodes[0].Role != loader.Replica || !report.InStep() {
		t.Errorf("status of a replica: %v\n%s", err, states(report))
	}
	mustRun(t, at(t, replica), append([]any{"ACL", "SETUSER", "deployer", "on", ">x", "-role"}, words(strings.Replace(rights, " +role", "", 1))...)...)
	_, err = newLoader(t, connect(t, redis.Options{Addr: replica, Username: "deployer", Password: "x"})).Deploy(ctx, b)
	want(t, "replica that does not name its primary", err, replica+" is a read-only replica; connect to its primary", loader.ErrReadOnly)

	mustRun(t, rdb, "FUNCTION", "FLUSH")
	if err := rdb.FunctionLoad(ctx, "#!lua name=mine\nredis.register_function('RATELIMIT_peek', function() return 1 end)").Err(); err != nil {
		t.Fatal(err)
	}
	report, err = newLoader(t, rdb).Deploy(ctx, b)
	want(t, "name taken", err, addr+` has a library "mine" that registers ratelimit_peek; delete it with FUNCTION DELETE mine or rename its function, then try again`, loader.ErrNameTaken)
	if report.Nodes[0].State != loader.Absent {
		t.Errorf("%s", states(report))
	}
	mustRun(t, rdb, "FUNCTION", "FLUSH")

	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err = newLoader(t, rdb).Deploy(ctx, b)
	want(t, "memory", err, addr+" is out of memory and accepts no library; raise its maxmemory or free some, then try again", loader.ErrOutOfMemory)
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}

	if err := rdb.ConfigSet(ctx, "busy-reply-threshold", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.FunctionLoad(ctx, "#!lua name=slow\nredis.register_function('slow', function() while true do end end)").Err(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- connect(t, redis.Options{Addr: addr, ReadTimeout: -1}).FCall(ctx, "slow", nil).Err() }()
	eventually(t, "the server is busy", func() bool {
		err := rdb.Get(ctx, "k").Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	_, err = newLoader(t, rdb).Deploy(ctx, b)
	want(t, "busy", err, addr+" is busy with a script; wait for it, or end it with FUNCTION KILL or SCRIPT KILL, then try again", loader.ErrBusy)
	mustRun(t, rdb, "FUNCTION", "KILL")
	<-ended
	if report, err := newLoader(t, rdb).Deploy(ctx, b); err != nil || report.Changed() != 1 {
		t.Errorf("after all that: %v\n%s", err, states(report))
	}

	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = newLoader(t, rdb).Status(done, b)
	want(t, "cancelled", err, "interrupted before "+addr+" answered", context.Canceled)
}

func words(s string) []any {
	var list []any
	for _, w := range strings.Fields(s) {
		list = append(list, w)
	}
	return list
}

// Errors from servers that are not available here, or that occur rarely.
func TestOtherServersThatRefuse(t *testing.T) {
	b := build(t)
	unknown := func(command string) string {
		name, _, _ := strings.Cut(command, " ")
		return resp(errors.New("ERR unknown command `" + name + "`, with args beginning with: "))
	}
	redis7 := hello("redis", "7.0.15", "standalone", "master")
	healthy := func(command string) string {
		switch {
		case strings.HasPrefix(command, "HELLO"):
			return redis7
		case command == "FUNCTION STATS":
			return luaEngine
		case strings.HasPrefix(command, "FUNCTION LIST"):
			return resp(list{})
		case command == "TIME":
			return resp(list{"1700000000", "0"})
		case strings.HasPrefix(command, "FUNCTION DELETE"):
			return "+OK\r\n"
		}
		return unknown(command)
	}
	but := func(prefix, answer string) func(string) string {
		return func(command string) string {
			if strings.HasPrefix(command, prefix) {
				return answer
			}
			return healthy(command)
		}
	}
	for _, tt := range []struct {
		name   string
		handle func(string) string
		want   string // with ADDR for the address
		class  error
		state  loader.State
	}{
		{"Redis 6.2", func(command string) string {
			if strings.HasPrefix(command, "HELLO") {
				return hello("redis", "6.2.14", "standalone", "master")
			}
			return unknown(command)
		}, "ADDR runs redis 6.2.14, which has no functions; use Redis 7.0 or later, or Valkey", loader.ErrNoFunctions, loader.Unknown},
		{"Redis 5.0", func(command string) string {
			if command == "INFO" {
				return resp("# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\n")
			}
			return unknown(command)
		}, "ADDR runs redis 5.0.14, which has no functions; use Redis 7.0 or later, or Valkey", loader.ErrNoFunctions, loader.Unknown},
		{"Sentinel", func(command string) string {
			if strings.HasPrefix(command, "HELLO") {
				return hello("redis", "7.0.15", "sentinel", "sentinel")
			}
			return unknown(command)
		}, "ADDR is a Sentinel, which holds no data; name the primary that it watches with --sentinel (MasterName), or connect to that primary", loader.ErrNoFunctions, loader.Unknown},
		{"Valkey without Lua", func(command string) string {
			switch {
			case strings.HasPrefix(command, "HELLO"):
				return hello("valkey", "9.1.2", "standalone", "master")
			case command == "FUNCTION STATS":
				return resp(list{"running_script", nil, "engines", list{}})
			}
			return healthy(command)
		}, "ADDR runs valkey 9.1.2 without its Lua engine; have it load its Lua module, or use a server that has Lua built in", loader.ErrNoLua, loader.Unknown},
		{"loading", but("FUNCTION LIST", resp(errors.New("LOADING Redis is loading the dataset in memory"))),
			"ADDR is still loading its data; try again when it is done", loader.ErrBusy, loader.Unknown},
		{"no login", but("HELLO", resp(errors.New("NOAUTH HELLO must be called with the client already authenticated"))),
			`ADDR wants a password; give redis://:PASSWORD@host:port`, loader.ErrNoPermission, loader.Unknown},
		{"hangs up", func(string) string { return "" },
			"cannot reach ADDR: it closes the connection; check the address, and whether it wants TLS (rediss://)", loader.ErrUnreachable, loader.Unreachable},
		{"hangs", func(string) string { return silence },
			"cannot reach ADDR: no answer within 100ms; check the address, and that the server runs", loader.ErrUnreachable, loader.Unreachable},
		{"hangs later", but("FUNCTION LIST", silence),
			"cannot reach ADDR: no answer within 100ms; check the address, and that the server runs", loader.ErrUnreachable, loader.Unreachable},
		{"answers OK to all", func(string) string { return "+OK\r\n" },
			`cannot reach ADDR: it does not speak the Redis protocol (redis: can't parse map reply: "+OK"); check the address`, loader.ErrBadReply, loader.Unknown},
		{"HTTP", func(string) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" },
			`cannot reach ADDR: it does not speak the Redis protocol (redis: can't parse map reply: "HTTP/1.1 400 Bad Request"); check the address`, loader.ErrBadReply, loader.Unknown},
		{"odd greeting", but("HELLO", resp(list{"server", 7})),
			`ADDR answers HELLO with "[server 7]"; check that it is a Redis or Valkey server`, loader.ErrBadReply, loader.Unknown},
		{"odd statistics", but("FUNCTION STATS", ":7\r\n"),
			`ADDR answers FUNCTION STATS with "7"; check that it is a Redis or Valkey server`, loader.ErrBadReply, loader.Unknown},
		{"odd list", but("FUNCTION LIST", resp(list{"x"})),
			`ADDR answers FUNCTION LIST with "[x]"; check that it is a Redis or Valkey server`, loader.ErrBadReply, loader.Unknown},
		{"list without code", but("FUNCTION LIST", resp(list{list{"library_name", "ratelimit"}})),
			`ADDR answers FUNCTION LIST with "[[library_name ratelimit]]"; check that it is a Redis or Valkey server`, loader.ErrBadReply, loader.Unknown},
		{"refuses the text", but("FUNCTION LOAD", resp(errors.New("ERR Error compiling function: user_function:7: '=' expected near 'x'"))),
			"ADDR refuses the library (ERR Error compiling function: user_function:7: '=' expected near 'x'); check the build with: ratelimit verify", loader.ErrRefused, loader.Absent},
		{"takes too long", but("FUNCTION LOAD", resp(errors.New("ERR FUNCTION LOAD timeout"))),
			"ADDR gives up on the library (ERR FUNCTION LOAD timeout): a server lets a library take half a second to load; deploy fewer policies, or when the server has less to do", loader.ErrRefused, loader.Absent},
		{"cannot save", but("FUNCTION LOAD", resp(errors.New("MISCONF Errors writing to the AOF file: No space left on device"))),
			"ADDR takes no writes for now (MISCONF Errors writing to the AOF file: No space left on device); put that right, then try again", loader.ErrNotWritable, loader.Absent},
		{"odd time", but("TIME", resp(list{"x", "y"})),
			`ADDR answers TIME with "[x y]"; check that it is a Redis or Valkey server`, loader.ErrBadReply, loader.Absent},
		{"says something else", but("FUNCTION LOAD", resp(errors.New("ERR no"))),
			"ADDR refuses FUNCTION LOAD: ERR no", nil, loader.Absent},
		{"forgets at once", but("FUNCTION LOAD", resp("ratelimit")),
			"ADDR took the library and now holds another; see who else deploys, then try again", loader.ErrOverwritten, loader.Absent},
		{"a pattern's other matches", but("FUNCTION LIST", library("Ratelimit", "x")),
			"ADDR refuses FUNCTION LOAD: ERR unknown command `FUNCTION`, with args beginning with: ", nil, loader.Absent},
		{"a cluster without shards", but("HELLO", hello("redis", "7.0.15", "cluster", "master")),
			"ADDR refuses CLUSTER SHARDS: ERR unknown command `CLUSTER`, with args beginning with: ", nil, loader.Unknown},
	} {
		addr := startFake(t, tt.handle)
		var opts []loader.Option
		if strings.Contains(tt.want, "100ms") {
			opts = append(opts, loader.WithTimeout(100*time.Millisecond))
		}
		report, err := newLoader(t, at(t, addr), opts...).Deploy(t.Context(), b)
		want(t, tt.name, err, strings.ReplaceAll(tt.want, "ADDR", addr), tt.class)
		if len(report.Nodes) != 1 || report.Nodes[0].State != tt.state || report.Nodes[0].Changed || report.Nodes[0].Addr != addr {
			t.Errorf("%s: %s", tt.name, states(report))
		}
	}
}

// If the reply to the load is lost, what counts is what the server runs afterwards.
func TestLostReplyOfLoad(t *testing.T) {
	b := build(t)
	loaded := false
	addr := startFake(t, func(command string) string {
		switch {
		case strings.HasPrefix(command, "HELLO"):
			return hello("redis", "7.0.15", "standalone", "master")
		case command == "FUNCTION STATS":
			return luaEngine
		case command == "TIME":
			return resp(list{"1700000000", "0"})
		case strings.HasPrefix(command, "FUNCTION LOAD REPLACE #!LUA NAME=RATELIMIT\n"):
			loaded = true
			return "" // the connection is closed
		case strings.HasPrefix(command, "FUNCTION"):
			if !strings.HasPrefix(command, "FUNCTION LIST") {
				return resp("OK")
			}
			if loaded {
				return library("ratelimit", b.Text())
			}
			return resp(list{})
		}
		return resp(errors.New("ERR unknown command"))
	})
	report, err := newLoader(t, at(t, addr)).Deploy(t.Context(), b)
	if err != nil || !report.InStep() || report.Changed() != 1 {
		t.Errorf("%v\n%s", err, states(report))
	}
}

// Every address of a cluster client is tried, and each that fails is named.
func TestNoSeedAnswers(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}})
	t.Cleanup(func() { _ = rdb.Close() })
	const look = ": connection refused; check the address, and that the server runs"
	report, err := newLoader(t, rdb).Status(t.Context(), build(t))
	want(t, "no seed", err, "2 of 2 nodes cannot be looked at: cannot reach 127.0.0.1:1"+look+"; cannot reach 127.0.0.1:2"+look, loader.ErrUnreachable)
	if report.Topology != loader.Cluster || len(report.Nodes) != 2 {
		t.Errorf("%s\n%s", report.Topology, states(report))
	}
	own := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return nil, errors.New("no answer from the registry")
	}})
	t.Cleanup(func() { _ = own.Close() })
	_, err = newLoader(t, own).Status(t.Context(), build(t))
	want(t, "the caller's list", err, "the cluster cannot be found by the client's own ClusterSlots (no answer from the registry); check that function", loader.ErrUnreachable)
}
