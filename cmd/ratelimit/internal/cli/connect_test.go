package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestBadURLs(t *testing.T) {
	const such = "; give one such as redis://user:password@host:6379\n"
	for _, tt := range []struct{ given, want string }{
		{"http://h", "--redis http://h is not usable (invalid URL scheme: http)"},
		{"redis://", "--redis names no server"},
		{"redis://h,", "--redis names no server"},
		{"redis://u:secret%zz@h", `--redis is not a URL (invalid URL escape "%zz")`},
		{"redis://u:sec ret@h", "--redis is not a URL (write special characters of the password as %xx)"},
		{"redis://u:secret@h/x", `--redis redis://u:xxxxx@h/x is not usable (invalid database number: "x")`},
		{"redis://u:secret@h?colour=red", "--redis redis://u:xxxxx@h is not usable (unexpected option: colour)"},
		{"redis://u:secret@h,redis://u:other@i", "--redis names servers with different users, passwords or schemes (redis://u:xxxxx@i): the nodes of a cluster share theirs"},
		{"redis://h/2,i", "--redis redis://h/2,i:6379 names database 2: a cluster has only database 0"},
		{"unix:///a,unix:///b", "--redis unix:///a,/b is one unix socket: a cluster needs host and port"},
	} {
		t.Run(tt.given, func(t *testing.T) {
			got := run(t, nil, "take", "k", "1/s", "--redis", tt.given)
			got.want(t, exitError, "", "ratelimit: "+tt.want+such)
			if strings.Contains(got.stderr, "secret") {
				t.Error("the message shows the password")
			}
		})
	}
	t.Run("from the environment", func(t *testing.T) {
		run(t, []string{"REDIS_URL=ftp://h"}, "status").want(t, exitError, "",
			"ratelimit: REDIS_URL ftp://h is not usable (invalid URL scheme: ftp)"+such)
	})
	t.Run("the flag goes before the environment", func(t *testing.T) {
		run(t, []string{"REDIS_URL=redis://127.0.0.1:1"}, "status", "--redis", "ftp://h").want(t, exitError, "",
			"ratelimit: --redis ftp://h is not usable (invalid URL scheme: ftp)"+such)
	})
}

