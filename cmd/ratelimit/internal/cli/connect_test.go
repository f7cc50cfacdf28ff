package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
)

func TestBadURLs(t *testing.T) {
	m := newMessages(t, "REDIS_URL")
	m.fails([]string{"REDIS_URL=ftp://h"}, "status")
	m.fails([]string{"REDIS_URL=redis://127.0.0.1:1"}, "status", "--redis", "ftp://h") // the flag takes precedence
}

// If a server cannot be reached, or cannot make decisions, the error is one sentence that says what
// to do.
func TestServersThatCannotDecide(t *testing.T) {
	hello := func(server, version, mode string) string {
		return "%3\r\n" + resp("server") + resp(server) + resp("version") + resp(version) + resp("mode") + resp(mode)
	}
	// old replies like an old server, which does not support Redis Functions.
	old := func(words []string) string {
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			return hello("redis", "6.2.14", "standalone")
		case "INFO":
			return resp("redis_version:6.2.14\r\nredis_mode:standalone\r\nrole:master\r\n")
		}
		return fmt.Sprintf("-ERR unknown command `%s`, with args beginning with: \r\n", strings.ToLower(words[0]))
	}
	noLua := func(words []string) string {
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			return hello("valkey", "9.1.0", "standalone")
		case "INFO":
			return resp("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.0\r\nredis_mode:standalone\r\nrole:master\r\n")
		case "FUNCTION":
			if strings.ToUpper(words[1]) == "STATS" {
				return "*4\r\n" + resp("running_script") + "$-1\r\n" + resp("engines") + "*0\r\n"
			}
			return "*0\r\n"
		case "FCALL":
			return "-ERR Function not found\r\n"
		}
		return "+OK\r\n"
	}
	silent := func([]string) string { return "" }
	cut := func([]string) string { return fakeredis.HangUp }
	garbage := func([]string) string { return "HTTP/1.1 400 Bad Request\r\n\r\n" }
	m := newMessages(t, "servers that cannot decide")
	for _, tt := range []struct {
		name   string // name of the server in testdata/messages.txt
		answer func([]string) string
		args   string
	}{
		{"OLD", old, "take k 1/s"},
		{"OLD", old, "deploy"},
		{"OLD", old, "status"},
		{"NO-LUA", noLua, "deploy"},
		{"NO-LUA", noLua, "take k 1/s"},
		{"SILENT", silent, "take k 1/s --timeout 50ms"},
		{"SILENT", silent, "deploy --timeout 50ms"},
		{"CLOSES", cut, "take k 1/s"},
		{"HTTP", garbage, "take k 1/s"},
	} {
		addr := fakeredis.Run(t, tt.answer)
		m.names = append(m.names, addr, tt.name)
		m.fails(nil, append(strings.Fields(tt.args), "--redis", "redis://"+addr)...)
	}
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // accepts connections, and never replies
	defer func() { _ = listener.Close() }()
	addr := listener.Addr().String()
	m.names = append(m.names, addr, "SILENT")
	m.fails(nil, "deploy", "--timeout", "100ms", "--redis", "redis://"+addr+"?read_timeout=50ms") // the URL takes precedence
	m.fails(nil, "take", "k", "1/s", "--timeout", "50ms", "--redis", "rediss://"+addr)
	for _, args := range []string{"take k 1/s", "take k 1/s --dry-run", "reset k", "top", "deploy", "status"} {
		m.fails(nil, append(strings.Fields(args), "--redis", "redis://127.0.0.1:1")...)
	}
	m.fails(nil, "status", "--redis", "redis+cluster://127.0.0.1:1")
	m.fails(nil, "take", "k", "1/s", "--redis", "unix:///nowhere/redis.sock")
	addr = withLibrary(t).Addr()
	m.names = append(m.names, addr, "ALONE")
	m.fails(nil, "take", "k", "1/s", "--redis", "redis+cluster://"+addr)
	addr = fakeredis.Run(t, old)
	if got := run(t, nil, "demo", "--redis", addr); got.code != exitError || !strings.Contains(got.stderr, " has no functions; ") {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr strings.Builder
	code := Execute(ctx, []string{"take", "k", "1/s", "--redis", "redis://127.0.0.1:1"}, func(string) string { return "" }, &stdout, &stderr)
	if code != exitError || stdout.Len() > 0 {
		t.Errorf("interrupted: exit code %d, stdout %q", code, stdout.String())
	}
	m.add("interrupted\n" + stderr.String())
}

