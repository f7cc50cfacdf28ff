package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

type aclUser struct {
	User   string     `json:"user"`
	Access acl.Access `json:"access"`
	Rules  []string   `json:"rules"` // arguments of ACL SETUSER, without the password

	at [][]string // for each server, the arguments of redis-cli that name it
}

// aclFormats print a user in the forms that servers and services accept. The rules begin with
// reset, continue with the keys, and end with the commands.
var aclFormats = []struct {
	name string
	text func(u aclUser) string
}{
	{"redis", func(u aclUser) string {
		var lines []string
		for _, at := range u.at {
			lines = append(lines, shell.Line(slices.Concat([]string{"redis-cli"}, at, []string{"ACL", "SETUSER", u.User, "reset", "on", ">PASSWORD"}, u.Rules[1:])...))
		}
		return strings.Join(lines, "\n")
	}},
	{"valkey-file", func(u aclUser) string {
		return "user " + u.User + " on >PASSWORD resetchannels -@all " + strings.Join(u.Rules[1:], " ")
	}},
	{"elasticache", func(u aclUser) string {
		return shell.Line("--user-name", u.User, "--access-string", "on -@all "+strings.Join(u.Rules[1:], " "))
	}},
	{"rediscloud", func(u aclUser) string { return u.User + ": -@all " + strings.Join(u.Rules[1:], " ") }},
	{"aiven", func(u aclUser) string {
		var keys, commands []string
		for _, rule := range u.Rules[1:] {
			if _, pattern, isKey := strings.Cut(rule, "~"); isKey {
				keys = append(keys, pattern)
			} else {
				commands = append(commands, rule)
			}
		}
		return fmt.Sprintf("%s\n  categories: -@all\n  commands: %s\n  channels:\n  keys: %s", u.User, strings.Join(commands, " "), strings.Join(keys, " "))
	}},
}

func (a *app) aclCommand() *cobra.Command {
	var user string
	format := aclFormats[0].name
	var formats []string
	for _, f := range aclFormats {
		formats = append(formats, f.name)
	}
	var keys, url string
	var all, cluster bool
	kinds := []acl.Access{acl.Application, acl.Operator, acl.Peeker, acl.Deployer, acl.Planner}
	var names []string
	for _, kind := range kinds {
		names = append(names, string(kind))
	}
	list := strings.Join(names[:len(names)-1], ", ")
	last := names[len(names)-1]
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "acl [" + strings.Join(names, " | ") + "]",
		Short: "Print the ACL rules that a user needs",
		Long: `Print the redis-cli commands that create five users, or one of them: an application, which makes decisions; an operator,
who blocks, overrides and resets keys, and lists them; one that only peeks, with FCALL_RO, also on replicas; a deployer;
and a planner, which runs plan and status. The last two have no access to keys. The commands are for bash, zsh and sh.
Replace PASSWORD, and run them for every server, replicas included, because rights are not replicated: --redis prints
them for the servers of a URL.

--format prints the same rights for services that have no ACL SETUSER: elasticache is for create-user of the AWS
command line, ElastiCache and MemoryDB; rediscloud is the rule of a Redis ACL, in Redis Cloud and Redis Software;
aiven is the fields of a service user; valkey-file is a line for the aclfile of Redis or Valkey.

A server checks each command that a function calls against the user who calls the function. So an application also
gets those commands, on its own keys. This command contacts no server.`,
		Example: `  ratelimit acl --prefix rl:
  ratelimit acl application --prefix 'rl:' --cluster --user web
  ratelimit acl deployer --format elasticache`,
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return wrongUse("ratelimit acl application --prefix rl:", "acl takes one kind of user, not %d", len(args))
			}
			chosen := slices.Index(formats, format)
			if chosen < 0 {
				return fmt.Errorf("--format %q is not one of %s", format, strings.Join(formats, ", "))
			}
			if len(args) == 1 {
				kind := acl.Access(args[0])
				if !slices.Contains(kinds, kind) {
					return wrongUse("ratelimit acl application --prefix rl:", "%q is not a kind of user; there are %s and %s", args[0], list, last)
				}
				kinds = []acl.Access{kind}
			} else if user != "" {
				return wrongUse("ratelimit acl application --user web --prefix 'rl:'", "--user needs the kind of the user: %s or %s", list, last)
			}
			withKeys := slices.ContainsFunc(kinds, func(kind acl.Access) bool { return kind != acl.Deployer && kind != acl.Planner })
			if keys == "" && !all && withKeys {
				return wrongUse("ratelimit acl --prefix rl:", "acl needs --prefix, with which all keys of the user begin, or --all-keys")
			}
			if printable.Line(keys) != keys {
				return fmt.Errorf("--prefix %q contains a character that cannot be printed; choose another prefix", keys)
			}
			at, isCluster, err := aclServers(url)
			if err != nil {
				return err
			}
			cluster = cluster || isCluster
			build, err := a.wanted()
			if err != nil {
				return err
			}
			var users []aclUser
			for _, kind := range kinds {
				rules, err := acl.Rules(build.Text(), kind, keys, cluster)
				if err != nil {
					return err
				}
				name := cmp.Or(user, "ratelimit-"+string(kind))
				if visible(name) != name {
					return errors.New("--user " + visible(name) + " contains a space or a character that cannot be printed; choose another name")
				}
				users = append(users, aclUser{name, kind, rules, at})
			}
			if a.json {
				return a.printJSON(users)
			}
			for _, u := range users {
				a.printLines(aclFormats[chosen].text(u) + "\n")
			}
			return nil
		},
	})
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "name of the user (default: ratelimit- and the kind)")
	f.StringVar(&keys, "prefix", "", "prefix of all keys of the user")
	f.BoolVar(&all, "all-keys", false, "allow every key")
	cmd.MarkFlagsMutuallyExclusive("prefix", "all-keys")
	f.StringVar(&format, "format", format, "what to print: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&url, "redis", "", "URL of the servers for the redis-cli commands")
	cmd.MarkFlagsMutuallyExclusive("format", "json")
	cmd.MarkFlagsMutuallyExclusive("format", "redis")
	f.BoolVar(&cluster, "cluster", false, "add what a client needs to find the nodes of a cluster")
	a.libraryFlags(cmd)
	return cmd
}

// aclServers returns the arguments with which redis-cli connects to each server of a URL, and whether
// the servers are a cluster. Without a URL, it returns the server that redis-cli connects to by
// default.
func aclServers(url string) (at [][]string, cluster bool, _ error) {
	if url == "" {
		return [][]string{nil}, false, nil
	}
	s, err := redisurl.Parse(url)
	if err != nil {
		return nil, false, fmt.Errorf("--redis %w", err)
	}
	if s.Master != "" {
		return nil, false, errors.New("--redis names Sentinels; name the server itself, and then each of its replicas")
	}
	for _, addr := range s.Addrs {
		at = append(at, cliServer(addr, s.Options.TLSConfig != nil))
	}
	return at, s.Cluster, nil
}

// cliServer returns the arguments of redis-cli that name the server at addr.
func cliServer(addr string, tls bool) []string {
	words := []string{"-s", addr}
	if host, port, err := net.SplitHostPort(addr); err == nil {
		words = []string{"-h", host, "-p", port}
	}
	if tls {
		words = append(words, "--tls")
	}
	return words
}