// Servers that cannot be reached, or cannot decide, cause an error of one sentence that says what
// to do.
func TestServersThatCannotDecide(t *testing.T) {
	const look = "; check the URL and that the server runs, or start one that needs no Redis with: ratelimit dev\n"
	hello := func(server, version, mode string) string {
		return "%3\r\n" + bulk("server") + bulk(server) + bulk("version") + bulk(version) + bulk("mode") + bulk(mode)
	}
	// old replies like a server without functions.
	old := func(words []string) string {
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			return hello("redis", "6.2.14", "standalone")
		case "INFO":
			return bulk("redis_version:6.2.14\r\nredis_mode:standalone\r\nrole:master\r\n")
		}
		return fmt.Sprintf("-ERR unknown command `%s`, with args beginning with: \r\n", words[0])
	}
	noLua := func(words []string) string {
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			return hello("valkey", "9.1.0", "standalone")
		case "INFO":
			return bulk("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.0\r\nredis_mode:standalone\r\nrole:master\r\n")
		case "FUNCTION":
			if strings.ToUpper(words[1]) == "STATS" {
				return "*4\r\n" + bulk("running_script") + "$-1\r\n" + bulk("engines") + "*0\r\n"
			}
			return "*0\r\n"
		case "FCALL":
			return "-ERR Function not found\r\n"
		}
		return "+OK\r\n"
	}
	silent := func([]string) string { return "" }
	cut := func([]string) string { return hangUp }
	garbage := func([]string) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" }
	for _, tt := range []struct {
		name   string
		answer func([]string) string
		args   []string
		want   string // with {} for the address
	}{
		{"older than functions, take", old, []string{"take", "k", "1/s"},
			"take \"k\": the server has no functions; it must be Redis 7.0 or later, or Valkey (ERR unknown command `fcall`, with args beginning with: )\n"},
		{"older than functions, deploy", old, []string{"deploy"}, "{} runs redis 6.2.14, which has no functions; use Redis 7.0 or later, or Valkey\n"},
		{"older than functions, status", old, []string{"status"}, "{} runs redis 6.2.14, which has no functions; use Redis 7.0 or later, or Valkey\n"},
		{"older than functions, demo", old, []string{"demo"}, "{} runs redis 6.2.14, which has no functions; use Redis 7.0 or later, or Valkey\n"},
		{"without Lua, deploy", noLua, []string{"deploy"}, "{} runs valkey 9.1.0 without its Lua engine; have it load its Lua module, or use a server that has Lua built in\n"},
		{"without Lua, take", noLua, []string{"take", "k", "1/s"}, "take \"k\": the server does not hold the library; run: ratelimit deploy --redis redis://{} (ERR Function not found)\n"},
		{"never answers, take", silent, []string{"take", "k", "1/s", "--timeout", "50ms"}, "cannot reach redis://{}: no answer within 50ms" + look},
		{"never answers, deploy", silent, []string{"deploy", "--timeout", "50ms"}, "cannot reach {}: no answer within 50ms; check the address, and that the server runs\n"},
		{"never answers, deploy, as the URL says", silent, []string{"deploy", "--timeout", "100ms"}, "cannot reach {}: no answer within 50ms; check the address, and that the server runs\n"},
		{"wants TLS", cut, []string{"take", "k", "1/s"}, "cannot reach redis://{}: it closes the connection; check the address, and whether it wants TLS (rediss://)\n"},
		{"no Redis at all", garbage, []string{"take", "k", "1/s"}, "cannot reach redis://{}: it does not speak the Redis protocol (redis: can't parse map reply: \"HTTP/1.1 400 Bad Request\"); check the address\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := fakeServer(t, tt.answer)
			url := "redis://" + addr
			if strings.HasSuffix(tt.name, "as the URL says") {
				url += "?read_timeout=50ms"
			}
			got := run(t, nil, append(tt.args, "--redis", url)...)
			if strings.HasSuffix(tt.name, "demo") {
				got.stdout = ""
			}
			got.want(t, exitError, "", "ratelimit: "+strings.ReplaceAll(tt.want, "{}", addr))
		})
	}
	t.Run("connection refused", func(t *testing.T) {
		for _, args := range [][]string{{"take", "k", "1/s"}, {"peek", "k", "1/s"}, {"reset", "k"}, {"demo"}} {
			run(t, nil, append(args, "--redis", "redis://127.0.0.1:1")...).want(t, exitError, "",
				"ratelimit: cannot reach redis://127.0.0.1:1: connection refused"+look)
		}
		for _, command := range []string{"deploy", "status"} {
			run(t, nil, command, "--redis", "redis://127.0.0.1:1").want(t, exitError, "",
				"ratelimit: cannot reach 127.0.0.1:1: connection refused; check the address, and that the server runs\n")
		}
	})
	t.Run("no TLS there", func(t *testing.T) {
		addr := fakeServer(t, silent)
		run(t, nil, "take", "k", "1/s", "--timeout", "50ms", "--redis", "rediss://"+addr).want(t, exitError, "",
			"ratelimit: cannot reach rediss://"+addr+": no answer within 50ms; does it speak TLS? redis in place of rediss in the URL goes without\n")
	})
	t.Run("no such socket", func(t *testing.T) {
		run(t, nil, "take", "k", "1/s", "--redis", "unix:///nowhere/redis.sock").want(t, exitError, "",
			"ratelimit: cannot reach unix:///nowhere/redis.sock: there is no such socket"+look)
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var stdout, stderr strings.Builder
		code := Execute(ctx, []string{"take", "k", "1/s", "--redis", "redis://127.0.0.1:1"}, func(string) string { return "" }, &stdout, &stderr)
		outcome{code, stdout.String(), stderr.String()}.want(t, exitError, "",
			"ratelimit: interrupted before redis://127.0.0.1:1 answered; nothing was sent\n")
	})
	t.Run("cluster wanted, but there is none", func(t *testing.T) {
		srv := withLibrary(t)
		run(t, nil, "take", "k", "1/s", "--cluster", "--redis", srv.Addr()).want(t, exitError, "",
			"ratelimit: redis://"+srv.Addr()+" is no cluster: "+srv.Addr()+" is a server of its own; name one server, without --cluster\n")
	})
}

