package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// aclUser is the JSON output for a user.
type aclUser struct {
	User   string        `json:"user"`
	Access loader.Access `json:"access"`
	Rules  []string      `json:"rules"` // arguments of ACL SETUSER, without the password
}

func (a *app) aclCommand() *cobra.Command {
	var user string
	var keys string
	var all, cluster bool
	kinds := []loader.Access{loader.Application, loader.Peeker, loader.Deployer}
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "acl [application | peek | deployer]",
		Short: "Print the ACL rules that a user needs",
		Long: `Print the redis-cli commands that create three users, or one of them: an application, which makes decisions; one that
only peeks, with FCALL_RO, also on replicas; and a deployer, which has no access to keys. The commands are for bash,
zsh and sh. Replace PASSWORD, and run them for every server, replicas included, with -h and -p after redis-cli: rights
are not replicated.

A server checks each command that a function calls against the user who calls the function. So an application also
gets those commands, on its own keys. This command contacts no server.`,
		Example: `  ratelimit acl --prefix rl:
  ratelimit acl application --prefix 'rl:' --cluster --user web`,
		ValidArgsFunction: cobra.FixedCompletions([]string{"application", "peek", "deployer"}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return wrongUse("ratelimit acl application --prefix rl:", "acl takes one kind of user, not %d", len(args))
			}
			if len(args) == 1 {
				kinds = []loader.Access{loader.Access(args[0])}
			} else if user != "" {
				return wrongUse("ratelimit acl application --user web --prefix 'rl:'", "--user needs the kind of the user: application, peek or deployer")
			}
			if keys == "" && !all && (len(args) == 0 || args[0] != string(loader.Deployer)) {
				return wrongUse("ratelimit acl --prefix rl:", "acl needs --prefix, with which all keys of the user begin, or --all-keys")
			}
			if printable.Line(keys) != keys {
				return fmt.Errorf("--prefix %q contains a character that cannot be printed; choose another prefix", keys)
			}
			build, err := a.wanted()
			if err != nil {
				return err
			}
			var users []aclUser
			for _, kind := range kinds {
				rules, err := loader.Rules(build, kind, keys, cluster)
				if err != nil {
					return err
				}
				name := user
				if name == "" {
					name = "ratelimit-" + string(kind)
				}
				if visible(name) != name {
					return errors.New("--user " + visible(name) + " contains a space or a character that cannot be printed; choose another name")
				}
				users = append(users, aclUser{name, kind, rules})
			}
			if a.json {
				return a.printJSON(users)
			}
			for _, u := range users {
				words := append([]string{"redis-cli", "ACL", "SETUSER", u.User, "reset", "on", ">PASSWORD"}, u.Rules[1:]...)
				a.printf("%s\n", shell.Line(words...))
			}
			return nil
		},
	})
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "name of the user (default: ratelimit- and the kind)")
	f.StringVar(&keys, "prefix", "", "prefix of all keys of the user")
	f.BoolVar(&all, "all-keys", false, "allow every key")
	cmd.MarkFlagsMutuallyExclusive("prefix", "all-keys")
	f.BoolVar(&cluster, "cluster", false, "add what a client needs to find the nodes of a cluster")
	a.libraryFlags(cmd)
	return cmd
}
