package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) deployCommand() *cobra.Command {
	var o deployFlags
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "deploy",
		Short: "Load the library on a server, or on every primary of a cluster",
		Long: `Load the library on a server, or on every primary of a cluster, read it back and compare. Either all of them get it,
or none. Servers that already run this build are not changed. Nothing is written if a primary cannot take the build,
runs a newer version, or has policies that this build does not have. If one fails during the deployment, the others
get back what they had. The servers keep what was replaced for "ratelimit rollback". Only one deployment runs at a
time. At the end it prints what has changed, as "ratelimit plan" does.

` + deployerHelp,
		Example: `  ratelimit deploy --redis redis://127.0.0.1:6379 --policies policies.yaml
  ratelimit deploy --redis redis://10.0.0.1:6379,10.0.0.2:6379 --wait 1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, err := a.wanted()
			if err != nil {
				return err
			}
			report, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
				options, _ := o.allowed()
				return l.Deploy(ctx, build, append(options, loader.WaitForLease(o.wait))...)
			})
			if err != nil {
				return err
			}
			return a.deployed(report, failed, "was there already; nothing to do", "deployed")
		},
	}))
	a.libraryFlags(cmd)
	o.flags(cmd)
	o.waitFlag(cmd)
	return cmd
}

// deployed prints the outcome of a deployment, and its changes.
func (a *app) deployed(report loader.Report, failed error, nothing, done string) error {
	a.printReport(report, loaded)
	switch {
	case failed != nil:
		return failed
	case a.json:
		return nil
	case report.Changed() == 0:
		return a.printf("\nbuild %s %s\n", report.Wanted.BuildID, nothing)
	}
	var changed []loader.NodePlan
	for _, n := range report.Nodes {
		if n.Changed {
			changed = append(changed, loader.NodePlan{Node: n})
		}
	}
	a.printChanges(changed, report.Wanted, false)
	return a.printf("\n%s %s %s, build %s\n", done, functions.Name, dash(report.Wanted.Version), dash(report.Wanted.BuildID))
}
