package loader_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

func rulesFor(t *testing.T, access acl.Access, keys string, cluster bool) []string {
	t.Helper()
	return must[[]string](t)(acl.Rules(build(t).Text(), access, keys, cluster))
}

func TestRules(t *testing.T) {
	app := strings.Join(rulesFor(t, acl.Application, "rl:", false), " ")
	for _, want := range []string{"reset ~rl:* +ping ", " +fcall|ratelimit_take ", " +fcall_ro|ratelimit_peek ", " +fcall|ratelimit_peek ", " +set ", " +getrange "} {
		if !strings.Contains(app, want) {
			t.Errorf("no %q in %s", want, app)
		}
	}
	for _, never := range []string{"+fcall_ro|ratelimit_take", "cluster", "function", "@", "allkeys", "flush"} {
		if strings.Contains(app, never) {
			t.Errorf("%q is in %s", never, app)
		}
	}
	peek := strings.Join(rulesFor(t, acl.Peeker, "rl:", true), " ")
	if !strings.HasPrefix(peek, "reset %R~rl:* +ping +cluster|slots ") || strings.Contains(peek, "+fcall|") || strings.Contains(peek, "+set") || !strings.Contains(peek, "+fcall_ro|ratelimit_usage") {
		t.Error(peek)
	}
	if got := strings.Join(rulesFor(t, acl.Deployer, "", true), " "); got != "reset +ping "+rights+" +cluster|shards" {
		t.Error(got)
	}
	if got := rulesFor(t, acl.Application, `a*b?[c]\`, false)[1]; got != `~a\*b\?\[c\]\\*` {
		t.Error(got)
	}
	if got := rulesFor(t, acl.Application, "", false)[1]; got != "~*" {
		t.Error(got)
	}
	for _, tt := range []struct {
		build  loader.Build
		access acl.Access
		keys   string
	}{
		{functions.Build{}, acl.Peeker, ""},
		{build(t), acl.Peeker, "a b"},
		{build(t), "root", ""},
	} {
		if _, err := acl.Rules(tt.build.Text(), tt.access, tt.keys, false); err == nil {
			t.Errorf("no error for %q, %q", tt.access, tt.keys)
		}
	}
}

// The rules are derived from the library's source code, so the name of every command called there
// must be a literal. The rules treat a command as a write if and only if the server does. If a
// prefix contains special pattern characters, the rules allow only that literal prefix.
func TestRulesOnAServer(t *testing.T) {
	source := functions.Source()
	for _, line := range strings.Split(source, "\n") {
		code, _, _ := strings.Cut(line, "--")
		if n := strings.Count(code, "redis.call") + strings.Count(code, "redis.pcall"); n != strings.Count(code, "redis.call('")+strings.Count(code, "redis.pcall('") {
			t.Errorf("a command that is called without its name standing there: %s", line)
		}
	}
	addr, _ := startRedis(t)
	ctx := t.Context()
	rdb := at(t, addr)
	must[loader.Report](t)(newLoader(t, rdb).Deploy(ctx, build(t), loader.Options{}))
	commands := must[map[string]*redis.CommandInfo](t)(rdb.Command(ctx).Result())
	app, peek := rulesFor(t, acl.Application, `odd[x]*:`, false), rulesFor(t, acl.Peeker, `odd[x]*:`, false)
	for _, rule := range app {
		name := strings.TrimPrefix(rule, "+")
		command := commands[name]
		if name == rule || command == nil {
			continue
		}
		if slices.Contains(command.Flags, "write") == slices.Contains(peek, rule) {
			t.Errorf("%s: flags %v, granted to a user who may only peek: %v", name, command.Flags, slices.Contains(peek, rule))
		}
	}
	for user, rules := range map[string][]string{"app": app, "peek": peek} {
		args := []any{"ACL", "SETUSER", user}
		for _, rule := range append(rules, "on", ">x") {
			args = append(args, rule)
		}
		mustRun(t, rdb, args...)
	}
	as := func(user string, args ...any) error {
		return connect(t, redis.Options{Addr: addr, Username: user, Password: "x"}).Do(ctx, args...).Err()
	}
	for _, tt := range []struct {
		user    string
		allowed bool
		command string
	}{
		{"app", true, "FCALL ratelimit_take 1 odd[x]*:a 3/m"},
		{"app", true, "FCALL_RO ratelimit_peek 1 odd[x]*:a 3/m"},
		{"app", true, "FCALL_RO ratelimit_info 0"},
		{"app", false, "FCALL ratelimit_take 1 oddx:a 3/m"},
		{"app", false, "FCALL ratelimit_take 2 odd[x]*:a other 3/m 3/m"},
		{"app", false, "FCALL_RO ratelimit_lease 0"},
		{"app", false, "FUNCTION LIST"},
		{"app", false, "KEYS *"},
		{"app", false, "EVAL return 0"},
		{"peek", true, "FCALL_RO ratelimit_peek 1 odd[x]*:a 3/m"},
		{"peek", false, "FCALL ratelimit_take 1 odd[x]*:a 3/m"},
		{"peek", false, "FCALL ratelimit_peek 1 odd[x]*:a 3/m"},
		{"peek", false, "SET odd[x]*:a 1"},
	} {
		err := as(tt.user, words(tt.command)...)
		if tt.allowed && err != nil || !tt.allowed && (err == nil || !strings.HasPrefix(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "ACL")) {
			t.Errorf("%s: %s: %v", tt.user, tt.command, err)
		}
	}
}