// Commands that a real server refuses, because the user lacks a right or the server is a replica.
func TestServersThatRefuse(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	url := "redis://" + addr
	deployed := run(t, nil, "deploy", "--redis", url)
	if deployed.code != exitFine {
		t.Fatalf("%+v", deployed)
	}
	replica := startRedis(t, "--replicaof", strings.Replace(addr, ":", " ", 1))
	eventually(t, "the replica holds the library", func() bool {
		list, err := admin(t, replica).FunctionList(context.Background(), redis.FunctionListQuery{}).Result()
		return err == nil && len(list) == 2 // the library, and the record of what was replaced
	})
	do(t, rdb, "ACL", "SETUSER", "guest", "on", ">pw", "~mine:*", "+ping")
	do(t, rdb, "ACL", "SETUSER", "app", "on", ">pw", "~mine:*", "+fcall", "+fcall_ro", "+pttl", "+get", "+set", "+psetex", "+time")
	do(t, rdb, "ACL", "SETUSER", "half", "on", ">pw", "~*", "+fcall")

	host, port, _ := strings.Cut(addr, ":")
	rights := "; give a deployer its rights with: redis-cli -h " + host + " -p " + port + " ACL SETUSER guest '+function|load' '+function|list' '+function|delete' '+function|stats' +time +role +wait\n"
	for _, tt := range []struct {
		name, user, addr string
		args             []string
		code             int
		want             string // stderr, with {} for the address; or stdout
	}{
		{"no right to call", "guest:pw@", addr, []string{"take", "mine:a", "1/s"}, exitError,
			"take \"mine:a\": the user lacks a right; it needs fcall, fcall_ro, the commands that the library calls, and these keys (NOPERM this user has no permissions to run the 'fcall' command)\n"},
		{"no right to deploy", "guest:pw@", addr, []string{"deploy"}, exitError, `{} does not let the user "guest" call FUNCTION STATS` + rights},
		{"no right to look", "guest:pw@", addr, []string{"status"}, exitError, `{} does not let the user "guest" call FUNCTION STATS` + rights},
		{"its own key", "app:pw@", addr, []string{"take", "mine:a", "1/h"}, exitFine, "allowed  0 of 1 left · full again in 1 h\n"},
		{"another's key", "app:pw@", addr, []string{"take", "yours:a", "1/h"}, exitError,
			"take \"yours:a\": the user lacks a right; it needs fcall, fcall_ro, the commands that the library calls, and these keys (NOPERM this user has no permissions to access one of the keys used as arguments)\n"},
		{"a wrong password", "app:no@", addr, []string{"take", "mine:a", "1/h"}, exitError,
			"take \"mine:a\": the server refuses the login; check the user name and the password (WRONGPASS invalid username-password pair or user is disabled.)\n"},
		{"a wrong password, deploy", "app:no@", addr, []string{"deploy"}, exitError,
			"{} refuses the login of the user \"app\"; check the user name and the password\n"},
		{"a replica, take", "", replica, []string{"take", "k", "1/s"}, exitError,
			"take \"k\": the server is a read-only replica; connect to its primary (READONLY You can't write against a read only replica.)\n"},
		{"a replica, peek", "", replica, []string{"peek", "k", "1/h"}, exitFine, "allowed  0 of 1 left · full again in 1 h\n"},
		{"a replica, reset", "", replica, []string{"reset", "k"}, exitError,
			"reset \"k\": the server is a read-only replica; connect to its primary (READONLY You can't write against a read only replica.)\n"},
		{"a replica, deploy", "", replica, []string{"deploy"}, exitError, "{} is a read-only replica; connect to its primary " + addr + "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, nil, append(tt.args, "--redis", "redis://"+tt.user+tt.addr)...)
			if tt.code == exitError {
				got.want(t, exitError, "", "ratelimit: "+strings.ReplaceAll(tt.want, "{}", tt.addr))
			} else {
				got.want(t, tt.code, tt.want, "")
			}
		})
	}
	t.Run("a right to deploy, and none to call: demo", func(t *testing.T) {
		do(t, rdb, "ACL", "SETUSER", "deployer", "on", ">pw", "+function|load", "+function|list", "+function|delete", "+function|stats")
		got := run(t, nil, "demo", "--redis", "redis://deployer:pw@"+addr)
		const want = ":hello\": the user lacks a right; it needs fcall, fcall_ro, the commands that the library calls, and these keys (NOPERM this user has no permissions to run the 'fcall_ro' command)\n"
		if got.code != exitError || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("%+v, want the error %s", got, want)
		}
	})
	t.Run("no right to a command of the library", func(t *testing.T) {
		got := run(t, nil, "take", "k", "1/s", "--redis", "redis://half:pw@"+addr)
		const want = "ratelimit: take \"k\": the user lacks a right within the function; it needs the commands that the library calls; ratelimit acl lists them (ERR "
		if got.code != exitError || !strings.HasPrefix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%+v, want one line that begins with %s", got, want)
		}
	})
}
