package cli

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// errBadReply stands for errors of a reply that is not the library's.
var errBadReply = errors.New("bad reply")

// badReply reports whether err is an error about a reply that is neither a decision nor an error.
func badReply(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == "" && e.Remedy != "" && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrNotDeployed)
}

// hints lists the remedies for users of the command, by the error's class and the server's error
// code. An error's Remedy is written for Go programs; the command prints the hint instead. An error
// without a Remedy gets no hint. The first entry that matches is used. app.expand replaces the words
// that begin with $. For a server that cannot be reached, see dialing.Class.
var hints = []struct {
	class error
	codes string // the server's error codes, or "" for any
	hint  string
}{
	{client.ErrNotDeployed, "", "load it with: $deploy"},
	{client.ErrNoPermission, "NOAUTH", "$password"},
	{client.ErrNoPermission, "NOPERM ERR", "print the rights that it needs with: $acl --prefix KEY_PREFIX"},
	{client.ErrUnavailable, "MOVED ASK", "write redis+cluster:// in place of redis://"},
	{errBadReply, "", "find out what runs there with: $status"},

	{nodes.ErrSentinel, "", "write redis-sentinel://HOST:PORT/NAME with the name of the primary that it watches, or connect to that primary"},
	{nodes.ErrNoPermission, "NOAUTH", "$password"},
	{nodes.ErrNoPermission, "NOPERM", "grant the rights with: $grant"},
	{nodes.ErrForeign, "", "delete it with FUNCTION DELETE ratelimit, or $replace"},
	{loader.ErrDowngrade, "", "deploy a newer build, or add --allow-downgrade"},
	{loader.ErrRemovesPolicies, "", "$remove"},
	{loader.ErrDeniesKeys, "", "give callers another policy or another key for the new limit first, or add --deny-keys-in-use"},
	{loader.ErrNamespace, "", "give the namespace of its policies with --namespace, or a file without them"},
	{loader.ErrOvertaken, "", "see what runs with: $status"},
	{loader.ErrLeased, "", "try again after it, or wait for it with --wait"},
	{loader.ErrRefused, "", "check the build with: $verify"},
	{loader.ErrBadBuild, "", "write one with: $build -o FILE"},
	{loader.ErrNothingKept, "", "deploy the build that you want: $deploy"},
	{loader.ErrNoRecord, "", "copy it from the other nodes with: $deploy"},
	{nodes.ErrNoLibrary, "", "load it with: $deploy"},
	{doctor.ErrMixedBuilds, "", "load one build on all of them with: $deploy"},
	{doctor.ErrNotPersistent, "", "set it in the configuration: CONFIG SET appendonly yes, then CONFIG REWRITE (or appendonly yes in redis.conf); or keep this running: $watch"},
	{doctor.ErrSlots, "", "start the missing primaries, or assign their slots to others with: redis-cli --cluster fix $addr"},
}

func (a *app) hint(err error) string {
	code := ""
	node, _ := errors.AsType[*nodes.Error](err)
	if call, ok := errors.AsType[*client.Error](err); ok {
		code, node = call.Code, nil
	} else if node != nil {
		code = node.Code
	}
	for _, h := range hints {
		if (h.codes == "" || slices.Contains(strings.Fields(h.codes), code)) && (errors.Is(err, h.class) || h.class == errBadReply && badReply(err)) {
			return a.expand(h.hint, node)
		}
	}
	if unreachable, ok := errors.AsType[*dialing.Class](err); ok {
		return unreachable.Hint
	}
	return ""
}

// expand replaces $COMMAND in a hint with a command line that can be typed, and $grant, $addr and
// $password with their values. A deployment without --policies would remove the policies, so expand
// adds --policies FILE if the user named no files.
func (a *app) expand(hint string, node *nodes.Error) string {
	node = cmp.Or(node, &nodes.Error{Addr: "HOST:PORT", User: "USER"})
	adds := false
	again := func(command string, more ...string) string {
		if a.library == "" && len(a.policies) == 0 {
			more, adds = append(more, "--policies FILE"), true
		}
		return a.again(command, more...)
	}
	text := os.Expand(hint, func(name string) string {
		switch name {
		case "addr":
			return cmp.Or(node.Addr, "HOST:PORT")
		case "grant":
			return a.grant(node)
		case "password":
			if a.named.Alone != "" {
				return "write redis://:PASSWORD@host:port, with a colon before the password"
			}
			return "write redis://:PASSWORD@host:port"
		case "remove":
			if a.back {
				return "see what changes with --plan, and add --remove-policies"
			}
			if a.watches { // a watch never removes policies
				return "give all policies with --policies"
			}
			if slices.ContainsFunc(node.Policies, func(name string) bool { return functions.Policy{Name: name}.Namespace() != a.namespace }) {
				return "if no server has them, add --remove-policies, and then deploy all other namespaces again"
			}
			return "give all policies with --policies, or add --remove-policies"
		case "replace":
			if a.watches || a.examines { // these commands do not have the flag
				return "replace it with: " + again("deploy", "--replace-foreign")
			}
			return "replace it with --replace-foreign"
		case "acl":
			if a.clustered.Load() {
				name += " --cluster"
			}
		case "watch":
			return again("status", "--watch")
		case "deploy":
			return again("deploy")
		}
		return a.again(name)
	})
	if adds {
		text += "; without --policies if there are none"
	}
	return text
}

