package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

func (a *app) planCommand() *cobra.Command {
	var o deployFlags
	var diff bool
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "plan",
		Short: "Show what a deployment would change",
		Long: `Show what each server has, and which functions, policies and source files a deployment would add, remove or change. It
changes nothing, and does not need the right to load. For each changed policy it says what becomes of keys in use: they
carry over what they have used, start anew, or are denied for a time.

Exit codes: 0 nothing to change · 1 error, or a server would refuse the build · 2 there is something to change.`,
		Example: `  ratelimit plan --redis redis://127.0.0.1:6379 --policies policies.yaml
  ratelimit plan --diff`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.reads = true
			build, err := a.wanted()
			if err != nil {
				return err
			}
			plan, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
				return l.Plan(ctx, build, o.options())
			})
			if err != nil {
				return err
			}
			a.printPlan(plan, diff)
			if failed != nil {
				return failed
			}
			if err := a.printFindings(); err != nil {
				return err
			}
			return differs(!plan.InStep())
		},
	}))
	cmd.Flags().BoolVar(&diff, "diff", false, "also show how the text would change, line by line")
	a.libraryFlags(cmd)
	a.namespaceFlag(cmd)
	o.flags(cmd)
	return cmd
}

// printFindings prints what verify says about the policies, because some of it is about servers, such as guarantees that add
// up to more than their pool.
func (a *app) printFindings() error {
	if len(a.policies) == 0 || a.json {
		return nil
	}
	report, err := checkPolicies(a.policies...)
	for _, finding := range slices.Concat(report.Problems, report.Notes) {
		a.printf("\nnote: %s\n", finding)
	}
	return err
}

func (a *app) printPlan(plan loader.Report, diff bool) {
	if a.json {
		a.printJSON(a.planned(plan))
		return
	}
	touched := slices.DeleteFunc(slices.Clone(plan.Nodes), func(n loader.Node) bool {
		return action(n) == "nothing" || n.Err != nil && len(n.Changes) == 0 && n.Diff == ""
	})
	if len(plan.Nodes) == 1 && plan.Nodes[0].Err != nil && len(touched) == 0 {
		return // the error already names the node
	}
	rows := [][]string{{"NODE", "ROLE", "SERVER", "LIBRARY", "PLAN"}}
	for _, n := range plan.Nodes {
		rows = append(rows, nodeRow(n, inWords(n, plan.Wanted)))
	}
	a.write(table(rows))
	a.printNotes(plan.Notes)
	a.printChanges(touched, plan.Wanted, diff)
	if len(touched) > 0 {
		a.printNamespaces(plan.Nodes)
	}
	if plan.InStep() {
		a.printf("\nnothing to change\n")
	}
}

// nodePlan is what a deployment would do on one node, as JSON shows it.
type nodePlan struct {
	Node   loader.Node `json:"node"`
	Action string      `json:"action"`
	Diff   string      `json:"diff,omitempty"`
}

// planned returns a plan as JSON shows it.
func (a *app) planned(plan loader.Report) any {
	nodes := []nodePlan{}
	for _, n := range plan.Nodes {
		does, diff := action(n), n.Diff
		n.Diff = ""
		a.explain(&n)
		nodes = append(nodes, nodePlan{n, does, diff})
	}
	plan.Notes = a.notes(plan.Notes)
	return struct {
		Empty bool `json:"empty"`
		loader.Report
		Nodes []nodePlan `json:"nodes"`
	}{plan.InStep(), plan, nodes}
}

// action returns what a deployment would do on a node.
func action(n loader.Node) string {
	switch {
	case n.Err != nil:
		return "refuse"
	case n.State == loader.Same:
		return "nothing"
	case n.State == loader.Absent:
		return "load"
	}
	return "replace"
}

func inWords(n loader.Node, wanted text.Library) string {
	switch does := action(n); {
	case does == "refuse":
		return "refused"
	case does == "load":
		return "load " + name(wanted)
	case does == "replace" && edited(n.Running, wanted):
		return "replace: same build id, other text"
	case does == "replace":
		return "replace by " + name(wanted)
	}
	return "nothing"
}

// printChanges shows what a deployment changes, or has changed, on nodes. Nodes that ran the same
// library share a list.
func (a *app) printChanges(nodes []loader.Node, wanted text.Library, diff bool) {
	var order []string
	groups := map[string][]loader.Node{}
	for _, n := range nodes {
		from := name(n.Before)
		if edited(n.Before, wanted) {
			from += ", other text,"
		}
		if groups[from] == nil {
			order = append(order, from)
		}
		groups[from] = append(groups[from], n)
	}
	for _, from := range order {
		a.printGroup(from, groups[from], wanted, diff)
	}
}

// printNamespaces prints a line if no server has policies of the namespace yet, because the name may
// be misspelled; and if policies without a namespace are new on servers that have namespaces,
// because --namespace may be missing.
func (a *app) printNamespaces(nodes []loader.Node) {
	var has, added []string
	for _, n := range nodes {
		for _, name := range n.Policies {
			if namespace := (functions.Policy{Name: name}).Namespace(); namespace != "" {
				has = append(has, namespace)
			}
		}
		for _, c := range n.Changes {
			if c.Kind == "policy" && c.What == "added" {
				added = append(added, c.Name)
			}
		}
	}
	slices.Sort(has)
	slices.Sort(added)
	has, added = slices.Compact(has), slices.Compact(added)
	switch {
	case a.back:
	case a.namespace == "" && len(has) > 0 && len(added) > 0:
		a.printf("\nthese servers have the namespaces %s, and the new policies %s have none; if a team owns them, use --namespace, or name it in the file\n", some(has), some(added))
	case a.namespace != "" && !slices.Contains(has, a.namespace):
		others := "no other"
		if len(has) > 0 {
			others = some(has)
		}
		a.printf("\nthe namespace %s is new on these servers; they have %s\n", a.namespace, others)
	}
}

func (a *app) printGroup(from string, nodes []loader.Node, wanted text.Library, diff bool) {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	what := from + " becomes " + name(wanted)
	if from == "-" {
		what = name(wanted) + " is new"
	}
	a.printf("\n%s, on %s:\n", what, strings.Join(addrs, ", "))
	changes := nodes[0].Changes
	if len(changes) == 0 {
		a.printf("  no function, policy or source file\n")
	}
	signs := map[string]string{"added": "+", "removed": "-", "changed": "~"}
	for _, c := range changes {
		if c.Kind == "canary" {
			c.Kind = "canary of"
		}
		text := fmt.Sprintf("  %s %s %s", signs[c.What], c.Kind, c.Name)
		switch {
		case c.Old != "" && c.New != "":
			text += ": " + c.Old + " becomes " + c.New
		case c.Old+c.New != "":
			text += ": " + c.Old + c.New
		}
		a.printf("%s\n", text)
		if c.Keys != "" {
			a.printf("      keys in use: %s\n", c.Keys)
		}
	}
	if diff && nodes[0].Diff != "" {
		a.printLines("\n" + nodes[0].Diff)
	}
}
