package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) historyCommand() *cobra.Command {
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "history",
		Short: "Show the last deployments",
		Long: `Show the last deployments, the latest first: when and by whom, the beginning of the digest, and what changed. The
servers remember ten deployments of each namespace and of the code, and the text that the last one replaced. With
--namespace it shows those of that namespace.

The user needs the rights that "ratelimit acl planner" prints.`,
		Example: `  ratelimit history --redis redis://127.0.0.1:6379
  ratelimit history --namespace payments`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.reads = true
			list, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) ([]loader.Deployment, error) {
				return l.History(ctx)
			})
			switch {
			case err != nil || failed != nil:
				return cmp.Or(err, failed)
			case a.json:
				if list == nil {
					list = []loader.Deployment{}
				}
				return a.printJSON(list)
			case len(list) == 0:
				return a.printf("the servers have no record of a deployment\n")
			}
			rows := [][]string{{"WHEN", "WHO", "NAMESPACE", "DIGEST", "CHANGED"}}
			for _, d := range list {
				rows = append(rows, []string{time.UnixMilli(d.AtMS).UTC().Format("2006-01-02 15:04:05"), d.Who, dash(d.Namespace), dash(d.Digest), changed(d)})
			}
			return a.write(table(rows))
		},
	}))
	a.namespaceFlag(cmd)
	return cmd
}

// changed describes what a deployment changed.
func changed(d loader.Deployment) string {
	text := strings.Join(d.Changed, ", ")
	if d.More > 0 {
		text += " and " + plural(d.More, "other")
	}
	switch {
	case d.Digest == "":
		text = "deleted: " + dash(text)
	case d.Back:
		text = "rollback: " + dash(text)
	}
	return dash(text)
}
