package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

func (a *app) deleteCommand() *cobra.Command {
	var o deployFlags
	var yes, all bool
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "delete",
		Short: "Delete the library from every primary",
		Long: `Delete the library from every primary, with its policies and what is kept for a rollback. Calls then return
"ERR Function not found". The keys stay until they expire. Each server keeps a small library that says that the
library was deleted, so that a server that comes back with an old one does not restore it. It names the policies and asks for confirmation, unless
--yes is given. It asks again before it deletes the policies of namespaces, which are those of other teams; in a script,
--yes needs --all-namespaces for that.

With --namespace it deletes the policies of that namespace and nothing else; "ratelimit rollback --namespace" brings
them back.

` + deployerHelp,
		Example: `  ratelimit delete --redis redis://127.0.0.1:6379
  ratelimit delete --namespace payments
  ratelimit delete --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, failed, err := a.policiesToDelete(cmd.Context())
			if err != nil || failed != nil {
				return cmp.Or(err, failed)
			}
			if err := a.confirmDelete(cmd.Context(), found, yes, all); err != nil {
				return err
			}
			report, failed, err := onFleet(cmd.Context(), a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) {
				return l.Delete(ctx, o.options())
			})
			if err != nil {
				return err
			}
			a.printReport(report, deleted)
			switch {
			case failed != nil || a.json:
				return failed
			case a.namespace != "" && report.Changed() > 0:
				return a.printf("\ndeleted the policies of %s from %s; bring them back with: %s\n", a.namespace, plural(report.Changed(), "server"), a.again("rollback"))
			}
			return a.printf("\ndeleted from %s\n", plural(report.Changed(), "server"))
		},
	}))
	a.namespaceFlag(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "with --yes, also delete the policies of all namespaces")
	o.replaceForeignFlag(cmd)
	o.waitFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	return cmd
}

func deleted(n loader.Node, _ text.Library) string {
	switch {
	case n.Err != nil:
		return "failed"
	case n.Changed:
		return "deleted"
	}
	return "had none"
}

// policiesToDelete returns the names of the policies on all servers that a.namespace owns, and of
// those in other namespaces if a.namespace is "". The names are sorted.
func (a *app) policiesToDelete(ctx context.Context) (names []string, failed, err error) {
	report, failed, err := onFleet(ctx, a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) { return l.Status(ctx, nil) })
	if partial, ok := errors.AsType[*loader.PartialError](failed); ok {
		partial.Op = "delete"
	}
	for _, n := range report.Nodes {
		for _, name := range n.Policies {
			if a.namespace == "" || (functions.Policy{Name: name}).Namespace() == a.namespace {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), failed, err
}

// confirmDelete asks whether to delete policies, whose names are in found. It returns nil if the
// user agrees, and if yes is set.
func (a *app) confirmDelete(ctx context.Context, found []string, yes, all bool) error {
	s, err := a.parseServers()
	if err != nil {
		return err
	}
	var own, others, namespaces []string
	for _, name := range found {
		if namespace := (functions.Policy{Name: name}).Namespace(); namespace == a.namespace {
			own = append(own, name)
		} else {
			others, namespaces = append(others, name), append(namespaces, namespace)
		}
	}
	namespaces = slices.Compact(namespaces)
	if yes {
		if len(others) > 0 && !all {
			return fmt.Errorf("%s also has the policies of the namespaces %s, and no rollback would bring them back; nothing was deleted; delete one namespace with --namespace, or all with --all-namespaces",
				s.Name, strings.Join(namespaces, ", "))
		}
		return nil
	}
	what := "the library " + functions.Name
	switch {
	case a.namespace != "":
		what = "the policies of the namespace " + a.namespace + " (" + some(own) + ")"
	case len(own) > 0:
		what += " and its policies (" + some(own) + ")"
	}
	calls := "Calls"
	if a.namespace != "" {
		calls = "Calls that name them"
	}
	answers := bufio.NewReader(a.stdin)
	if err := a.confirm(ctx, answers, fmt.Sprintf("delete %s from %s? %s fail from then on. Type yes: ", what, s.Name, calls)); err != nil || len(others) == 0 {
		return err
	}
	return a.confirm(ctx, answers, fmt.Sprintf("this also deletes the policies of other teams, and no rollback brings them back: %s. Type yes again: ", some(others)))
}

// some returns the first ten names and how many more there are.
func some(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// confirm prints a question on stderr and returns nil only for a "yes" in answers.
func (a *app) confirm(ctx context.Context, answers *bufio.Reader, question string) error {
	if _, err := fmt.Fprint(a.stderr, printable.Line(question)); err != nil {
		return written(err)
	}
	answer, _ := interruptible(ctx, func() (string, error) { return answers.ReadString('\n') })
	refusal := "no answer; nothing was deleted; in a script, add --yes"
	switch {
	case strings.TrimSpace(answer) == "yes":
		return nil
	case answer != "":
		return errors.New("the answer is not yes; nothing was deleted")
	case ctx.Err() != nil:
		refusal = "interrupted; nothing was deleted"
	}
	if _, err := fmt.Fprintln(a.stderr); err != nil { // end the line of the question
		return written(err)
	}
	return errors.New(refusal)
}
