package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `Rate limiting as one Redis Functions library: deploy it, ask it, verify it.

Start with "ratelimit demo": it needs no Redis and ends by itself.

Servers: --redis, else REDIS_URL, else redis://127.0.0.1:6379. A URL is redis://, rediss:// (TLS) or
unix:///path, with user:password@ before the host; several cluster nodes are separated by commas.
Whether it is a cluster is found out.

Exit codes: 0 fine · 1 error, one line on stderr · 2 denied (take, peek, refund, acquire), not held (renew,
release), a server differs (status, plan), or something was found (doctor).`

func (a *app) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:                   "ratelimit",
		Short:                 "Rate limiting as one Redis Functions library",
		Long:                  rootHelp,
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return a.printVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the versions, as the command version does")
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "? "
		}
		return fmt.Errorf("unknown command %q; %sratelimit --help lists the commands", args[0], hint)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := ""
		if strings.Contains(err.Error(), "unknown shorthand") {
			hint = ", and -- goes before an argument that begins with a dash"
		}
		return fmt.Errorf("%w; %s --help lists the flags%s", err, cmd.CommandPath(), hint)
	})
	root.SuggestionsMinimumDistance = 2

	root.AddGroup(
		&cobra.Group{ID: "try", Title: "Try it:"},
		&cobra.Group{ID: "ship", Title: "Build and deploy:"},
		&cobra.Group{ID: "ask", Title: "Ask for decisions:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"try":  {a.demoCommand(), a.devCommand()},
		"ship": {a.testCommand(), a.buildCommand(), a.verifyCommand(), a.planCommand(), a.deployCommand(), a.statusCommand(), a.rollbackCommand(), a.deleteCommand(), a.doctorCommand(), a.aclCommand()},
		"ask": {a.takeCommand(), a.peekCommand(), a.refundCommand(), a.blockCommand(), a.unblockCommand(), a.resetCommand(),
			a.acquireCommand(), a.renewCommand(), a.releaseCommand(), a.usageCommand(), a.infoCommand()},
	} {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	root.AddCommand(a.versionCommand())
	a.commands = root.Commands()
	return root
}

// noArgs refuses arguments in our words.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, but got %q; %s --help shows its flags", cmd.Name(), args[0], cmd.CommandPath())
	}
	return nil
}

// jsonFlag adds --json.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON, for scripts")
}
