package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) rollbackCommand() *cobra.Command {
	var o deployFlags
	var plan bool
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "rollback",
		Short: "Go back to the build that the last deployment replaced",
		Long: `Go back to the build that the last deployment replaced, on every primary. The servers keep its text, so this works
from any machine. They keep one step: a second rollback undoes the first, and nothing older is there. "ratelimit
status" shows the build to go back to, and --plan shows what would change. A rollback may remove the policies that the
last deployment added. Otherwise, it is refused for the same reasons as a deployment: it would remove policies, or deny
keys in use, or the build has a lower contract. At the end this command prints what has changed.

With --namespace it restores the policies of that namespace that its last deployment replaced, and nothing else.
Without it, the policies of all namespaces stay.

Exit codes: 0 done, or with --plan nothing to change · 1 error · 2 with --plan, there is something to change.

` + deployerHelp,
		Example: `  ratelimit rollback --redis redis://127.0.0.1:6379
  ratelimit rollback --plan
  ratelimit rollback --namespace payments --remove-policies`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.back = true
			if a.reads = plan; plan {
				return a.planRollback(cmd.Context(), o.options())
			}
			report, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
				return l.Rollback(ctx, o.options())
			})
			if err != nil {
				return err
			}
			err = a.deployed(report, failed, "runs already; nothing to do", "went back to")
			if err == nil && !a.json && report.Changed() > 0 && report.Nodes[0].Previous.Digest != "" {
				return a.printf("the servers keep one step: another rollback would bring back %s, and nothing older\n", name(report.Nodes[0].Previous))
			}
			return err
		},
	}))
	a.namespaceFlag(cmd)
	cmd.Flags().BoolVar(&plan, "plan", false, "show what the rollback would change, and change nothing")
	o.flags(cmd)
	o.waitFlag(cmd)
	return cmd
}

func (a *app) planRollback(ctx context.Context, options loader.Options) error {
	plan, failed, err := onFleet(ctx, a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
		return l.PlanRollback(ctx, options)
	})
	if err != nil {
		return err
	}
	a.printPlan(plan, false)
	if plan.Wanted.Digest != "" && !a.json {
		what := "the build that the last deployment replaced"
		if a.namespace != "" {
			what = "with the policies that the last deployment of " + a.namespace + " replaced"
		}
		a.printf("\nthe rollback would bring back %s, %s; the servers keep nothing older\n", name(plan.Wanted), what)
	}
	if failed != nil {
		return failed
	}
	return differs(!plan.InStep())
}
