package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) planCommand() *cobra.Command {
	var o deployFlags
	var diff bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a deployment would change",
		Long: `Show what each server has, and which functions, policies and source files a deployment would add, remove or change. It
changes nothing, and does not need the right to load.

Exit codes: 0 nothing to change · 1 error, or a server would refuse the build · 2 there is something to change.`,
		Example: `  ratelimit plan --redis redis://127.0.0.1:6379 --policies policies.yaml
  ratelimit plan --diff`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, err := a.wanted()
			if err != nil {
				return err
			}
			l, end, err := a.loader(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			_, options := o.allowed()
			plan, failed := l.Plan(cmd.Context(), build, options...)
			var partial *loader.PartialError
			if failed != nil && !errors.As(failed, &partial) {
				return failed
			}
			if err := a.printPlan(plan, diff); err != nil || failed != nil {
				return errors.Join(err, failed)
			}
			if !plan.Empty() {
				return exitCode(exitDiffers)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "also show how the text would change, line by line")
	a.libraryFlags(cmd)
	o.flags(cmd)
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

func (a *app) printPlan(plan loader.Plan, diff bool) error {
	if a.json {
		plan.Nodes = slices.Clone(plan.Nodes)
		for i := range plan.Nodes {
			a.explain(&plan.Nodes[i].Node)
		}
		return a.printJSON(struct {
			Empty bool `json:"empty"`
			loader.Plan
		}{plan.Empty(), plan})
	}
	if len(plan.Nodes) == 1 && plan.Nodes[0].Node.Err != nil {
		return nil // the error says it all
	}
	rows := [][]string{{"NODE", "ROLE", "SERVER", "LIBRARY", "PLAN"}}
	for _, n := range plan.Nodes {
		rows = append(rows, nodeRow(n.Node, planned(n, plan.Wanted)))
	}
	if err := table(a.stdout, rows); err != nil {
		return err
	}
	touched := slices.DeleteFunc(slices.Clone(plan.Nodes), func(n loader.NodePlan) bool {
		return n.Action != loader.Load && n.Action != loader.Replace
	})
	if err := a.printChanges(touched, plan.Wanted, diff); err != nil {
		return err
	}
	if plan.Empty() {
		return a.printf("\nnothing to change\n")
	}
	return nil
}

func planned(n loader.NodePlan, wanted loader.Library) string {
	switch n.Action {
	case loader.Nothing:
		return "nothing"
	case loader.Load:
		return "load " + name(wanted)
	case loader.Replace:
		if edited(n.Node.Running, wanted) {
			return "replace: same build id, other text"
		}
		return "replace by " + name(wanted)
	}
	return "refused"
}

// printChanges shows what a deployment changes, or has changed, on nodes. Nodes that ran the same
// library share a list.
func (a *app) printChanges(nodes []loader.NodePlan, wanted loader.Library, diff bool) error {
	var order []string
	groups := map[string][]loader.NodePlan{}
	for _, n := range nodes {
		from := name(n.Node.Before)
		switch {
		case from == "-":
			from = "nothing"
		case edited(n.Node.Before, wanted):
			from += ", other text,"
		}
		if groups[from] == nil {
			order = append(order, from)
		}
		groups[from] = append(groups[from], n)
	}
	for _, from := range order {
		if err := a.printGroup(from, groups[from], wanted, diff); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printGroup(from string, nodes []loader.NodePlan, wanted loader.Library, diff bool) error {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Node.Addr)
	}
	if err := a.printf("\n%s, on %s:\n", from+" becomes "+name(wanted), strings.Join(addrs, ", ")); err != nil {
		return err
	}
	changes := nodes[0].Node.Changes
	if len(changes) == 0 {
		if err := a.printf("  no function, policy or source file\n"); err != nil {
			return err
		}
	}
	signs := map[string]string{"added": "+", "removed": "-", "changed": "~"}
	for _, c := range changes {
		text := fmt.Sprintf("  %s %s %s", signs[c.What], c.Kind, c.Name)
		switch {
		case c.Old != "" && c.New != "":
			text += ": " + c.Old + " becomes " + c.New
		case c.Old+c.New != "":
			text += ": " + c.Old + c.New
		}
		if err := a.printf("%s\n", text); err != nil {
			return err
		}
	}
	if diff && nodes[0].Diff != "" {
		return a.printLines("\n" + nodes[0].Diff)
	}
	return nil
}
