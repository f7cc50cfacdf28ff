package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `Rate limiting as one Redis Functions library: deploy it, ask it, verify it.

Start with "ratelimit demo": it needs no Redis and ends by itself.

Servers: --redis, else REDIS_URL unless it is empty, else redis://127.0.0.1:6379. A URL is redis://,
rediss:// (TLS) or unix:///path, with user:password@ before the host; several cluster nodes are separated by
commas. Clusters are detected. A password is in the URL, or in REDISCLI_AUTH, or typed (--askpass), or printed by a
program (--auth-command).

Durations: 500ms, 30s, 5m, 12h, 1d as in a limit, or several, as in 1h30m. "ratelimit help limits" explains limits.

Exit codes: 0 fine · 1 error, one line on stderr · 2 denied (take, peek, refund, acquire), not held (renew,
release), a server differs (status, plan), or findings (doctor).`

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
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return noCommand(root, args[0])
	}
	root.SetFlagErrorFunc(flagError)
	root.SuggestionsMinimumDistance = 2

	root.AddGroup(
		&cobra.Group{ID: "try", Title: "Try it:"},
		&cobra.Group{ID: "choose", Title: "Choose limits by looking:"},
		&cobra.Group{ID: "ship", Title: "Build and deploy:"},
		&cobra.Group{ID: "ask", Title: "Ask for decisions:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"try":  {a.demoCommand(), a.devCommand()},
		"ship": {a.testCommand(), a.buildCommand(), a.verifyCommand(), a.planCommand(), a.deployCommand(), a.statusCommand(), a.rollbackCommand(), a.historyCommand(), a.deleteCommand(), a.doctorCommand(), a.aclCommand()},
		"ask": {a.takeCommand(), a.peekCommand(), a.refundCommand(), a.blockCommand(), a.unblockCommand(),
			a.overrideCommand(), a.overrideEndCommand(), a.overridesCommand(), a.resetCommand(), a.acquireCommand(), a.renewCommand(), a.releaseCommand(), a.usageCommand(), a.topCommand(), a.policiesCommand(), a.infoCommand(), a.dashboardCommand()},
		"choose": {a.backtestCommand(), a.loadCommand()},
	} {
		for _, command := range commands {
			command.GroupID = group
			command.Args = notEmpty(command.Args)
			root.AddCommand(command)
		}
	}
	root.AddCommand(a.versionCommand(), a.limitsTopic())
	a.commands = root.Commands()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	for _, shell := range completion.Commands() {
		shell.Args = noArgs
	}
	return root
}

// known returns an error if args name an unknown command, as in "x", "help x" or "x --help".
func known(root *cobra.Command, args []string) error {
	cmd, rest, _ := root.Find(args)
	help := cmd.Name() == "help"
	if help {
		cmd, rest, _ = root.Find(rest)
	}
	switch {
	case len(rest) == 0, strings.HasPrefix(rest[0], "-"), strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd):
		return nil
	case cmd.HasSubCommands(), help:
		return noCommand(cmd, rest[0])
	}
	return nil
}

// noCommand returns the error for a command name that cmd does not have.
func noCommand(cmd *cobra.Command, name string) error {
	path := strings.TrimPrefix(cmd.CommandPath()+" "+name, cmd.Root().Name()+" ")
	hint := ""
	if near := cmd.SuggestionsFor(name); name != "" && len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "? "
	}
	if !cmd.HasSubCommands() {
		cmd = cmd.Root()
	}
	return fmt.Errorf("unknown command %q; %s%s --help lists the commands", path, hint, cmd.CommandPath())
}

// noArgs is like cobra.NoArgs, but with our own error text.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, not %q; %s --help shows its flags", cmd.Name(), args[0], cmd.CommandPath())
	}
	return nil
}
