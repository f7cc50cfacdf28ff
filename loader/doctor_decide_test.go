package loader_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// Doctor finds what prevents decisions on a real server, and says what to do.
func TestDoctorOfServersThatCannotDecide(t *testing.T) {
	addr, _ := startRedis(t, "--appendonly", "yes")
	rdb := at(t, addr)
	ctx := t.Context()
	text := build(t).Text()
	set := func(name, value string) {
		t.Helper()
		if err := rdb.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	load := func(old, changed string) {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in the library", old)
		}
		mustRun(t, rdb, "FUNCTION", "LOAD", "REPLACE", strings.Replace(text, old, changed, 1))
	}
	const means = "limits whose keys it holds cannot be decided"
	const refused = "a decision is a write: " + means
	for _, tt := range []struct {
		name string
		make func()
		want loader.Finding
	}{
		{"no library", func() {}, loader.Finding{Check: "library", Found: "it holds no library ratelimit", Means: "calls are answered: ERR Function not found", Do: "load it with: ratelimit deploy"}},
		{"another library of the name", func() {
			mustRun(t, rdb, "FUNCTION", "LOAD", "REPLACE", "#!lua name=ratelimit\nredis.register_function('ratelimit_take', function() return 1 end)")
		}, loader.Finding{Check: "library", Found: `has a library "ratelimit" that is not this one: its text names no build`, Means: "what it returns is not what clients of this one expect",
			Do: "delete it with FUNCTION DELETE ratelimit, or allow its replacement with --replace-foreign (ReplaceForeign)"}},
		{"a library without its functions", func() { load("'ratelimit_info'", "'ratelimit_about'") },
			loader.Finding{Check: "library", Found: "refuses FCALL_RO ratelimit_info: ERR Function not found", Means: means, Do: "look into the server's log"}},
		{"a library that answers something else", func() { load("'contract', CONTRACT,", "'contract', 'one',") },
			loader.Finding{Check: "library", Found: `answers FCALL_RO ratelimit_info with "[version`, Means: means, Do: "check that it is a Redis or Valkey server"}},
		{"no memory", func() { load("a", "a"); set("maxmemory", "1") },
			loader.Finding{Check: "writes", Found: "is out of memory and accepts no library", Means: refused, Do: "raise its maxmemory or free some, then try again"}},
		{"too few replicas", func() { set("maxmemory", "0"); set("min-replicas-to-write", "1") },
			loader.Finding{Check: "writes", Found: "takes no writes for now (NOREPLICAS Not enough good replicas to write.)", Means: refused, Do: "put that right, then try again"}},
	} {
		tt.make()
		tt.want.Addr = addr
		d := must[loader.Diagnosis](t)(newLoader(t, rdb).Doctor(ctx))
		if len(d.Findings) == 1 && strings.HasPrefix(d.Findings[0].Found, tt.want.Found) {
			d.Findings[0].Found = tt.want.Found // some add the server's message
		}
		if len(d.Findings) != 1 || d.Findings[0] != tt.want || len(d.Unchecked) != 0 {
			t.Errorf("%s: %+v, unchecked %q\nwant %+v", tt.name, d.Findings, d.Unchecked, tt.want)
		}
	}
	set("min-replicas-to-write", "0")

	// The rights that the documentation lists are sufficient for all checks.
	mustRun(t, rdb, append([]any{"ACL", "SETUSER", "doctor", "on", ">x"}, words(rights+" +info +config|get +fcall_ro|ratelimit_info")...)...)
	if got := findings(must[loader.Diagnosis](t)(newLoader(t, connect(t, redis.Options{Addr: addr, Username: "doctor", Password: "x"})).Doctor(ctx))); got != "" {
		t.Errorf("a healthy server:\n%s", got)
	}

	host, port := hostPort(addr)
	replica, _ := startRedis(t, "--replicaof", host+" "+port, "--appendonly", "yes")
	eventually(t, "the replica has the library", func() bool {
		list, err := at(t, replica).FunctionList(ctx, redis.FunctionListQuery{}).Result()
		return err == nil && len(list) == 1
	})
	eventually(t, "the replica is in step", func() bool {
		return findings(must[loader.Diagnosis](t)(newLoader(t, rdb).Doctor(ctx))) == ""
	})
	d := must[loader.Diagnosis](t)(newLoader(t, at(t, replica)).Doctor(ctx))
	want := loader.Finding{Check: "writes", Addr: replica, Found: "is a read-only replica", Means: "a decision is a write, and a replica takes none", Do: "connect to its primary " + addr}
	if len(d.Findings) != 1 || d.Findings[0] != want {
		t.Errorf("a replica that was named: %+v, want %+v", d.Findings, want)
	}
	mustRun(t, at(t, replica), append([]any{"ACL", "SETUSER", "default", "-@all"}, words(rights+" +info +config|get")...)...)
	if got, want := findings(must[loader.Diagnosis](t)(newLoader(t, rdb).Doctor(ctx))), "unchecked: whether the library of "+replica+" responds: grant +fcall_ro|ratelimit_info\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The same for servers that are not available here.
func TestDoctorOfOtherServers(t *testing.T) {
	text := build(t).Text()
	replicaAddr := ""
	healthy := func(mode string) func(string) string {
		return func(command string) string {
			switch {
			case strings.HasPrefix(command, "HELLO"):
				return hello("redis", "7.0.15", mode, "master")
			case command == "FUNCTION STATS":
				return luaEngine
			case strings.HasPrefix(command, "FUNCTION LIST"):
				return library("ratelimit", text)
			case strings.HasPrefix(command, "FCALL_RO RATELIMIT_INFO 0"):
				return resp(list{"contract", 1})
			case command == "TIME":
				return resp(list{"1700000000", "0"})
			case command == "INFO":
				return resp("aof_enabled:1\r\n")
			case command == "ROLE":
				host, port, _ := net.SplitHostPort(replicaAddr)
				if replicaAddr == "" {
					return resp(list{"master", 0, list{}})
				}
				return resp(list{"master", 0, list{list{host, port, "0"}}})
			}
			return resp(errors.New("ERR fake"))
		}
	}
	but := func(handle func(string) string, prefix, answer string) func(string) string {
		return func(command string) string {
			if strings.HasPrefix(command, prefix) {
				return answer
			}
			return handle(command)
		}
	}
	unknown := resp(errors.New("ERR unknown command 'FUNCTION'"))
	alone := healthy("standalone")
	number := func(port string) int { return must[int](t)(strconv.Atoi(port)) }
	// shards returns the reply of a cluster whose slots are all on the first of its primaries.
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
		want   string // with ADDR for the address
	}{
		{"healthy", alone, ""},
		{"Redis 6.2", but(but(alone, "FUNCTION", unknown), "HELLO", hello("redis", "6.2.14", "standalone", "master")),
			"functions ADDR: runs redis 6.2.14, which has no functions\n"},
		{"Sentinel", but(but(alone, "FUNCTION", unknown), "HELLO", hello("redis", "7.0.15", "sentinel", "sentinel")),
			"functions ADDR: is a Sentinel, which holds no data\n"},
		{"no Lua", but(but(alone, "FUNCTION STATS", resp(list{"engines", list{}})), "HELLO", hello("valkey", "9.1.2", "standalone", "master")),
			"functions ADDR: runs valkey 9.1.2 without its Lua engine\n"},
		{"no password", but(alone, "HELLO", resp(errors.New("NOAUTH HELLO must be called with the client already authenticated"))),
			"reach ADDR: wants a password\n"},
		{"loading", but(alone, "FUNCTION STATS", resp(errors.New("LOADING Redis is loading the dataset in memory"))),
			"reach ADDR: is still loading its data\n"},
		{"busy", but(alone, "TIME", resp(errors.New("BUSY Redis is busy running a script."))), "reach ADDR: is busy with a script\n"},
		{"busy later", but(alone, "FUNCTION LIST", resp(errors.New("BUSY Redis is busy running a script."))), "reach ADDR: is busy with a script\n"},
		{"odd time", but(alone, "TIME", resp(list{"x"})), `reach ADDR: answers TIME with "[x]"` + "\n"},
		{"hangs up", but(alone, "INFO", ""), "reach ADDR: cannot reach ADDR: it closes the connection\n"},
		{"no ROLE", but(alone, "ROLE", resp(errors.New("ERR unknown command 'ROLE'"))), "unchecked: the replicas of ADDR: it refuses ROLE: ERR unknown command 'ROLE'\n"},
		{"a program that follows it", but(alone, "ROLE", resp(list{"master", 0, list{list{"10.0.0.9", "0", "0"}}})), ""},
		{"a port that is none", but(alone, "ROLE", resp(list{"master", 0, list{list{"10.0.0.9", "70000", "0"}}})),
			`reach ADDR: answers ROLE with "[master 0 [[10.0.0.9 70000 0]]]"` + "\n"},
		{"no CONFIG", but(alone, "INFO", resp("aof_enabled:0\r\n")), "unchecked: the snapshots of ADDR: it refuses CONFIG GET: ERR fake\n"},
		{"cannot save", but(alone, "FUNCTION LOAD", resp(errors.New("MISCONF Errors writing to the AOF file"))),
			"writes ADDR: takes no writes for now (MISCONF Errors writing to the AOF file)\n"},
		{"a cluster that is up", but(healthy("cluster"), "CLUSTER INFO", resp("cluster_state:ok\r\n")), ""},
		{"a cluster that is down", but(healthy("cluster"), "CLUSTER INFO", resp("cluster_state:fail\r\n")), "coverage ADDR: its cluster_state is fail\n"},
		{"a cluster that may not be asked", but(healthy("cluster"), "CLUSTER INFO", resp(errors.New("NOPERM no"))), "unchecked: the slots of ADDR: grant +cluster|info\n"},
	} {
		addr := ""
		addr = startFake(t, func(command string) string {
			if command == "CLUSTER SHARDS" {
				return shards(addr)
			}
			return tt.handle(command)
		})
		if got, want := findings(must[loader.Diagnosis](t)(newLoader(t, at(t, addr)).Doctor(t.Context()))), strings.ReplaceAll(tt.want, "ADDR", addr); got != want {
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
			return healthy("cluster")(command)
		})
		want := ""
		if !followsListed {
			want = "writes " + joining + ": is a read-only replica\n"
		}
		if got := findings(must[loader.Diagnosis](t)(newLoader(t, at(t, addr)).Doctor(t.Context()))); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	replicaAddr = startFake(t, but(alone, "FUNCTION LIST", resp(list{})))
	primary := startFake(t, alone)
	if got, want := findings(must[loader.Diagnosis](t)(newLoader(t, at(t, primary)).Doctor(t.Context()))),
		"replicas "+replicaAddr+": it does not hold the library that its primary "+primary+" holds\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