// again returns a command line that runs command with the given arguments. If the command has flags
// for servers or for a library, the line repeats those that the user gave.
func (a *app) again(command string, args ...string) string {
	line := a.program + " " + command
	name, _, _ := strings.Cut(command, " ") // command may have flags, as in "take --dry-run"
	for _, cmd := range a.commands {
		if cmd.Name() != name {
			continue
		}
		if cmd.Flags().Lookup("redis") != nil {
			if a.named.URL == "" {
				_, _ = a.parseServers() // the command has not parsed its URL; if the URL is wrong, the suggested command will say so
			}
			line += a.named.again
		}
		if cmd.Flags().Lookup("library") != nil && a.library != "" {
			line += " " + shell.Line("--library", a.library)
		} else if cmd.Flags().Lookup("policies") != nil {
			for _, name := range a.policies {
				line += " " + shell.Line("--policies", name)
			}
		}
		if cmd.Flags().Lookup("namespace") != nil && a.namespace != "" {
			line += " " + shell.Line("--namespace", a.namespace)
		}
	}
	return strings.Join(append([]string{line}, args...), " ")
}

// grant returns the command line that grants the permissions that an error names.
func (a *app) grant(node *nodes.Error) string {
	at := cliServer(node.Addr, a.named.Options.TLSConfig != nil)
	return shell.Line(slices.Concat([]string{"redis-cli"}, at, []string{"ACL", "SETUSER", node.User}, a.rights(node))...)
}

// rights returns the rights that an error of a Loader names, or those of a planner if they suffice
// for the command.
func (a *app) rights(node *nodes.Error) []string {
	build, err := functions.New()
	if err != nil || !a.reads {
		return node.Rights
	}
	rules, err := acl.Rules(build.Text(), acl.Planner, "", slices.Contains(node.Rights, "+cluster|shards"))
	if err != nil {
		return node.Rights
	}
	return slices.DeleteFunc(rules, func(rule string) bool { return rule == "reset" })
}

// withArguments returns err, the error from a call, with a remedy if the call's arguments were in
// the wrong order, if the policy does not exist, or if the policy's keys or --usage-key are
// missing. command is the command that the user should see in place of the client's operation, such
// as "take --dry-run". If it is load, the keys are in flags.
func (a *app) withArguments(err error, command string, req client.Request) error {
	call, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	copied, limit := *call, string(req.Limits[0])
	if copied.Op = command; command == "load" {
		copied.Op = "take"
	}
	// instead returns the error without the remedy that the server gave, and with another added.
	instead := func(given, remedy string) error {
		text, _, _ := strings.Cut(copied.Error(), "; "+given)
		return errors.New(text + "; " + remedy)
	}
	isLimit := func(key string) bool { // not every key with a slash, such as /api/items
		_, err := client.ParseLimit(key)
		return err == nil || strings.HasPrefix(key, "@")
	}
	switch key := req.Keys[0]; {
	case call.Code == "BADLIMIT" && command != "load" && isLimit(key):
		return instead("the keys come first", "a key comes before its limit: "+a.program+" "+command+" "+shell.Line(limit, key))
	case call.Code == "NOPOLICY":
		return instead("ratelimit_info lists", "list the policies with: "+a.again("policies"))
	case call.Code == "BADARGS" && command == "refund" && strings.Contains(call.Error(), "PAID is missing"): // the command has no flag for it
		words := slices.Concat([]string{"redis-cli", "FCALL", "ratelimit_refund", strconv.Itoa(len(req.Keys))}, req.Keys, []string{limit, "COST", strconv.FormatInt(append(req.Costs, 1)[0], 10), "PAID", "1"})
		return instead("a refund says", "with 1 if the guarantee paid, or 2 if only the pool did: "+shell.Line(words...))
	case call.Code != "BADKEYS":
	case (command == "take" || command == "load") && req.UsageKey == "" && strings.Contains(call.Error(), "usage key last"):
		copied.Remedy = "a policy with track also needs --usage-key"
	case len(req.Limits) == 1 && strings.Contains(call.Error(), limit+" takes ") && !strings.Contains(call.Error(), " takes a key"):
		if command == "load" {
			copied.Remedy = "give one --key for each key of the policy"
			break
		}
		copied.Remedy = "a policy of several keys: " + a.again(command, "--policy", strings.TrimPrefix(limit, "@"), "KEY...")
	}
	return &copied
}
