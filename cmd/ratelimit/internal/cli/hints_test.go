package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// Hints contain this program's name, and the servers and the library that the user gave.
func TestHints(t *testing.T) {
	addr := embedded.Run(t, embedded.WithTime(began)).Addr()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(file, []byte("policies:\n  api: 100/m\n"), 0o666))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"take", "k", "1/s", "--redis", "redis://" + addr}, "deploy --redis redis://" + addr + " --policies FILE; without --policies if there are none"},
		{[]string{"take", "k", "1/s", "--redis", "redis://:secret@" + addr + "?read_timeout=2s"}, "deploy --redis 'redis://:PASSWORD@" + addr + "?read_timeout=2s' --policies FILE;"},
		{[]string{"status", "--redis", addr, "--policies", file}, "load it with: prog deploy --redis redis://" + addr + " --policies " + file + "\n"},
		{[]string{"status", "--redis", addr, "--library", otherLibrary(t, "0.2.0", "222222222222")}, "/library.lua\n"},
		{[]string{"take", "k", "1/s", "--redis", "redis://127.0.0.1:1"}, "with: prog dev\n"},
		{[]string{"take"}, "for example: prog take "},
	} {
		var stdout, stderr bytes.Buffer
		a := testApp(nil, &stdout, &stderr)
		a.program = "prog"
		a.execute(t.Context(), tt.args)
		if text := stdout.String() + stderr.String(); !strings.Contains(text, tt.want) || strings.Contains(text, "secret") {
			t.Errorf("%v prints:\n%swant in it:\n%s", tt.args, text, tt.want)
		}
	}
	node := &nodes.Error{Addr: "[::1]:7000", User: "a;b", Rights: []string{"+function|load", "+time"}}
	for _, tt := range []struct{ addr, url, want string }{
		{"[::1]:7000", "rediss://h", "redis-cli -h ::1 -p 7000 --tls ACL SETUSER 'a;b' '+function|load' +time"},
		{"/run/my redis", "unix:///run/my%20redis", "redis-cli -s '/run/my redis' ACL SETUSER 'a;b' '+function|load' +time"},
	} {
		a := testApp(nil, nil, nil)
		a.servers.url, a.servers.timeout, node.Addr = tt.url, a.timeout, tt.addr
		if _, err := a.parseServers(); err != nil || a.expand("$grant", node) != tt.want {
			t.Errorf("%v, %s, want %s", err, a.expand("$grant", node), tt.want)
		}
	}
	for _, tt := range []struct {
		flags serverFlags
		want  string
	}{
		{serverFlags{url: "redis+cluster://h:1"}, " --redis redis+cluster://h:1"},
		{serverFlags{url: "redis://h:1,i:2"}, " --redis redis://h:1,i:2"},
		{serverFlags{url: "redis://h:1?protocol=2,i:2"}, " --redis 'redis://h:1?protocol=2,i:2'"},
		{serverFlags{url: "redis://secret@h:1"}, " --redis redis://:PASSWORD@h:1"},
		{serverFlags{url: "redis-sentinel://u:p@h:1,i/m?db=3&sentinel_username=s&sentinel_password=secret"},
			" --redis 'redis-sentinel://u:PASSWORD@h:1,i:26379/m?db=3&sentinel_password=PASSWORD&sentinel_username=s'"},
		{serverFlags{}, " --redis redis://127.0.0.1:6379"},
		{serverFlags{url: "env"}, ""}, // the next command reads the environment too
	} {
		var env []string
		if tt.flags.url == "env" {
			env, tt.flags.url = []string{"REDIS_URL=redis://ann:secret@h:1"}, ""
		}
		a := testApp(env, nil, nil)
		a.servers = tt.flags
		a.servers.timeout = a.timeout
		if s, err := a.parseServers(); err != nil || s.again != tt.want {
			t.Errorf("%+v: %v, %q, want %q", tt.flags, err, s.again, tt.want)
		}
	}
}

