package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// This file contains the code shared by the commands that act on all servers: deploy, plan, status,
// rollback, delete and doctor.

const deployerHelp = `The user needs +function|load +function|list +function|delete +function|stats +time +role +wait, in a cluster
+cluster|shards, and no keys; "ratelimit acl deployer" prints the command that grants them.`

// deployFlags are the flags that allow changes that a deployment refuses by default.
type deployFlags struct {
	downgrade, removePolicies, denyKeys, replaceForeign bool

	wait time.Duration
	cmd  *cobra.Command // the command, if it has --wait
}

func (o *deployFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.downgrade, "allow-downgrade", false, "let this build replace a newer version or a higher contract")
	f.BoolVar(&o.removePolicies, "remove-policies", false, "let this build replace one with policies that it does not have")
	f.BoolVar(&o.denyKeys, "deny-keys-in-use", false, "let a changed policy deny keys in use for a time, or need another number of keys")
	o.replaceForeignFlag(cmd)
	inGroup(cmd, allowGroup, "allow-downgrade", "remove-policies", "deny-keys-in-use", "replace-foreign")
}

func (o *deployFlags) replaceForeignFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.replaceForeign, "replace-foreign", false, "also if another library has this name")
}

func (o *deployFlags) waitFlag(cmd *cobra.Command) {
	o.cmd = cmd
	spanVar(cmd, &o.wait, "wait", 0, "wait this long for another deployment under way (with --namespace, default 24 times --timeout)")
}

// options returns the options that the flags set. In a namespace without --wait, the Loader's default
// applies.
func (o *deployFlags) options() loader.Options {
	wait := o.wait
	if wait == 0 && o.cmd != nil && o.cmd.Flags().Changed("wait") {
		wait = -1
	}
	return loader.Options{AllowDowngrade: o.downgrade, RemovePolicies: o.removePolicies, DenyKeysInUse: o.denyKeys, ReplaceForeign: o.replaceForeign, Wait: wait}
}

// libraryFlags adds --policies and --library, from which a.wanted makes the build.
func (a *app) libraryFlags(cmd *cobra.Command) {
	a.policiesFlag(cmd)
	cmd.Flags().StringVar(&a.library, "library", "", "`file` with the library, written by build -o (default: the library in this program)")
	cmd.MarkFlagsMutuallyExclusive("library", "policies") // a library's file already contains its policies
}

// wanted returns the build that the servers should run.
func (a *app) wanted() (loader.Build, error) {
	if a.library == "" {
		return a.build()
	}
	text, err := a.readLibrary()
	return loader.Text(text), err
}

func (a *app) readLibrary() (string, error) {
	text, err := os.ReadFile(a.library)
	if err != nil {
		return "", fmt.Errorf("--library: %w; name another file", err)
	}
	return string(text), nil
}

// loader returns a Loader for the servers that the flags name, and a function that closes it.
func (a *app) loader(ctx context.Context, c loader.Config) (*loader.Loader, func(), error) {
	rdb, s, err := a.fleet(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.Timeout, c.Namespace = s.Options.ReadTimeout, a.namespace
	l, err := loader.New(rdb, c)
	if err != nil {
		_ = rdb.Close()
		return nil, nil, err
	}
	return l, func() { _ = rdb.Close() }, nil
}

// fleet returns a client for the servers that the flags name. It leaves it to the caller to report a
// server that does not reply.
func (a *app) fleet(ctx context.Context) (redis.UniversalClient, servers, error) {
	s, err := a.parseServers()
	if err != nil {
		return nil, s, err
	}
	if s.Cluster || s.Master != "" {
		var silent *dialing.Error // no connection: the loader reports it for each server
		var refusal redis.Error   // an error reply from Sentinels
		if err := a.find(ctx, &s); err != nil && (!errors.As(err, &silent) || errors.As(err, &refusal)) {
			return nil, s, err
		}
	}
	return s.open(), s, nil
}

// onFleet calls a method of a Loader that returns a Report. If nodes failed, the report
// contains them, and failed is their error. err is any other error; then there is no report.
func onFleet[T any](ctx context.Context, a *app, call func(context.Context, *loader.Loader) (T, error)) (report T, failed, err error) {
	l, end, err := a.loader(ctx, loader.Config{})
	if err != nil {
		return report, nil, err
	}
	defer end()
	report, err = call(ctx, l)
	if _, ok := errors.AsType[*loader.PartialError](err); ok {
		return report, err, nil
	}
	return report, nil, err
}

func (a *app) printReport(report loader.Report, outcome func(loader.Node, text.Library) string) {
	if a.json {
		report.Nodes = slices.Clone(report.Nodes) // the returned error has the same nodes; do not change them
		for i := range report.Nodes {
			a.explain(&report.Nodes[i])
		}
		report.Notes = a.notes(report.Notes)
		a.printJSON(struct {
			InStep bool `json:"in_step"`
			loader.Report
		}{report.InStep(), report})
		return
	}
	if len(report.Nodes) == 1 && report.Nodes[0].Err != nil {
		return // the command prints the error anyway
	}
	rows := [][]string{{"NODE", "ROLE", "SERVER", "LIBRARY", ""}}
	for _, n := range report.Nodes {
		rows = append(rows, nodeRow(n, outcome(n, report.Wanted)))
	}
	a.write(table(rows))
	a.printNotes(report.Notes)
}

func (a *app) printNotes(notes []*nodes.Error) {
	for _, note := range notes {
		a.printf("\nnote: %s\n", a.explained(note))
	}
}

func nodeRow(n loader.Node, outcome string) []string {
	return []string{n.Addr, dash(n.Role), dash(n.Engine + " " + n.ServerVersion), name(n.Running), outcome}
}

func dash(text string) string {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	return text
}

// edited reports whether a library has the build ID of wanted but different source code, which
// means that it was edited manually.
func edited(l, wanted text.Library) bool {
	return l.BuildID != "" && l.BuildID == wanted.BuildID && l.Digest != wanted.Digest
}

func name(l text.Library) string {
	switch {
	case l.Digest == "":
		return "-"
	case l.BuildID == "":
		return "unknown text " + l.Digest[:min(12, len(l.Digest))]
	}
	return fmt.Sprintf("%s build %s", l.Version, l.BuildID)
}

// refusals are the errors with which a deployment refuses to change a node.
var refusals = []error{
	loader.ErrDowngrade, loader.ErrRemovesPolicies, loader.ErrDeniesKeys, nodes.ErrForeign, loader.ErrNameTaken, nodes.ErrReadOnly, nodes.ErrNotWritable, loader.ErrUnreadable,
}

func loaded(n loader.Node, _ text.Library) string {
	switch {
	case n.Err != nil && !n.Changed && !n.PutBack && slices.ContainsFunc(refusals, func(class error) bool { return errors.Is(n.Err, class) }):
		return "refused"
	case n.Err != nil:
		return "failed"
	case n.PutBack:
		return "loaded and put back"
	case n.Changed && n.Replicas > 0 && n.Acked >= 0:
		return fmt.Sprintf("loaded; %d of %s confirmed it", n.Acked, plural(n.Replicas, "replica"))
	case n.Changed:
		return "loaded"
	case n.State == loader.Same:
		return "had it already"
	}
	return "not touched"
}
