package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Suggested commands can be typed as they are: with this program's name, and the servers and
// policies that were given.
func TestSuggestedCommands(t *testing.T) {
	addr := startRedis(t)
	do(t, admin(t, addr), "ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all")
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte("policies:\n  api: 100/m\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string // end of the last line
	}{
		{[]string{"take", "k", "1/s", "--redis", "redis://" + addr},
			"run: go run ./cmd/ratelimit deploy --redis redis://" + addr + " (ERR Function not found)\n"},
		{[]string{"take", "k", "1/s", "--redis", "redis://ann:secret@" + addr + "?read_timeout=2s"},
			"run: go run ./cmd/ratelimit deploy --redis 'redis://ann:PASSWORD@" + addr + "?read_timeout=2s' (ERR Function not found)\n"},
		{[]string{"status", "--redis", "redis://ann:secret@" + addr},
			"load it with: go run ./cmd/ratelimit deploy --redis redis://ann:PASSWORD@" + addr + "\n"},
		{[]string{"status", "--redis", addr, "--policies", file},
			"load it with: go run ./cmd/ratelimit deploy --redis redis://" + addr + " --policies " + file + "\n"},
		{[]string{"status", "--redis", addr, "--library", otherLibrary(t, "0.2.0", "222222222222")}, "/library.lua\n"},
		{[]string{"take", "k", "1/s", "--redis", "redis://127.0.0.1:1"}, "with: go run ./cmd/ratelimit dev\n"},
	} {
		var stdout, stderr bytes.Buffer
		a := testApp(nil, &stdout, &stderr)
		a.program = "go run ./cmd/ratelimit"
		a.execute(t.Context(), tt.args)
		if said := stdout.String() + stderr.String(); !strings.HasSuffix(said, tt.want) || strings.Contains(said, "secret") {
			t.Errorf("%v says:\n%swant at the end:\n%s", tt.args, said, tt.want)
		}
	}
	// If policies run and no file is named, a suggested command that would drop them says so.
	if got := run(t, nil, "deploy", "--redis", addr, "--policies", file); got.code != exitFine {
		t.Fatalf("%+v", got)
	}
	needed := " --redis redis://" + addr + " --policies FILE"
	const why = " (FILE: your policies.yaml, since 1 policy runs there)"
	got := run(t, nil, "status", "--redis", addr)
	if !strings.HasSuffix(got.stdout, "1 of 1 server; load it with: ratelimit deploy"+needed+why+"\n") {
		t.Errorf("%+v", got)
	}
	got = run(t, nil, "doctor", "--redis", addr)
	if !strings.Contains(got.stdout, "keep this running: ratelimit status"+needed+" --watch"+why+"\n") {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(file, []byte("policies:\n  api: 100/m\n  calc: 1/s\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "deploy", "--redis", addr, "--policies", file)
	a := testApp(nil, nil, nil)
	a.root()
	a.servers.url = addr
	for text, want := range map[string]string{
		"the server does not hold the library; run: ratelimit deploy (ERR)": "the server does not hold the library; run: ratelimit deploy" + needed + strings.Replace(why, "1 policy runs", "2 policies run", 1) + " (ERR)",
		"check the build with: ratelimit verify":                            "check the build with: ratelimit verify",
		"take it away with: ratelimit delete":                               "take it away with: ratelimit delete --redis redis://" + addr,
	} {
		if got := a.typable(text); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	for _, tt := range []struct {
		flags serverFlags
		want  string
	}{
		{serverFlags{url: "redis+cluster://h:1"}, " --redis redis://h:1 --cluster"},
		{serverFlags{url: "redis://h:1,i:2"}, " --redis redis://h:1,i:2"},
		{serverFlags{url: "redis://h:1", sentinel: "my master"}, " --redis redis://h:1 --sentinel 'my master'"},
		{serverFlags{url: "redis://h:1?protocol=2,i:2"}, " --redis 'redis://h:1?protocol=2,i:2'"},
		{serverFlags{url: "redis://secret@h:1"}, " --redis redis://:PASSWORD@h:1"},
		{serverFlags{url: "redis-sentinel://u:p@h:1,i/m?db=3&sentinel_username=s&sentinel_password=secret"},
			" --redis 'redis-sentinel://u:PASSWORD@h:1,i:26379/m?db=3&sentinel_password=PASSWORD&sentinel_username=s'"},
		{serverFlags{}, " --redis redis://127.0.0.1:6379"},
		{serverFlags{url: "env"}, ""}, // the next command reads it there too
		{serverFlags{url: "env", sentinel: "m"}, " --sentinel m"},
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

// If a suggested deployment would be refused, the text says why, with the flag that allows it.
func TestSuggestedDeployments(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("one.yaml", "policies:\n  api: 1/m\n"), file("two.yaml", "policies:\n  api: 1/m\n  new: 1/s\n")
	addr, empty := startRedis(t), startRedis(t)
	host, port, _ := strings.Cut(empty, ":")
	replica := startRedis(t, "--replicaof", host+" "+port)
	suggests := func(at, flags, note string, args ...string) {
		t.Helper()
		got := run(t, nil, append(args, "--redis", at)...)
		if want := ": ratelimit deploy --redis redis://" + at + flags + note; !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%v: %+v, want in it %q", args, got, want)
		}
	}
	do(t, admin(t, addr), "FUNCTION", "LOAD", "#!lua name=ratelimit\nredis.register_function('ratelimit_x', function() return 1 end)")
	suggests(addr, " --replace-foreign", " ("+addr+` has a library "ratelimit" that is not this one`, "status")
	do(t, admin(t, addr), "FUNCTION", "FLUSH")
	if got := run(t, nil, "deploy", "--redis", addr, "--policies", two); got.code != exitFine {
		t.Fatalf("%+v", got)
	}
	suggests(addr, " --policies "+one+" --remove-policies", " ("+addr+" runs the policy new, ", "status", "--policies", one)
	if got := run(t, nil, "deploy", "--redis", addr, "--library", otherLibrary(t, "0.2.0", "222222222222"), "--remove-policies"); got.code != exitFine {
		t.Fatalf("%+v", got)
	}
	suggests(addr, " --allow-downgrade", " ("+addr+" runs version 0.2.0, ", "status")
	eventually(t, "the replica follows", func() bool {
		info, err := admin(t, replica).Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	suggests(replica, "", " ("+replica+" is a read-only replica; connect to its primary "+empty+")", "take", "k", "1/s")
}

// A server with a password, called without one.
func TestPasswords(t *testing.T) {
	addr := startRedis(t, "--requirepass", "pw")
	const colon = "; in the URL, a password alone needs a colon before it"
	const take = "ratelimit: take \"k\": the server wants a password; give redis://:PASSWORD@host:port (NOAUTH Authentication required.)"
	look := "ratelimit: " + addr + " wants a password; give redis://:PASSWORD@host:port"
	for _, tt := range []struct {
		url, command, want string
	}{
		{"redis://" + addr, "take", take},
		{"redis://" + addr, "status", look},
		{"redis://" + addr, "deploy", look},
		{"redis://secret@" + addr, "take", take + colon},
		{"redis://secret:@" + addr, "take", take + colon},
		{"redis://secret@" + addr, "status", look + colon},
		{"redis://secret@" + addr, "deploy", look + colon},
	} {
		args := []string{tt.command, "--redis", tt.url}
		if tt.command == "take" {
			args = append(args, "k", "1/s")
		}
		run(t, nil, args...).want(t, exitError, "", tt.want+"\n")
	}
	// A word that may be a password is never shown.
	for _, tt := range []struct{ url, want string }{
		{"redis://secret@127.0.0.1:1", "cannot reach redis://xxxxx@127.0.0.1:1: connection refused; check the URL and that the server runs, or start one that needs no Redis with: ratelimit dev"},
		{"redis://secret@h/x", `--redis redis://xxxxx@h/x is not usable (invalid database number: "x"); give one such as redis://user:password@host:6379`},
	} {
		run(t, nil, "take", "k", "1/s", "--redis", tt.url).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
	}
	if got := run(t, nil, "doctor", "--redis", "redis://secret@"+addr); strings.Contains(got.stdout+got.stderr, "secret") {
		t.Errorf("%+v", got)
	}
}

// A library that somebody edited keeps the ID of its original build.
func TestEditedLibrary(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	do(t, admin(t, addr), "FUNCTION", "LOAD", functions.Source()+"-- by hand\n")
	ours := functions.Version() + " build " + functions.BuildID()
	got := run(t, env, "status")
	if end := "  " + ours + "  same build id, other text\n\nnot on this program's text of build " + functions.BuildID() +
		": 1 of 1 server; load it with: ratelimit deploy\n"; got.code != exitDiffers || !strings.HasSuffix(got.stdout, end) {
		t.Errorf("%+v, want at the end:\n%s", got, end)
	}
	got = run(t, env, "plan")
	if end := "  " + ours + "  replace: same build id, other text\n\n" + ours + ", other text, becomes " + ours + ", on " + addr +
		":\n"; got.code != exitDiffers || !strings.Contains(got.stdout, end) {
		t.Errorf("%+v, want in it:\n%s", got, end)
	}
	run(t, nil, "demo", "--redis", addr).want(t, exitError, "ratelimit demo on redis://"+addr+"\n",
		"ratelimit: "+addr+" runs another build of the library ("+ours+", other text), which the demo leaves alone; run the demo without --redis, or replace that build with: ratelimit demo --redis redis://"+addr+" --replace\n")
}

// No command treats a single server as a cluster, and none waits for TLS without an error that says
// so.
func TestNotAsTheURLSays(t *testing.T) {
	addr := startRedis(t)
	commands := [][]string{{"take", "k", "1/s"}, {"status"}, {"status", "--watch"}, {"plan"}, {"deploy"}, {"rollback"}, {"delete", "--yes"}, {"doctor"}, {"demo"}}
	for _, args := range commands {
		run(t, nil, append(args, "--cluster", "--redis", addr)...).want(t, exitError, "",
			"ratelimit: redis://"+addr+" is no cluster: "+addr+" is a server of its own; name one server, without --cluster\n")
	}
	run(t, nil, "status", "--cluster", "--redis", "redis://127.0.0.1:1").want(t, exitError, "",
		"ratelimit: cannot reach 127.0.0.1:1: connection refused; check the address, and that the server runs\n")
	for _, command := range []string{"status", "deploy"} {
		run(t, nil, command, "--timeout", "50ms", "--redis", "rediss://"+addr).want(t, exitError, "",
			"ratelimit: cannot reach "+addr+": no answer within 50ms; does it speak TLS? redis in place of rediss in the URL goes without\n")
	}
}

// An empty key, as from an unset shell variable, is refused.
func TestEmptyKeys(t *testing.T) {
	srv := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(began))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"take", "", "3/m"}, "the key is empty (is a shell variable not set?); as in: ratelimit take user:42 100/m"},
		{[]string{"peek", "a", "3/m", "", "3/m"}, "key 2 of 2 is empty (is a shell variable not set?); as in: ratelimit peek user:42 100/m"},
		{[]string{"take", "--policy", "p", "a", "b", ""}, "key 3 of 3 is empty (is a shell variable not set?); as in: ratelimit take user:42 100/m"},
		{[]string{"refund", "", "3/m"}, "the key is empty (is a shell variable not set?); as in: ratelimit refund user:42 100/m"},
		{[]string{"reset", "a", ""}, "key 2 of 2 is empty (is a shell variable not set?); as in: ratelimit reset user:42"},
		{[]string{"block", "", "--for", "1s"}, "the key is empty (is a shell variable not set?); as in: ratelimit block user:42 --for 1h"},
		{[]string{"unblock", ""}, "the key is empty (is a shell variable not set?); as in: ratelimit unblock user:42"},
		{[]string{"usage", ""}, "the key is empty (is a shell variable not set?); as in: ratelimit usage user:42:usage"},
		{[]string{"take", "--policy", "", "a"}, "--policy is empty; is a shell variable not set? give it a value, or leave it out"},
	} {
		run(t, []string{redisURL(srv.Addr())}, tt.args...).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
	}
	if n, err := srv.Do("DBSIZE"); err != nil || n != int64(0) {
		t.Errorf("the server holds %v keys (%v)", n, err)
	}
}

// The demo's help describes its flags as the demo uses them.
func TestDemoHelp(t *testing.T) {
	got := run(t, nil, "demo", "--help")
	for _, want := range []string{
		"how long to send traffic, from 2s to 25s (default 8s)\n",
		"URL of the server, or of cluster nodes, comma-separated (default: a server of its own)\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "(default: REDIS_URL") {
		t.Errorf("the demo takes no notice of REDIS_URL:\n%s", got.stdout)
	}
}