// TestServersThatRefuse runs commands that a real server refuses, because the user lacks a
// permission or the server is a replica.
func TestServersThatRefuse(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	url := "redis://" + addr
	fine(t, nil, "deploy", "--redis", url)
	replica := startRedis(t, "--replicaof", strings.Replace(addr, ":", " ", 1))
	eventually(t, "the replica holds the library", func() bool {
		list, err := admin(t, replica).FunctionList(context.Background(), redis.FunctionListQuery{}).Result()
		return err == nil && len(list) == 1
	})
	do(t, rdb, "ACL", "SETUSER", "guest", "on", ">pw", "~mine:*", "+ping")
	do(t, rdb, "ACL", "SETUSER", "app", "on", ">pw", "~mine:*", "+fcall", "+fcall_ro", "+pttl", "+get", "+set", "+psetex", "+time")
	do(t, rdb, "ACL", "SETUSER", "half", "on", ">pw", "~*", "+fcall")

	m := newMessages(t, "servers that refuse", addr, "ADDR", replica, "REPLICA", strings.Replace(addr, ":", " -p ", 1), "ADDR")
	for _, tt := range []struct{ user, addr, args string }{
		{"guest:pw@", addr, "take mine:a 1/s"},
		{"guest:pw@", addr, "deploy"},
		{"guest:pw@", addr, "status"},
		{"app:pw@", addr, "take yours:a 1/h"},
		{"app:no@", addr, "take mine:a 1/h"},
		{"app:no@", addr, "deploy"},
		{"half:pw@", addr, "take k 1/s"},
		{"", replica, "take k 1/s"},
		{"", replica, "reset k"},
		{"", replica, "deploy"},
	} {
		m.fails(nil, append(strings.Fields(tt.args), "--redis", "redis://"+tt.user+tt.addr)...)
	}
	// A command that changes nothing advises the rights that it needs, and no right to load.
	for _, command := range []string{"status", "plan", "rollback --plan", "history"} {
		do(t, rdb, "ACL", "SETUSER", "looker", "reset", "on", ">pw")
		args := append(strings.Fields(command), "--redis", "redis://looker:pw@"+addr)
		_, advice, _ := strings.Cut(run(t, nil, args...).stderr, " ACL SETUSER looker ")
		words := []any{"ACL", "SETUSER", "looker"}
		for _, rule := range wordsOf(strings.TrimSpace(advice)) {
			words = append(words, rule)
		}
		do(t, rdb, words...)
		if got := run(t, nil, args...); advice == "" || strings.Contains(advice, "load") || strings.Contains(got.stderr, "does not let the user") {
			t.Errorf("%s advises %q, and then: %+v", command, advice, got)
		}
	}
	const allowed = "allowed  0 of 1 left · full again in 1 h\n"
	run(t, nil, "take", "mine:a", "1/h", "--redis", "redis://app:pw@"+addr).want(t, exitFine, allowed, "")
	run(t, nil, "take", "--dry-run", "k", "1/h", "--redis", "redis://"+replica).want(t, exitFine, "would be "+strings.Replace(allowed, "left", "left after it", 1), "")
	do(t, rdb, "ACL", "SETUSER", "deployer", "on", ">pw", "+function|load", "+function|list", "+function|delete", "+function|stats")
	if got := run(t, nil, "demo", "--redis", "redis://deployer:pw@"+addr); got.code != exitError || !strings.Contains(got.stderr, ":hello\": the user lacks a right ") {
		t.Errorf("%+v", got)
	}
}

// The errors of top, override, policies and the dashboard have the advice for users of the command,
// also in JSON and on the screen.
func TestFaultsAreForUsersOfTheCommand(t *testing.T) {
	s := servers{Servers: redisurl.Servers{Name: "rediss://h:1", Options: redis.Options{TLSConfig: &tls.Config{}, ReadTimeout: time.Second}}}
	err := testApp(nil, io.Discard, io.Discard).faults(s, errors.Join(&scan.NodeError{Addr: "h:1", Err: context.DeadlineExceeded}), "")
	if want := "cannot reach h:1: no answer within 1s; write redis:// in place of rediss:// if the server does not use TLS"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