// Every command in a hint exists, and the table has only one hint per class and code.
func TestHintsNameCommands(t *testing.T) {
	a := testApp(nil, nil, nil)
	a.root()
	known := []string{"addr", "grant", "password", "watch", "remove", "replace"}
	for _, cmd := range a.commands {
		known = append(known, cmd.Name())
	}
	seen := map[string]bool{}
	for _, h := range hints {
		os.Expand(h.hint, func(name string) string {
			if !slices.Contains(known, name) {
				t.Errorf("%v: there is no command %s", h.class, name)
			}
			return ""
		})
		id := fmt.Sprintf("%p %s", h.class, h.codes)
		if seen[id] {
			t.Errorf("two hints for %v, %q", h.class, h.codes)
		}
		seen[id] = true
	}
}

// TestPasswords calls a server that requires a password, without the password. Errors never show a
// word that may be a password.
func TestPasswords(t *testing.T) {
	addr := startRedis(t, "--requirepass", "pw")
	m := newMessages(t, "passwords", addr, "ADDR")
	for _, user := range []string{"", "secret@", "secret:@"} {
		m.fails(nil, "take", "k", "1/s", "--redis", "redis://"+user+addr)
		m.fails(nil, "deploy", "--redis", "redis://"+user+addr)
	}
	m.fails(nil, "take", "k", "1/s", "--redis", "redis://secret@127.0.0.1:1")
	m.fails(nil, "take", "k", "1/s", "--redis", "redis://secret@h/x")
	for line := range strings.Lines(m.text.String()) {
		if strings.Contains(line, "secret") && !strings.HasPrefix(line, "$ ") {
			t.Errorf("a message has the password: %s", line)
		}
	}
	if got := run(t, nil, "doctor", "--redis", "redis://secret@"+addr); strings.Contains(got.stdout+got.stderr, "secret") {
		t.Errorf("%+v", got)
	}
}

// TestRefusals checks the output for errors from servers and errors in policies.
func TestRefusals(t *testing.T) {
	addr := embedded.Run(t, embedded.WithTime(began)).Addr()
	rdb := admin(t, addr)
	url := "redis://" + addr
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(file, []byte("policies:\n  api: {limit: 1/m, track: true}\n  calc:\n    limits:\n      - resource: 7/h\n      - consumer: 5/m\n"), 0o666))
	m := newMessages(t, "refusals", addr, "ADDR", file, "policies.yaml", functions.Digest(otherText)[:12], "DIGEST")
	m.fails(nil, "rollback", "--redis", url)
	m.fails(nil, "take", "k", "1/s", "--redis", url)
	do(t, rdb, "FUNCTION", "LOAD", otherText)
	m.fails(nil, "deploy", "--redis", url)
	m.fails(nil, "delete", "--yes", "--redis", url)
	m.fails(nil, "take", "k", "1/s", "--redis", url)
	do(t, rdb, "FUNCTION", "FLUSH")
	do(t, rdb, "FUNCTION", "LOAD", strings.Replace(otherText, "name=ratelimit", "name=theirs", 1))
	m.fails(nil, "deploy", "--redis", url)
	do(t, rdb, "FUNCTION", "FLUSH")
	fine(t, nil, "deploy", "--redis", url, "--policies", file)
	m.fails(nil, "rollback", "--redis", url)
	m.fails(nil, "deploy", "--redis", url)
	if shown := m.failsAfter(nil, "plan", "--redis", url); !strings.Contains(shown, "\n  - policy api: 1/m (track)\n") {
		t.Errorf("the plan of a refused build shows %s", shown)
	}
	m.fails(nil, "take", "k", "@none", "--redis", url)
	m.fails(nil, "take", "k", "@api", "--redis", url)
	m.fails(nil, "take", "k", "@calc", "--redis", url)
	m.fails(nil, "take", "a", "u:1", "@calc", "--redis", url)
	m.fails(nil, "take", "a", "b", "u:1", "@calc", "--redis", url)
	m.fails(nil, "take", "@api", "k", "--redis", url)
	m.fails(nil, "take", "--dry-run", "100/m", "user 42", "--redis", url)
	m.fails(nil, "take", "/api/items", "100/min", "--redis", url)
	m.fails(nil, "load", "--policy", "calc", "--key", "k", "--iterations", "1", "--redis", url)
	m.fails(nil, "load", "--limit", "@none", "--key", "/api/%", "--iterations", "1", "--redis", url)
	m.fails(nil, "take", "@api", "--redis", url)
	library := otherLibrary(t, "0.2.0", "222222222222")
	fine(t, nil, "deploy", "--redis", url, "--library", library, "--remove-policies")
	m.fails(nil, "deploy", "--redis", url)
	m.fails(nil, "deploy", "--library", file, "--redis", url)
	m.fails(nil, "deploy", "--library", file, "--policies", file, "--redis", url)
	do(t, rdb, "FUNCTION", "LOAD", "#!lua name=ratelimit_lease_ann\nlocal WHO = 'ann'\nlocal FROM_MS = 1700000000000\nlocal UNTIL_MS = 1700000060000\n"+
		"redis.register_function('ratelimit_lease', function() return 1 end)\n")
	m.fails(nil, "rollback", "--redis", url)
}

