package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// Parts that the commands for all servers share: deploy, plan, status, rollback, delete, doctor.

const deployerHelp = `The user needs +function|load +function|list +function|delete +function|stats +time +role +wait, in a cluster
+cluster|shards, and no keys; "ratelimit acl deployer" prints the line.`

// deployFlags allow what a deployment refuses by default.
type deployFlags struct {
	downgrade, removePolicies, foreign bool

	wait time.Duration
}

func (o *deployFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.downgrade, "allow-downgrade", false, "let this build take the place of a newer version, or of a higher contract")
	f.BoolVar(&o.removePolicies, "remove-policies", false, "also where servers run policies that this build does not have")
	o.foreignFlag(cmd)
}

func (o *deployFlags) foreignFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.foreign, "replace-foreign", false, "also where a library has the same name that is not ours")
}

func (o *deployFlags) waitFlag(cmd *cobra.Command) {
	spanVar(cmd, &o.wait, "wait", 0, "wait this long, such as 1m, for another deployment that is under way")
}

// allowed returns the options for the flags that deploy and plan share.
func (o *deployFlags) allowed() (deploy []loader.DeployOption, plan []loader.PlanOption) {
	allow := func(given bool, option interface {
		loader.DeployOption
		loader.PlanOption
	}) {
		if given {
			deploy, plan = append(deploy, option), append(plan, option)
		}
	}
	allow(o.downgrade, loader.AllowDowngrade())
	allow(o.removePolicies, loader.RemovePolicies())
	allow(o.foreign, loader.ReplaceForeign())
	return deploy, plan
}

// libraryFlags adds --policies and --library, from which a.wanted makes the build.
func (a *app) libraryFlags(cmd *cobra.Command) {
	a.policiesFlag(cmd)
	cmd.Flags().StringVar(&a.library, "library", "", "take the text in this file, which build -o wrote, in place of this program's own")
	cmd.MarkFlagsMutuallyExclusive("library", "policies") // the text holds its policies
}

// libraryAgain returns the flags that name the library again in a suggested command, and a note for
// the user. The note depends on the servers: if no library was named and they run policies, it says
// that the command needs the policies file; for deploy, it says why they would refuse the build,
// with the flag that allows it.
func (a *app) libraryAgain(command string, asks bool) (flags, note string) {
	switch {
	case a.library != "":
		flags = " " + shell.Line("--library", a.library)
	case a.policies != "":
		flags = " " + shell.Line("--policies", a.policies)
	}
	if !asks || flags != "" && command != "deploy" {
		return flags, ""
	}
	plan := a.planAgain()
	if flags == "" {
		switch n := policiesThere(plan); n {
		case 0:
		case 1:
			return " --policies FILE", " (FILE: your policies.yaml, since 1 policy runs there)"
		default:
			return " --policies FILE", " (FILE: your policies.yaml, since " + countPolicies(n) + " run there)"
		}
	}
	if command == "deploy" {
		for _, n := range plan.Nodes {
			if flag, refuses := overcome(n.Node.Err); refuses {
				return flags + flag, " (" + n.Node.Err.Error() + ")"
			}
		}
	}
	return flags, ""
}

// overcome returns the flag that allows a deployment despite err, or "" if there is none. refuses
// reports whether err is a server's refusal, which the user may not have seen yet.
func overcome(err error) (flag string, refuses bool) {
	for _, reason := range []struct {
		class error
		flag  string
	}{
		{loader.ErrForeign, " --replace-foreign"}, {loader.ErrDowngrade, " --allow-downgrade"}, {loader.ErrRemovesPolicies, " --remove-policies"},
		{loader.ErrReadOnly, ""}, {loader.ErrNameTaken, ""}, {loader.ErrOutOfMemory, ""}, {loader.ErrNotWritable, ""},
	} {
		if errors.Is(err, reason.class) {
			return reason.flag, true
		}
	}
	return "", false
}

// planAgain returns what a deployment of the named library would do, or an empty plan if that is
// unknown.
func (a *app) planAgain() loader.Plan {
	build, err := a.wanted()
	if err != nil {
		return loader.Plan{}
	}
	l, end, err := a.loader(a.ctx)
	if err != nil {
		return loader.Plan{}
	}
	defer end()
	plan, _ := l.Plan(a.ctx, build)
	return plan
}

// policiesThere returns the largest number of policies that plan removes from one server.
func policiesThere(plan loader.Plan) int {
	most := 0
	for _, n := range plan.Nodes {
		count := 0
		for _, c := range n.Node.Changes {
			if c.Kind == "policy" && c.What == "removed" {
				count++
			}
		}
		most = max(most, count)
	}
	return most
}

