package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which build each server runs",
		Long: `Show which build each server runs, compared by digest with the one in this program. It changes nothing.

` + deployerHelp + `

Exit codes: 0 all run this build · 1 error, also if one server does not answer · 2 one has another build, or none.`,
		Example: `  ratelimit status --redis redis://127.0.0.1:6379
  ratelimit status --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, failed, err := a.load(cmd.Context(), func(l *loader.Loader, ctx context.Context, build functions.Build) (loader.Report, error) {
				return l.Status(ctx, build)
			})
			if err != nil {
				return err
			}
			if err := a.printReport(report, statusOutcome); err != nil {
				return err
			}
			switch {
			case failed != nil:
				return failed
			case report.InStep():
				return nil
			case !a.json:
				out := 0
				for _, n := range report.Nodes {
					if n.State != loader.Same {
						out++
					}
				}
				if err := a.printf("\nnot on build %s: %d of %s; load it with: %s deploy\n",
					report.Wanted.BuildID, out, plural(int64(len(report.Nodes)), "server"), a.program); err != nil {
					return err
				}
			}
			return exitCode(exitDiffers)
		},
	}
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

func statusOutcome(n loader.Node, wanted loader.Library) string {
	switch n.State {
	case loader.Same:
		return "in step"
	case loader.Absent:
		return "not deployed"
	case loader.Different:
		return fmt.Sprintf("differs from build %s", wanted.BuildID)
	}
	return string(n.State)
}
