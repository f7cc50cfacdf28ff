package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// rotating is a Redis user whose password changes. command is a shell command that prints the user
// and the current password.
type rotating struct {
	rdb     *redis.Client
	file    string
	command string
	n       int
}

func newRotating(t *testing.T, addr string) *rotating {
	t.Helper()
	r := &rotating{rdb: admin(t, addr), file: filepath.Join(t.TempDir(), "token")}
	r.command = "cat '" + r.file + "'"
	do(t, r.rdb, "ACL", "SETUSER", "rotating", "on", "~*", "&*", "+@all")
	r.rotate(t)
	return r
}

// rotate changes the password and closes the connections that used the old one.
func (r *rotating) rotate(t *testing.T) {
	t.Helper()
	r.n++
	password := fmt.Sprintf("token-%d", r.n)
	next := r.file + ".new"
	require(t, os.WriteFile(next, []byte("rotating\n"+password+"\n"), 0o600))
	do(t, r.rdb, "ACL", "SETUSER", "rotating", "resetpass", ">"+password)
	require(t, os.Rename(next, r.file))
	do(t, r.rdb, "CLIENT", "KILL", "USER", "rotating")
}

// Long-running commands get a new password for each new connection.
func TestAuthCommandThatRotates(t *testing.T) {
	addr := startRedis(t, "--requirepass", "admin")
	r := newRotating(t, ":admin@"+addr)
	url := "redis://" + addr
	flags := func(words ...string) []string { return append(words, "--redis", url, "--auth-command", r.command) }
	fine(t, nil, flags("deploy")...)
	watch := start(t, nil, flags("status", "--watch", "--interval", "20ms")...)
	top := start(t, nil, flags("top", "--watch", "--json")...)
	board := start(t, nil, flags("dashboard", "--listen", "127.0.0.1:0")...)
	eventually(t, "the dashboard's address", func() bool { return strings.Contains(board.stdout.String(), "Ctrl-C ends it\n") })
	page, _, _ := strings.Cut(board.stdout.String(), "\n")
	for _, s := range []*started{watch, top} { // both must have started: a command may fail if the password changes while it starts
		eventually(t, "the first look", func() bool { return strings.Contains(s.stdout.String(), "\n") })
	}
	for range 3 {
		r.rotate(t)
		do(t, r.rdb, "FUNCTION", "FLUSH")
		eventually(t, "the watch loads the library", func() bool {
			list, err := r.rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: functions.Name}).Result()
			return err == nil && len(list) == 1
		})
		seen := len(top.stdout.String())
		eventually(t, "top looks again", func() bool { return strings.Contains(top.stdout.String()[seen:], "\n") })
		eventually(t, "the dashboard has the metrics", func() bool {
			reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(page + "metrics")
			if err != nil {
				return false
			}
			text, _ := io.ReadAll(reply.Body)
			_ = reply.Body.Close()
			return reply.StatusCode == http.StatusOK && !strings.Contains(string(text), "WRONGPASS")
		})
	}
	for _, s := range []*started{watch, top, board} {
		if got := s.end(); got.code == exitError || strings.Contains(got.stdout+got.stderr, "token-") {
			t.Errorf("it failed, or a token is in %+v", got)
		}
	}
}