// The command refund cannot say who paid under a guarantee and a pool. It names a command that can.
func TestRefundOfAGuarantee(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
		Name: "g", Borrow: true, Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "3/d"}, {Key: "pool", Limit: "9/d"}}})))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()))
	env := []string{redisURL(srv.Addr())}
	fine(t, env, "take", "--policy", "g", "a b", "p", "--cost", "2")
	const call = "FCALL ratelimit_refund 2 'a b' p @g COST 2 PAID 1"
	run(t, env, "refund", "--policy", "g", "a b", "p", "--cost", "2").want(t, exitError, "",
		"ratelimit: refund \"a b\" \"p\": BADARGS PAID is missing; with 1 if the guarantee paid, or 2 if only the pool did: redis-cli "+call+"\n")
	if reply := do(t, admin(t, srv.Addr()), "FCALL", "ratelimit_refund", 2, "a b", "p", "@g", "COST", 2, "PAID", 1); fmt.Sprint(reply) != "[1 3 9 0 0 1]" {
		t.Errorf("%s: %v", call, reply)
	}
}

// TestRepliesOfCalls checks the output for the errors with which a server may reply to a call.
func TestRepliesOfCalls(t *testing.T) {
	srv := withLibrary(t)
	m := newMessages(t, "replies to calls")
	for _, reply := range []string{
		"ERR Function not found", "ERR unknown command 'fcall'", "CROSSSLOT Keys in request don't hash to the same slot", "NOPERM no", "ERR ACL failure in script: no",
		"NOAUTH Authentication required.", "WRONGPASS no", "READONLY no", "OOM no", "BUSY no", "LOADING no", "MASTERDOWN no", "NOREPLICAS no", "CLUSTERDOWN no", "TRYAGAIN no",
		"MOVED 1 h:1", "MISCONF no", "ERR max number of clients reached", `RATELIMIT BADCOST "UPTO": no`, "RATELIMIT BADSTATE no", "ERR something new",
	} {
		addr := standIn(t, srv, false, func(words []string) string {
			if strings.EqualFold(words[0], "FCALL") {
				return resp(errors.New(reply))
			}
			return ""
		})
		m.names = append(m.names, addr, "ADDR")
		if m.timeout = 0; strings.HasPrefix(reply, "TRYAGAIN") {
			m.timeout = 5 * time.Second // the command retries until then
		}
		m.fails(nil, "take", "k", "1/s", "--redis", addr)
	}
	addr := standIn(t, srv, false, func(words []string) string {
		if strings.EqualFold(words[0], "FCALL") {
			return resp("OK")
		}
		return ""
	})
	m.names = append(m.names, addr, "ADDR")
	m.fails(nil, "take", "k", "1/s", "--redis", addr)
}

