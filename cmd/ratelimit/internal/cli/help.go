package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `Rate limiting as one Redis Functions library: deploy it, ask it, verify it.

Start with "ratelimit demo": it needs no Redis and ends by itself.`

// rootNotes stands below the list of commands.
const rootNotes = `
Durations: 500ms, 30s, 5m, 12h, 1d as in a limit, or several, as in 1h30m.

Exit codes: 0 fine · 1 error, one line on stderr · 2 denied (take, refund, acquire), not held (renew, release),
a server differs (status, plan), or findings (doctor).

"ratelimit COMMAND --help" explains a command.
`

// commandGroup is a part of the list of commands in the help.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

func (a *app) commandGroups() []commandGroup {
	return []commandGroup{
		{"Every day:", []*cobra.Command{a.deployCommand(), a.planCommand(), a.statusCommand(), a.rollbackCommand(), a.testCommand(),
			a.takeCommand(), a.topCommand(), a.policiesCommand()}},
		{"Try it, without Redis:", []*cobra.Command{a.demoCommand(), a.devCommand()}},
		{"Choose limits, and measure servers:", []*cobra.Command{a.backtestCommand(), a.loadCommand()}},
		{"Change what a key may do:", []*cobra.Command{a.blockCommand(), a.unblockCommand(), a.overrideCommand(), a.refundCommand(), a.resetCommand()}},
		{"Limit how many run at once:", []*cobra.Command{a.acquireCommand(), a.renewCommand(), a.releaseCommand()}},
		{"Watch and check:", []*cobra.Command{a.dashboardCommand(), a.usageCommand(), a.historyCommand(), a.doctorCommand(), a.verifyCommand()}},
		{"Prepare and remove:", []*cobra.Command{a.aclCommand(), a.buildCommand(), a.deleteCommand()}},
	}
}

func init() { cobra.EnableCommandSorting = false } // the help lists commands in the order of commandGroups

// helpWidth is the width of the texts of the help.
const helpWidth = 118

// groupAnnotation is the annotation of a flag that the help lists in a group of its own.
const groupAnnotation = "group"

// The groups of flags. The help lists only --redis of the connection flags, and names the others.
const (
	allowGroup   = "To allow what is refused otherwise:"
	connectGroup = "Connection:"
)

// inGroup puts flags of cmd into a group of the help.
func inGroup(cmd *cobra.Command, group string, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, groupAnnotation, []string{group}); err != nil {
			panic(err) // cmd has no such flag
		}
	}
}

// printUsage prints the part of the help that follows a command's description.
func printUsage(cmd *cobra.Command) error {
	var text strings.Builder
	text.WriteString("Usage:\n")
	if cmd.Runnable() && cmd.HasParent() {
		fmt.Fprintf(&text, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(&text, cmd)
	writeFlags(&text, cmd)
	if !cmd.HasParent() {
		text.WriteString(rootNotes)
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), text.String())
	return err
}

// writeCommands lists the commands of cmd by group, and the help topics.
func writeCommands(text *strings.Builder, cmd *cobra.Command) {
	list := func(title string, listed func(*cobra.Command) bool) {
		commands := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !listed(c) })
		if len(commands) == 0 {
			return
		}
		fmt.Fprintf(text, "\n%s\n", title)
		for _, c := range commands {
			fmt.Fprintf(text, "  %-*s  %s\n", cmd.Commands()[0].NamePadding(), c.Name(), c.Short)
		}
	}
	for _, group := range cmd.Groups() {
		list(group.Title, func(c *cobra.Command) bool { return c.GroupID == group.ID })
	}
	list("More:", func(c *cobra.Command) bool { return c.GroupID == "" && c.IsAvailableCommand() })
	list("Topics (ratelimit help TOPIC):", (*cobra.Command).IsAdditionalHelpTopicCommand)
}

// writeFlags lists the flags of cmd by group.
func writeFlags(text *strings.Builder, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	own, last, allow, connect := newFlags(), newFlags(), newFlags(), newFlags()
	var others []string
	flags.VisitAll(func(f *pflag.Flag) {
		group := strings.Join(f.Annotations[groupAnnotation], "")
		switch {
		case f.Name == "json", f.Name == "help":
			last.AddFlag(f)
		case group == allowGroup:
			allow.AddFlag(f)
		case group == connectGroup && f.Name == "redis":
			connect.AddFlag(f)
		case group == connectGroup:
			others = append(others, "--"+f.Name)
		default:
			own.AddFlag(f)
		}
	})
	own.AddFlagSet(last)
	fmt.Fprintf(text, "\nFlags:\n%s", own.FlagUsagesWrapped(helpWidth))
	if allow.HasFlags() {
		fmt.Fprintf(text, "\n%s\n%s", allowGroup, allow.FlagUsagesWrapped(helpWidth))
	}
	if connect.HasFlags() {
		fmt.Fprintf(text, "\n%s\n%s", connectGroup, connect.FlagUsagesWrapped(helpWidth))
		fmt.Fprintf(text, "      Also %s: ratelimit help connection\n", strings.Join(others, ", "))
	}
}

func newFlags() *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SortFlags = false
	return set
}

// connectionTopic explains how commands connect: their URLs and the flags that they share.
func (a *app) connectionTopic() *cobra.Command {
	shared := &cobra.Command{}
	a.serverFlags(shared)
	shared.Flags().SortFlags = false
	return &cobra.Command{
		Use:   "connection",
		Short: "How commands connect: URLs, clusters, Sentinels, passwords, TLS",
		Long: `Commands connect to the servers in --redis, else in REDIS_URL unless it is empty, else to ` + defaultURL + `.

  redis://host:6379                              one server, or a node of a cluster, which is detected
  redis://host:7000,host:7001                    several nodes of a cluster
  redis+cluster://host:7000                      a cluster whose nodes do not report that they are one
  redis-sentinel://host:26379,host:26379/NAME    the primary that Sentinels know as NAME
  unix:///path                                   a socket

With TLS, write rediss:// for redis://. A password stands in the URL, as in redis://user:password@host:6379, or in
REDISCLI_AUTH, or is typed (--askpass), or is printed by a program (--auth-command).

Flags:
` + shared.Flags().FlagUsagesWrapped(helpWidth),
	}
}