// A password comes from the URL, REDISCLI_AUTH or --auth-command, which accepts several forms of
// output.
func TestPasswordsFromElsewhere(t *testing.T) {
	addr := startRedis(t)
	do(t, admin(t, addr), "ACL", "SETUSER", "ann", "on", ">pass word", "~*", "+@all")
	do(t, admin(t, addr), "ACL", "SETUSER", "default", "resetpass", ">other", "on")
	m := newMessages(t, "passwords from elsewhere", addr, "ADDR")
	for _, tt := range []struct {
		env, url string
		flags    []string
	}{
		{url: "redis://ann:pass%20word@" + addr},
		{env: "REDISCLI_AUTH=pass word", url: "redis://ann@" + addr},
		{env: "REDISCLI_AUTH=other", url: "redis://" + addr},
		{env: "REDISCLI_AUTH=wrong", url: "redis://ann:pass%20word@" + addr}, // the URL takes precedence
		{env: "REDISCLI_AUTH=wrong", url: "redis://ann@" + addr, flags: []string{"--auth-command", "echo 'pass word'"}},
		{url: "redis://" + addr, flags: []string{"--auth-command", "echo other"}},
		{url: "redis://" + addr, flags: []string{"--auth-command", `printf 'ann\r\npass word\r\n'`}},
		{url: "redis://bob@" + addr, flags: []string{"--auth-command", `printf 'ann\npass word'`}},
	} {
		for _, command := range [][]string{{"deploy"}, {"take", "k", "1000/s"}, {"doctor"}} {
			args := append(append(command, "--redis", tt.url), tt.flags...)
			if got := run(t, []string{tt.env}, args...); got.code == exitError {
				t.Errorf("%s %v: %+v", tt.env, args, got)
			}
		}
	}
	for _, flags := range [][]string{
		{"redis://ann:secret@" + addr, "--auth-command", "echo secret"},
		{"redis://ann:secret@" + addr, "--askpass"},
		{"redis://ann@" + addr, "--askpass"},
		{"redis://ann@" + addr, "--auth-command", "echo secret"},
		{"redis://ann@" + addr, "--auth-command", "echo secret", "--askpass"},
		{addr, "--auth-command", "sleep 1000", "--timeout", "20ms"},
		{addr, "--auth-command", "echo secret; echo broken: secret >&2; exit 3"},
		{addr, "--auth-command", "no-such-program-here 2>/dev/null"},
		{addr, "--auth-command", "true"},
		{addr, "--auth-command", "echo; echo secret"},
		{addr, "--auth-command", "echo a; echo secret; echo c"},
		{addr, "--auth-command", `printf 'se\000cret'`},
		{addr, "--auth-command", `printf '\377secret'`},
		{addr, "--auth-command", "head -c 10000000 /dev/zero | tr '\\0' s"},
	} {
		m.fails(nil, append([]string{"take", "k", "1/s", "--redis"}, flags...)...)
	}
}

// A suggested command gets the password from the same source, and contains no secret.
func TestPasswordsInSuggestions(t *testing.T) {
	for _, tt := range []struct{ env, command, want string }{
		{"", "echo secret", " --redis redis://USER@h:1 --auth-command COMMAND"},
		{"REDISCLI_AUTH=secret", "", " --redis redis://USER@h:1"},
		{"", "", " --redis redis://:PASSWORD@h:1"},
	} {
		a := testApp([]string{tt.env}, nil, nil)
		a.servers = serverFlags{url: "redis://ann@h:1", authCommand: tt.command, timeout: a.timeout}
		require(t, a.findPassword(t.Context()))
		if s, err := a.parseServers(); err != nil || s.again != tt.want {
			t.Errorf("%+v: %v, %q", tt, err, s.again)
		}
	}
}

// If the password command fails, the error names the server, and the next run can succeed.
func TestAuthCommandThatFailsLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	p := &passwords{command: "cat '" + file + "' 2>/dev/null", timeout: time.Minute, ctx: t.Context()}
	_, _, err := p.get(t.Context())
	if e := dialing.New("h:1", fmt.Errorf("no connection: %w", err), nil, time.Second, ""); err == nil ||
		e.Error() != "cannot log in to h:1: the command of --auth-command failed (exit status 1); run it by itself" {
		t.Error(e)
	}
	require(t, os.WriteFile(file, []byte("p\n"), 0o600))
	if user, password, err := p.get(t.Context()); user != "" || password != "p" || err != nil {
		t.Errorf("user %q, password %q, %v", user, password, err)
	}
	p.reuse = time.Hour
	require(t, os.Remove(file))
	if _, password, err := p.get(t.Context()); password != "p" || err != nil {
		t.Errorf("the last run counts: password %q, %v", password, err)
	}
	left := filepath.Join(t.TempDir(), "left")
	_, _, err = runForPassword(t.Context(), "sleep 1000 & echo $! > '"+left+"'; echo p", time.Minute)
	if err == nil || err.Error() != "the command of --auth-command has ended, but a program that it left in the background keeps its output open; "+
		"send the output of that program elsewhere, as in: agent >/dev/null 2>&1 &" {
		t.Error(err)
	}
	text := must[[]byte](t)(os.ReadFile(left))
	id, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if process, err := os.FindProcess(id); err != nil || process.Kill() != nil {
		t.Errorf("the process %d is still there", id)
	}
	p = &passwords{command: "sleep 1000", timeout: time.Minute}
	var end context.CancelFunc
	p.ctx, end = context.WithCancel(t.Context())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.get(ended); err == nil || !strings.Contains(err.Error(), "has not ended yet") {
		t.Error(err)
	}
	end()
	<-p.last.done
}

