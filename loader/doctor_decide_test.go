package loader_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// Doctor finds problems that prevent decisions on a real server, and says what to do.
func TestDoctorOfServersThatCannotDecide(t *testing.T) {
	addr, _ := startRedis(t, "--appendonly", "yes")
	rdb := at(t, addr)
	ctx := t.Context()
	text := build(t).Text()
	set := func(name, value string) {
		t.Helper()
		require(t, rdb.ConfigSet(ctx, name, value).Err())
	}
	load := func(old, changed string) {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in the library", old)
		}
		mustRun(t, rdb, "FUNCTION", "LOAD", "REPLACE", strings.Replace(text, old, changed, 1))
	}
	for _, tt := range []struct {
		name, check string
		class       error
		make        func()
	}{
		{"no library", "library", nodes.ErrNoLibrary, func() {}},
		{"another library of the name", "library", nodes.ErrForeign, func() { mustRun(t, rdb, "FUNCTION", "LOAD", "REPLACE", otherText) }},
		{"a library without its functions", "library", nil, func() { load("'ratelimit_info'", "'ratelimit_about'") }},
		{"a library that returns something else", "library", nodes.ErrBadReply, func() { load("'contract', CONTRACT,", "'contract', 'one',") }},
		{"no memory", "writes", nodes.ErrNotWritable, func() { load("a", "a"); set("maxmemory", "1") }},
		{"too few replicas", "writes", nodes.ErrNotWritable, func() { set("maxmemory", "0"); set("min-replicas-to-write", "1") }},
	} {
		tt.make()
		d := must[doctor.Diagnosis](t)(doctor.Examine(ctx, rdb, time.Minute, nil))
		if got, want := findings(d), found(tt.check, addr, tt.class); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, want)
		}
	}
	set("min-replicas-to-write", "0")

	// The permissions that the documentation lists are enough for all checks.
	mustRun(t, rdb, append([]any{"ACL", "SETUSER", "doctor", "on", ">x"}, words(rights+" +info +config|get +fcall_ro|ratelimit_info")...)...)
	if got := findings(must[doctor.Diagnosis](t)(doctor.Examine(ctx, connect(t, redis.Options{Addr: addr, Username: "doctor", Password: "x"}), time.Minute, nil))); got != "" {
		t.Errorf("a healthy server:\n%s", got)
	}

	host, port := hostPort(addr)
	replica, _ := startRedis(t, "--replicaof", host+" "+port, "--appendonly", "yes")
	eventually(t, "the replica has the library", func() bool {
		list, err := at(t, replica).FunctionList(ctx, redis.FunctionListQuery{}).Result()
		return err == nil && len(list) == 1
	})
	eventually(t, "the replica is in step", func() bool {
		return findings(must[doctor.Diagnosis](t)(doctor.Examine(ctx, rdb, time.Minute, nil))) == ""
	})
	d := must[doctor.Diagnosis](t)(doctor.Examine(ctx, at(t, replica), time.Minute, nil))
	if got, want := findings(d), found("writes", replica, nodes.ErrReadOnly); got != want {
		t.Errorf("a replica that was named:\n%s\nwant\n%s", got, want)
	}
	mustRun(t, at(t, replica), append([]any{"ACL", "SETUSER", "default", "-@all"}, words(rights+" +info +config|get")...)...)
	if got, want := findings(must[doctor.Diagnosis](t)(doctor.Examine(ctx, rdb, time.Minute, nil))), "unchecked: +fcall_ro|ratelimit_info\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestDoctorOfPausedWrites checks that doctor reports a server that pauses writes, as in a failover.
func TestDoctorOfPausedWrites(t *testing.T) {
	addr, _ := startRedis(t, "--appendonly", "yes")
	rdb := at(t, addr)
	mustRun(t, rdb, "FUNCTION", "LOAD", build(t).Text())
	mustRun(t, rdb, "CLIENT", "PAUSE", "60000", "WRITE")
	d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), rdb, 500*time.Millisecond, nil))
	if got, want := findings(d), found("writes", addr, nodes.ErrNotWritable); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestDoctorOfTakenNames checks that doctor names a library because of which no deployment succeeds.
func TestDoctorOfTakenNames(t *testing.T) {
	addr, _ := startRedis(t, "--appendonly", "yes")
	rdb := at(t, addr)
	mustRun(t, rdb, "FUNCTION", "LOAD", "#!lua name=mine\nredis.register_function('RATELIMIT_Take', function() return 1 end)")
	d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), rdb, time.Minute, nil))
	if got, want := findings(d), found("library", addr, nil)+found("library", addr, nodes.ErrNoLibrary); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if f := d.Findings[0]; f.Found != `has a library "mine" that registers ratelimit_take` || !strings.Contains(f.Do, "FUNCTION DELETE mine") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorOfOtherServers uses fake servers instead of servers that the tests cannot start.
