package integration_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// accessRules returns the rules that `ratelimit acl` prints.
func accessRules(t *testing.T, build functions.Build, access acl.Access, keys string, cluster bool) []string {
	t.Helper()
	return must[[]string](t)(acl.Rules(build.Text(), access, keys, cluster))
}

// allFunctions returns the rules for a user who may call every function of the library.
func allFunctions(t *testing.T, build functions.Build, keys string, cluster bool) []string {
	t.Helper()
	return append(accessRules(t, build, acl.Application, keys, cluster), accessRules(t, build, acl.Operator, keys, cluster)[1:]...)
}

// TestFleetACLRefusesWhatIsNotGranted sends, as each of the users, every command and subcommand
// of the server that the user's rules do not grant. The server must refuse them all. A server
// checks permissions first, so a refused command has no effect.
func TestFleetACLRefusesWhatIsNotGranted(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		commands := commandsOf(ctx, t, b.Nodes[0].Client())
		if len(commands) < 300 {
			t.Fatalf("the server lists %d commands", len(commands))
		}
		for _, access := range []acl.Access{acl.Application, acl.Operator, acl.Peeker, acl.Deployer, acl.Planner} {
			rules := accessRules(t, newBuild(t), access, "acl:", b.Cluster)
			user := "fleet-acl-" + string(access)
			setUser(t, b, user, rules)
			c := redis.NewClient(&redis.Options{Addr: b.Nodes[0].Addr, Username: user, Password: userPassword, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
			refused, granted := 0, 0
			for _, command := range commands {
				if slices.Contains([]string{"auth", "hello", "quit", "reset"}, command.words[0]) {
					continue // every user may send these commands, and connections need them
				}
				if isGranted(rules, command.words) {
					granted++
					continue
				}
				err := c.Do(ctx, command.line()...).Err()
				if err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") {
					// EXEC returns another error code, and the test servers refuse MODULE to every
					// user. For both commands, ACL DRYRUN shows whether the rules grant them.
					verdict, dryErr := b.Nodes[0].Client().Do(ctx, append([]any{"ACL", "DRYRUN", user}, command.line()...)...).Text()
					if err == nil || dryErr != nil || !strings.Contains(verdict, "no permission") {
						t.Errorf("%s: %q answers %v; asked, the server says %q, %v", access, command.words, err, verdict, dryErr)
					}
				}
				refused++
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if granted == 0 || refused < len(commands)-60 {
				t.Errorf("%s: %d refused, %d granted, of %d", access, refused, granted, len(commands))
			}
			t.Logf("%s: %d commands refused, %d granted in whole or in part", access, refused, granted)
		}
	})
}

// serverCommand is a command or a subcommand, with its arity as reported by COMMAND.
type serverCommand struct {
	words []string
	arity int
}

// line returns the command with the minimum number of arguments.
func (c serverCommand) line() []any {
	var line []any
	for _, word := range c.words {
		line = append(line, word)
	}
	for len(line) < max(c.arity, -c.arity) {
		line = append(line, "1")
	}
	return line
}

// commandsOf parses the reply to COMMAND. Each command has a name, an arity and, as the last field,
// its subcommands in the same format.
func commandsOf(ctx context.Context, t *testing.T, c *redis.Client) []serverCommand {
	t.Helper()
	reply := must[[]interface{}](t)(c.Do(ctx, "COMMAND").Slice())
	var all []serverCommand
	var read func(entry any)
	read = func(entry any) {
		fields, ok := entry.([]any)
		if !ok || len(fields) < 10 {
			t.Fatalf("COMMAND answers %v", entry)
		}
		name, _ := fields[0].(string)
		arity, _ := fields[1].(int64)
		subcommands, _ := fields[9].([]any)
		if len(subcommands) == 0 {
			all = append(all, serverCommand{strings.Split(strings.ToLower(name), "|"), int(arity)})
		}
		for _, sub := range subcommands {
			read(sub)
		}
	}
	for _, entry := range reply {
		read(entry)
	}
	return all
}

// isGranted reports whether a rule grants the command, or grants it with a particular argument,
// like +fcall|name.
func isGranted(rules, words []string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool {
		rule, plus := strings.CutPrefix(rule, "+")
		container, part, _ := strings.Cut(rule, "|")
		return plus && container == words[0] && (part == "" || len(words) == 1 || part == words[1])
	})
}

// TestFleetACLKeepsToThePrefix checks that the server refuses keys without the prefix, in any
// function and at any position, and refuses functions that the user does not need.
func TestFleetACLKeepsToThePrefix(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build := newBuild(t)
		deploy(ctx, t, newLoader(t, newClient(t, b)), build)
		setUser(t, b, "fleet-app", accessRules(t, build, acl.Application, "acl:", b.Cluster))
		setUser(t, b, "fleet-peek", accessRules(t, build, acl.Peeker, "acl:", b.Cluster))
		setUser(t, b, "fleet-operator", accessRules(t, build, acl.Operator, "acl:", b.Cluster))
		app, operator, peek := newClient(t, b, asUser("fleet-app")), newClient(t, b, asUser("fleet-operator")), newClient(t, b, asUser("fleet-peek"))
		for _, row := range []struct {
			c       redis.UniversalClient
			allowed bool
			line    string
		}{
			{app, true, "FCALL ratelimit_take 1 acl:{a} 10/m"},
			{app, false, "FCALL ratelimit_take 1 other:{a} 10/m"},
			{app, false, "FCALL ratelimit_take 2 acl:{a} other:{a} 10/m 10/m"},
			{app, true, "FCALL ratelimit_take 3 acl:{a} acl:once:{a} acl:use:{a} 10/m ONCE 1000 TRACK"},
			{app, false, "FCALL ratelimit_take 2 acl:{a} use:{a} 10/m TRACK"},
			{app, false, "FCALL ratelimit_reset 1 acl:{a}"},
			{app, false, "FCALL ratelimit_block 1 acl:{a} 1000"},
			{operator, true, "FCALL ratelimit_block 1 acl:{a} 1000"},
			{operator, true, "FCALL ratelimit_override 1 acl:{a} 5/m 1000"},
			{operator, true, "FCALL ratelimit_reset 1 acl:{a}"},
			{operator, false, "FCALL ratelimit_reset 1 other:{a}"},
			{operator, false, "FCALL ratelimit_take 1 acl:{a} 10/m"},
			{app, false, "FCALL_RO ratelimit_peek 1 other:{a} 10/m"},
			{app, false, "FCALL_RO ratelimit_lease 0"},
			{app, false, "SET other:{a} 1"},
			{app, false, "GET other:{a}"},
			{peek, true, "FCALL_RO ratelimit_peek 1 acl:{a} 10/m"},
			{peek, true, "FCALL_RO ratelimit_usage 1 acl:use:{a}"},
			{peek, false, "FCALL_RO ratelimit_peek 1 other:{a} 10/m"},
			{peek, false, "FCALL ratelimit_take 1 acl:{a} 10/m"},
			{peek, false, "FCALL ratelimit_peek 1 acl:{a} 10/m"},
			{peek, false, "FCALL ratelimit_reset 1 acl:{a}"},
			{peek, false, "SET acl:{a} 1"},
		} {
			var words []any
			for _, word := range strings.Fields(row.line) {
				words = append(words, word)
			}
			err := row.c.Do(ctx, words...).Err()
			refused := err != nil && strings.HasPrefix(err.Error(), "NOPERM ")
			if row.allowed && err != nil || !row.allowed && !refused {
				t.Errorf("%s: %v", row.line, err)
			}
		}
	})
}