// No command prints the password in its URL, even if no server replies or the URL is wrong.
func TestPasswordsAreNotPrinted(t *testing.T) {
	inFolder(t, map[string]string{"policies.yaml": "policies:\n  api: 5/m\n"})
	arguments := map[string][]string{
		"take": {"k", "1/s"}, "refund": {"k", "1/s"}, "block": {"k", "1s"}, "unblock": {"k"}, "reset": {"k"},
		"override": {"k", "1/s", "--for", "1m"}, "acquire": {"k", "concurrency 1 lease=1s", "id"}, "renew": {"k", "concurrency 1 lease=1s", "id"},
		"release": {"k", "concurrency 1 lease=1s", "id"}, "usage": {"k"}, "delete": {"--yes"}, "load": {"k", "1/s", "--duration", "1s"},
		"dashboard": {"--listen", "127.0.0.1:99999"}, "demo": {"--fast"},
	}
	root := testApp(nil, io.Discard, io.Discard).root()
	tested := 0
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("redis") == nil {
			continue
		}
		tested++
		for _, url := range []string{
			"redis://ann:sekret@127.0.0.1:1", "redis://:sekret@127.0.0.1:1", "redis://sekret@127.0.0.1:1", "rediss://ann:sekret@127.0.0.1:1/0?read_timeout=1s",
			"redis+cluster://ann:sekret@127.0.0.1:1,127.0.0.1:2", "redis-sentinel://ann:sekret@127.0.0.1:1/name?sentinel_password=sekret",
			"redis://ann:sekret/more@127.0.0.1:1", "redis://ann:sekret@127.0.0.1:port",
		} {
			for _, flags := range [][]string{nil, {"--json"}, {"--watch"}, {"--policies", "policies.yaml"}} {
				if len(flags) > 0 && cmd.Flags().Lookup(strings.TrimPrefix(flags[0], "--")) == nil || slices.Contains(flags, "--watch") && cmd.Name() != "status" {
					continue
				}
				for _, given := range []bool{true, false} { // --redis, REDIS_URL
					words := slices.Concat([]string{cmd.Name()}, arguments[cmd.Name()], flags, []string{"--timeout", "1s"})
					var env []string
					if given {
						words = append(words, "--redis", url)
					} else {
						env = []string{"REDIS_URL=" + url}
					}
					got := runBriefly(t, env, words...)
					if strings.Contains(got.stdout+got.stderr, "sekret") {
						t.Errorf("%v prints the password: %+v", words, got)
					}
					if got.stdout+got.stderr == "" {
						t.Errorf("%v prints nothing", words)
					}
				}
			}
		}
	}
	if tested < 20 {
		t.Errorf("only %d commands were tested", tested)
	}
}

// runBriefly is like run, but interrupts a command with --watch after its first line of output.
func runBriefly(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	s := start(t, env, args...)
	said := func() string { return s.stdout.String() + s.stderr.String() }
	for {
		select {
		case code := <-s.code:
			return outcome{code, s.stdout.String(), s.stderr.String()}
		case <-time.After(5 * time.Millisecond):
			if slices.Contains(args, "--watch") && strings.Contains(said(), "\n") {
				s.stop()
			}
		}
	}
}

// An interrupt is not reported as a timeout of the password command.
func TestInterruptDuringAuthCommand(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	p := &passwords{ctx: ctx, last: &passwordRun{done: make(chan struct{})}}
	interrupt()
	if _, _, err := p.get(ctx); dialing.New("a", err, nil, time.Second, "").Error() != "interrupted before a answered" {
		t.Error(err)
	}
}
