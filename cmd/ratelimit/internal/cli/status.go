package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "status",
		Short: "Show which build each server runs",
		Long: `Show which build each server runs, compared by digest with the library in this program and --policies, or with
--library. Without these files, each server is compared with the last deployment, of which the servers keep a record;
if they have no record, with the library in this program. It changes nothing.

With --watch it keeps checking, and loads the build where it was lost: on a shard that joined, after FUNCTION FLUSH,
after a restart without persistence. It loads what was deployed last, for all namespaces: what any server has or, if all
lost it, what it has seen. Only if there is neither, it loads the build of the files, or the library in this program
without policies. Each event is a line, with --json a JSON object.

The user needs the rights that "ratelimit acl planner" prints, and for --watch those of "ratelimit acl deployer".

Exit codes: 0 all run the build · 1 error, or a server does not answer · 2 a server has another build, or none.`,
		Example: `  ratelimit status --redis redis://127.0.0.1:6379
  ratelimit status --policies policies.yaml
  ratelimit status --policies policies.yaml --watch`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, err := a.wanted()
			if err != nil {
				return err
			}
			a.reads = !watch
			if watch {
				return a.watch(cmd.Context(), build, interval)
			}
			report, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
				if a.library == "" && len(a.policies) == 0 {
					report, err := l.Status(ctx, nil)
					if err != nil || report.Wanted.Digest != "" {
						return report, err
					}
				}
				return l.Status(ctx, build)
			})
			if err != nil {
				return err
			}
			a.printReport(report, inStep)
			switch {
			case failed != nil:
				return failed
			case report.InStep():
				return nil
			case !a.json:
				out, text := 0, "not on "
				for _, n := range report.Nodes {
					if n.State != loader.Same {
						out++
					}
					if edited(n.Running, report.Wanted) {
						text = "not on the expected text of "
					}
				}
				where := fmt.Sprintf("%s%s: %d of %s", text, expected(report.Wanted), out, plural(len(report.Nodes), "server"))
				if !slices.ContainsFunc(report.Nodes, func(n loader.Node) bool { return n.State != loader.Absent }) {
					where = "no server has the library"
				}
				a.printf("\n%s; %s\n", where, a.loadHint(report))
			}
			return exitCode(exitDiffers)
		},
	}))
	cmd.Flags().BoolVar(&watch, "watch", false, "keep checking, and load the build where it was lost, until interrupted")
	spanVar(cmd, &interval, "interval", 500*time.Millisecond, "with --watch, time between two checks")
	a.libraryFlags(cmd)
	a.namespaceFlag(cmd)
	return cmd
}

// loadHint returns the remedy that loads the build on the servers in a report.
func (a *app) loadHint(report loader.Report) string {
	if slices.ContainsFunc(report.Nodes, func(n loader.Node) bool { return n.State == loader.Different && n.Running.BuildID == "" }) {
		return a.expand("replace the other library with: $deploy --replace-foreign", nil)
	}
	return a.expand("load it with: $deploy", nil)
}

// expected describes the build that servers should run. The build ID is not known if no server runs
// the build that was deployed last.
func expected(wanted text.Library) string {
	if wanted.BuildID == "" {
		return "the last deployment"
	}
	return "build " + wanted.BuildID
}

func inStep(n loader.Node, wanted text.Library) string {
	text := string(n.State)
	switch {
	case n.State == loader.Same:
		text = "in step"
	case n.State == loader.Absent:
		text = "not deployed"
	case edited(n.Running, wanted):
		text = "same build id, other text"
	case n.State == loader.Different:
		text = "differs from " + expected(wanted)
	}
	for _, taken := range n.Taken {
		text += fmt.Sprintf("; library %s holds %s", taken.Library, taken.Function)
	}
	if n.Previous.Digest != "" {
		text += "; rollback: " + name(n.Previous)
	}
	return text
}

// watch prints a line for each event until the user interrupts it, which is not an error.
func (a *app) watch(ctx context.Context, build loader.Build, interval time.Duration) error {
	l, end, err := a.loader(ctx, loader.Config{Interval: interval})
	if err != nil {
		return err
	}
	defer end()
	a.watches = true
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err = l.Watch(ctx, build, func(e loader.Event) {
		if a.printEvent(e) != nil {
			stop()
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (a *app) printEvent(e loader.Event) error {
	if e.Err != nil {
		e.Text = a.explained(e.Err)
	}
	a.explain(&e.Node)
	if a.json {
		return a.printJSONLine(e)
	}
	return a.printf("%s  %-8s  %s\n", e.Time.UTC().Format("15:04:05.000"), e.Kind, e.Text)
}
