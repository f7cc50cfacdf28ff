package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

const deployerHelp = `The user needs +function|load +function|list +function|delete +function|stats +time +role +wait, in a cluster
+cluster|shards, and no keys; "ratelimit acl deployer" prints the line.`

func (a *app) deployCommand() *cobra.Command {
	var o deployFlags
	cmd := &cobra.Command{
		Use:   "deploy",
		Short: "Load the library on a server, or on every primary of a cluster",
		Long: `Load the library on a server, or on every primary of a cluster, read it back and compare. A server that runs this
build already is left alone. Nothing is written if one of the primaries could not take it.

` + deployerHelp,
		Example: `  ratelimit deploy --redis redis://127.0.0.1:6379 --policies policies.yaml`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, failed, err := a.load(cmd.Context(), func(l *loader.Loader, ctx context.Context, build functions.Build) (loader.Report, error) {
				return l.Deploy(ctx, build, a.deployOptions(o)...)
			})
			if err != nil {
				return err
			}
			if err := a.printReport(report, deployOutcome); err != nil {
				return err
			}
			if failed != nil {
				return failed
			}
			if a.json {
				return nil
			}
			if report.Changed() == 0 {
				return a.printf("\nbuild %s was there already; nothing to do\n", report.Wanted.BuildID)
			}
			return a.printf("\ndeployed %s %s, build %s\n", functions.Name, report.Wanted.Version, report.Wanted.BuildID)
		},
	}
	o.flags(cmd)
	a.policiesFlag(cmd)
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

// deployFlags are what a deployment may do that it does not by itself.
type deployFlags struct {
	downgrade, foreign bool
	wait               time.Duration
}

func (o *deployFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.downgrade, "allow-downgrade", false, "let this build take the place of a newer version, or of a higher contract")
	f.BoolVar(&o.foreign, "replace-foreign", false, "let it take the place of a library of the same name that is not ours")
	f.DurationVar(&o.wait, "wait", 0, "wait this long for another deployment that is under way")
}

func (a *app) deployOptions(o deployFlags) []loader.DeployOption {
	opts := []loader.DeployOption{loader.WaitForLease(o.wait)}
	if o.downgrade {
		opts = append(opts, loader.AllowDowngrade())
	}
	if o.foreign {
		opts = append(opts, loader.ReplaceForeign())
	}
	return opts
}

// load calls Deploy or Status of a loader. failed is the error of nodes, which the report lists as well; err is one that
// left no report.
func (a *app) load(ctx context.Context, call func(*loader.Loader, context.Context, functions.Build) (loader.Report, error)) (report loader.Report, failed, err error) {
	build, err := a.build()
	if err != nil {
		return report, nil, err
	}
	s, err := a.parseServers()
	if err != nil {
		return report, nil, err
	}
	rdb := s.open()
	defer func() { _ = rdb.Close() }()
	l, err := loader.New(rdb, loader.WithTimeout(a.servers.timeout))
	if err != nil {
		return report, nil, err
	}
	report, err = call(l, ctx, build)
	var partial *loader.PartialError
	if errors.As(err, &partial) {
		return report, err, nil
	}
	return report, nil, err
}

// printReport prints what is known of each node.
func (a *app) printReport(report loader.Report, outcome func(loader.Node, loader.Library) string) error {
	if a.json {
		return a.printJSON(struct {
			InStep bool `json:"in_step"`
			loader.Report
		}{report.InStep(), report})
	}
	if len(report.Nodes) == 1 && report.Nodes[0].Err != nil {
		return nil // the error says it all
	}
	rows := [][]string{{"NODE", "ROLE", "SERVER", "LIBRARY", ""}}
	for _, n := range report.Nodes {
		rows = append(rows, []string{n.Addr, dash(string(n.Role)), dash(n.Engine + " " + n.ServerVersion), running(n), outcome(n, report.Wanted)})
	}
	return table(a.stdout, rows)
}

func dash(text string) string {
	if text == "" || text == " " {
		return "-"
	}
	return text
}

// running names the library that a node holds.
func running(n loader.Node) string {
	switch {
	case n.Running.Digest == "":
		return "-"
	case n.Running.BuildID == "":
		return "unknown text " + n.Running.Digest[:min(12, len(n.Running.Digest))]
	}
	return fmt.Sprintf("%s build %s", n.Running.Version, n.Running.BuildID)
}

func deployOutcome(n loader.Node, _ loader.Library) string {
	switch {
	case n.Err != nil:
		return "failed"
	case n.Changed:
		return "loaded"
	case n.State == loader.Same:
		return "had it already"
	}
	return "not touched"
}
