package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

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

	root.SetUsageFunc(printUsage)
	for _, group := range a.commandGroups() {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, command := range group.commands {
			command.GroupID = group.title
			command.Args = notEmpty(command.Args)
			root.AddCommand(command)
		}
	}
	root.AddCommand(a.versionCommand(), a.limitsTopic(), a.connectionTopic())
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

// instead lists names that a user may guess, because functions of the library or flags have them,
// with the command line that does the same.
var instead = map[string]string{
	"peek": "take --dry-run", "info": "policies", "overrides": "override", "override-end": "override --end",
}

// noCommand returns the error for a command name that cmd does not have.
func noCommand(cmd *cobra.Command, name string) error {
	path := strings.TrimPrefix(cmd.CommandPath()+" "+name, cmd.Root().Name()+" ")
	hint := ""
	near := cmd.SuggestionsFor(name)
	if line := instead[name]; line != "" && cmd == cmd.Root() {
		near = []string{line}
	}
	if name != "" && len(near) > 0 {
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