// An error about several nodes counts the nodes that failed, and names each of them.
func TestPartialErrors(t *testing.T) {
	m := newMessages(t, "fleets")
	failed := func(addr string) loader.Node {
		return loader.Node{Addr: addr, Err: &nodes.Error{Class: loader.ErrDowngrade, Addr: addr, Problem: addr + " runs version 2", Remedy: "pass AllowDowngrade"}}
	}
	a := testApp(nil, nil, nil)
	a.root()
	for _, tt := range []struct {
		op    string
		nodes []loader.Node
	}{
		{"status", []loader.Node{failed("h:1"), {Addr: "h:2"}}},
		{"plan", []loader.Node{failed("h:1"), failed("h:2"), {Addr: "h:3"}}},
		{"delete", []loader.Node{failed("h:1"), {Addr: "h:2"}}},
		{"delete", []loader.Node{failed("h:1"), {Addr: "h:2", Changed: true}}},
		{"deploy", []loader.Node{failed("h:1"), {Addr: "h:2"}}},
		{"deploy", []loader.Node{failed("h:1"), {Addr: "h:2", PutBack: true}}},
		{"rollback", []loader.Node{failed("h:1"), {Addr: "h:2", PutBack: true}, {Addr: "h:3", Changed: true}}},
	} {
		note := &nodes.Error{Class: loader.ErrNoRecord, Problem: "h:2 runs the build and has lost its record", Remedy: "call Deploy"}
		m.add(a.explained(&loader.PartialError{Op: tt.op, Build: "abc", Nodes: tt.nodes, Notes: []*nodes.Error{note}}))
	}
}

// A library that was edited manually keeps the ID of its original build.
func TestEditedLibrary(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	do(t, admin(t, addr), "FUNCTION", "LOAD", functions.Source()+"-- by hand\n")
	ours := functions.Version() + " build " + functions.BuildID()
	got := run(t, env, "status")
	if end := "  " + ours + "  same build id, other text\n\nnot on the expected text of build " + functions.BuildID() +
		": 1 of 1 server; load it with: ratelimit deploy --policies FILE; without --policies if there are none\n"; got.code != exitDiffers || !strings.HasSuffix(got.stdout, end) {
		t.Errorf("%+v, want at the end:\n%s", got, end)
	}
	got = run(t, env, "plan")
	if end := "  " + ours + "  replace: same build id, other text\n\n" + ours + ", other text, becomes " + ours + ", on " + addr +
		":\n"; got.code != exitDiffers || !strings.Contains(got.stdout, end) {
		t.Errorf("%+v, want in it:\n%s", got, end)
	}
	if got := run(t, nil, "demo", "--redis", addr); got.code != exitError || !strings.Contains(got.stderr, " ("+ours+", other text)") || !strings.HasSuffix(got.stderr, " demo --redis redis://"+addr+" --replace\n") {
		t.Errorf("%+v", got)
	}
}

// No command treats a standalone server as a cluster. If a server does not speak TLS, the error
// says so.
func TestNotAsTheURLSays(t *testing.T) {
	addr := embedded.Run(t, embedded.WithTime(began)).Addr()
	for _, args := range [][]string{{"take", "k", "1/s"}, {"status"}, {"status", "--watch"}, {"plan"}, {"deploy"}, {"rollback"}, {"delete", "--yes"}, {"doctor"}, {"demo"}} {
		if got := run(t, nil, append(args, "--redis", "redis+cluster://"+addr)...); got.code != exitError || !strings.Contains(got.stderr, " is not a cluster: ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for _, command := range []string{"status", "deploy"} {
		if got := run(t, nil, command, "--timeout", "50ms", "--redis", "rediss://"+addr); got.code != exitError || !strings.Contains(got.stderr, "redis:// in place of rediss://") {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// The demo's help shows the demo's own defaults for the flags that it shares with other commands.
func TestDemoHelp(t *testing.T) {
	got := run(t, nil, "demo", "--help")
	for _, want := range []string{
		"how long to send traffic, from 2s to 25s (default 8s)\n",
		"URL of the server or cluster (default: a server of its own)\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "(default: REDIS_URL") {
		t.Errorf("the demo ignores REDIS_URL:\n%s", got.stdout)
	}
}