func TestDoctorOfOtherServers(t *testing.T) {
	deployed := but(but(but(healthy, "FUNCTION LIST", library("ratelimit", build(t).Text())), "FCALL_RO RATELIMIT_INFO 0", resp(list{"contract", 1})), "INFO", resp("aof_enabled:1\r\n"))
	replicaAddr := ""
	running := func(mode string) func(string) string {
		return func(command string) string {
			switch {
			case strings.HasPrefix(command, "HELLO"):
				return hello("redis", "7.0.15", mode, "master")
			case command == "ROLE":
				host, port, _ := net.SplitHostPort(replicaAddr)
				if replicaAddr == "" {
					return resp(list{"master", 0, list{}})
				}
				return resp(list{"master", 0, list{list{host, port, "0"}}})
			}
			return deployed(command)
		}
	}
	unknown := resp(errors.New("ERR unknown command 'FUNCTION'"))
	alone := running("standalone")
	number := func(port string) int { return must[int](t)(strconv.Atoi(port)) }
	// shards returns the reply from a cluster in which the first primary has all slots.
	shards := func(addrs ...string) string {
		var all list
		slots := list{0, 16383}
		for _, addr := range addrs {
			host, port := hostPort(addr)
			all = append(all, list{"slots", slots, "nodes", list{list{"endpoint", host, "port", number(port), "role", "master", "health", "online"}}})
			slots = list{}
		}
		return resp(all)
	}
	for _, tt := range []struct {
		name   string
		handle func(string) string
		check  string // "" if there is no finding
		class  error
	}{
		{"healthy", alone, "", nil},
		{"Redis 6.2", but(but(alone, "FUNCTION", unknown), "HELLO", hello("redis", "6.2.14", "standalone", "master")),
			"functions", nodes.ErrNoFunctions},
		{"Sentinel", but(but(alone, "FUNCTION", unknown), "HELLO", hello("redis", "7.0.15", "sentinel", "sentinel")),
			"functions", nodes.ErrSentinel},
		{"no Lua", but(but(alone, "FUNCTION STATS", resp(list{"engines", list{}})), "HELLO", hello("valkey", "9.1.2", "standalone", "master")),
			"functions", nodes.ErrNoFunctions},
		{"no password", but(alone, "HELLO", resp(errors.New("NOAUTH HELLO must be called with the client already authenticated"))),
			"reach", nodes.ErrNoPermission},
		{"loading", but(alone, "FUNCTION STATS", resp(errors.New("LOADING Redis is loading the dataset in memory"))),
			"reach", nodes.ErrNotWritable},
		{"busy", but(alone, "TIME", resp(errors.New("BUSY Redis is busy running a script."))), "reach", nodes.ErrNotWritable},
		{"busy later", but(alone, "FUNCTION LIST", resp(errors.New("BUSY Redis is busy running a script."))), "reach", nodes.ErrNotWritable},
		{"odd time", but(alone, "TIME", resp(list{"x"})), "reach", nodes.ErrBadReply},
		{"hangs up", but(alone, "INFO", ""), "reach", dialing.ErrClosed},
		{"no ROLE", but(alone, "ROLE", resp(errors.New("ERR unknown command 'ROLE'"))), "unchecked", nil},
		{"a program that follows it", but(alone, "ROLE", resp(list{"master", 0, list{list{"10.0.0.9", "0", "0"}}})), "", nil},
		{"a port that is none", but(alone, "ROLE", resp(list{"master", 0, list{list{"10.0.0.9", "70000", "0"}}})),
			"reach", nodes.ErrBadReply},
		{"no CONFIG", but(alone, "INFO", resp("aof_enabled:0\r\n")), "unchecked", nil},
		{"cannot save", but(alone, "FUNCTION LOAD", resp(errors.New("MISCONF Errors writing to the AOF file"))),
			"writes", nodes.ErrNotWritable},
		{"a cluster that is up", but(running("cluster"), "CLUSTER INFO", resp("cluster_state:ok\r\n")), "", nil},
		{"a cluster that is down", but(running("cluster"), "CLUSTER INFO", resp("cluster_state:fail\r\n")), "coverage", doctor.ErrSlots},
		{"a cluster that may not be asked", but(running("cluster"), "CLUSTER INFO", resp(errors.New("NOPERM no"))), "unchecked", nil},
	} {
		addr := ""
		addr = startFake(t, func(command string) string {
			if command == "CLUSTER SHARDS" {
				return shards(addr)
			}
			return tt.handle(command)
		})
		d := must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), at(t, addr), time.Minute, nil))
		if tt.check == "unchecked" {
			if len(d.Findings) != 0 || len(d.Unchecked) != 1 {
				t.Errorf("%s:\n%s", tt.name, findings(d))
			}
		} else if got, want := findings(d), found(tt.check, addr, tt.class); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, want)
		}
	}
	// A cluster's list may be outdated if a node has just become a replica.
	for _, followsListed := range []bool{true, false} {
		var addr, joining string
		joining = startFake(t, func(command string) string {
			switch {
			case strings.HasPrefix(command, "HELLO"):
				return hello("redis", "7.0.15", "cluster", "replica")
			case command == "ROLE" && followsListed:
				host, port := hostPort(addr)
				return resp(list{"slave", host, number(port), "connected", 0})
			case command == "ROLE":
				return resp(list{"slave", "10.0.0.9", 7, "connect", 0})
			case command == "CLUSTER INFO":
				return resp("cluster_state:ok\r\n")
			}
			return alone(command)
		})
		addr = startFake(t, func(command string) string {
			switch command {
			case "CLUSTER SHARDS":
				return shards(addr, joining)
			case "CLUSTER INFO":
				return resp("cluster_state:ok\r\n")
			}
			return running("cluster")(command)
		})
		want := ""
		if !followsListed {
			want = found("writes", joining, nodes.ErrReadOnly)
		}
		if got := findings(must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), at(t, addr), time.Minute, nil))); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	replicaAddr = startFake(t, but(alone, "FUNCTION LIST", resp(list{})))
	primary := startFake(t, alone)
	if got, want := findings(must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), at(t, primary), time.Minute, nil))),
		found("replicas", replicaAddr, nil); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
