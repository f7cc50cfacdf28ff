package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) deployCommand() *cobra.Command {
	var o deployFlags
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "deploy",
		Short: "Load the library on a server, or on every primary of a cluster",
		Long: `Load the library with the policies of --policies on a server, or on every primary of a cluster. If one
fails, all get back what they had. Before anything is written, it is refused if a server cannot take the build, runs a newer version, has policies
that this build does not have, or has keys in use that a changed policy would deny. It prints what has changed;
"ratelimit plan" shows that beforehand, and "ratelimit rollback" goes back.

With --namespace it replaces the policies of that namespace and nothing else: the code of the library and all other
policies stay as they are on the servers. Without it, the policies of all namespaces stay.

` + deployerHelp,
		Example: `  ratelimit deploy --policies policies.yaml --redis redis://127.0.0.1:6379
  ratelimit deploy --namespace payments --policies payments.yaml
  ratelimit deploy --redis redis://10.0.0.1:6379,10.0.0.2:6379 --wait 1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, err := a.wanted()
			if err != nil {
				return err
			}
			report, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
				return l.Deploy(ctx, build, o.options())
			})
			if err != nil {
				return err
			}
			return a.deployed(report, failed, "was there already; nothing to do", "deployed")
		},
	}))
	a.libraryFlags(cmd)
	a.namespaceFlag(cmd)
	o.flags(cmd)
	o.waitFlag(cmd)
	return cmd
}

// deployed prints the outcome of a deployment, and its changes. If no node changed, the last line
// ends with the text in unchanged. Otherwise, it begins with the text in verb.
func (a *app) deployed(report loader.Report, failed error, unchanged, verb string) error {
	a.printReport(report, loaded)
	switch {
	case failed != nil:
		return failed
	case a.json:
		return nil
	case report.Changed() == 0:
		return a.printf("\nbuild %s %s\n", report.Wanted.BuildID, unchanged)
	}
	a.printNamespaces(report.Nodes)
	a.printChanges(slices.DeleteFunc(slices.Clone(report.Nodes), func(n loader.Node) bool { return !n.Changed }), report.Wanted, false)
	return a.printf("\n%s %s %s, build %s\n", verb, functions.Name, dash(report.Wanted.Version), dash(report.Wanted.BuildID))
}