// wanted returns the build that the servers should run.
func (a *app) wanted() (loader.Build, error) {
	if a.library == "" {
		return a.build()
	}
	text, err := os.ReadFile(a.library)
	if err != nil {
		return nil, fmt.Errorf("cannot read the library: %w; name another file with --library", err)
	}
	return loader.Text(text), nil
}

// loader returns a Loader for the servers that the flags name, and a function that closes it.
func (a *app) loader(ctx context.Context, opts ...loader.Option) (*loader.Loader, func(), error) {
	s, err := a.parseServers()
	if err != nil {
		return nil, nil, err
	}
	if s.Cluster || s.Master != "" {
		var silent *unreachableError // the loader reports it for each server
		var refusal redis.Error      // from Sentinels
		if err := s.find(ctx); err != nil && (!errors.As(err, &silent) || errors.As(err, &refusal)) {
			return nil, nil, err
		}
	}
	rdb := s.open()
	l, err := loader.New(rdb, append(opts, loader.WithTimeout(s.Options.ReadTimeout))...)
	if err != nil {
		_ = rdb.Close()
		return nil, nil, err
	}
	return l, func() { _ = rdb.Close() }, nil
}

// load calls a function that returns a Report. If some nodes failed, load returns that error in
// failed, and the report lists it too. It returns any other error in err; then there is no report.
func (a *app) load(ctx context.Context, call func(context.Context, *loader.Loader) (loader.Report, error)) (report loader.Report, failed, err error) {
	l, end, err := a.loader(ctx)
	if err != nil {
		return report, nil, err
	}
	defer end()
	report, err = call(ctx, l)
	var partial *loader.PartialError
	if errors.As(err, &partial) {
		return report, err, nil
	}
	return report, nil, bare(err)
}

var goFunction = regexp.MustCompile(`^loader\.\w+: `)

// bare returns an error without the name of the Go function that it comes from.
func bare(err error) error {
	if err == nil || !goFunction.MatchString(err.Error()) {
		return err
	}
	return errors.New(goFunction.ReplaceAllString(err.Error(), ""))
}

// printReport prints what is known about each node.
func (a *app) printReport(report loader.Report, outcome func(loader.Node, loader.Library) string) error {
	if a.json {
		report.Nodes = slices.Clone(report.Nodes) // do not change the nodes of the returned error
		for i := range report.Nodes {
			a.explain(&report.Nodes[i])
		}
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
		rows = append(rows, nodeRow(n, outcome(n, report.Wanted)))
	}
	if err := table(a.stdout, rows); err != nil {
		return err
	}
	for _, note := range report.Notes {
		if err := a.printf("\nnote: %s\n", a.typable(note)); err != nil {
			return err
		}
	}
	return nil
}

func nodeRow(n loader.Node, outcome string) []string {
	return []string{n.Addr, dash(string(n.Role)), dash(n.Engine + " " + n.ServerVersion), running(n), outcome}
}

func dash(text string) string {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	return text
}

// running describes the library on a node.
func running(n loader.Node) string { return name(n.Running) }

// edited reports whether a library has the build ID of wanted but another text: somebody changed it
// by hand.
func edited(l, wanted loader.Library) bool {
	return l.BuildID != "" && l.BuildID == wanted.BuildID && l.Digest != wanted.Digest
}

func name(l loader.Library) string {
	switch {
	case l.Digest == "":
		return "-"
	case l.BuildID == "":
		return "unknown text " + l.Digest[:min(12, len(l.Digest))]
	}
	return fmt.Sprintf("%s build %s", l.Version, l.BuildID)
}

// refusals are the reasons for which a deployment does not change a node.
var refusals = []error{
	loader.ErrDowngrade, loader.ErrRemovesPolicies, loader.ErrForeign, loader.ErrNameTaken, loader.ErrReadOnly, loader.ErrOutOfMemory, loader.ErrNotWritable,
}

// loaded describes what a deployment did to a node.
func loaded(n loader.Node, _ loader.Library) string {
	switch {
	case n.Err != nil && !n.Changed && !n.PutBack && slices.ContainsFunc(refusals, func(class error) bool { return errors.Is(n.Err, class) }):
		return "refused"
	case n.Err != nil:
		return "failed"
	case n.PutBack:
		return "loaded and put back"
	case n.Changed && n.Replicas > 0 && n.Acked >= 0:
		return fmt.Sprintf("loaded; %d of %s confirmed it", n.Acked, plural(int64(n.Replicas), "replica"))
	case n.Changed:
		return "loaded"
	case n.State == loader.Same:
		return "had it already"
	}
	return "not touched"
}
