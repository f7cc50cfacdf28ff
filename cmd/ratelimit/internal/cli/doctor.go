package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/loader/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "doctor",
		Short: "Find problems of the servers, present and future",
		Long: `Check every primary and its replicas for what prevents decisions now (no functions, no library or one that does not
respond, no writes), and for what causes problems later: keys of limits that may be evicted, libraries that a restart
loses, clocks that differ, replicas that lag or do not answer, rights that the user lacks, slots that no primary
serves. The worst finding comes first. Each says on which servers it is, what it means and what to do. It changes
nothing.

In addition to the rights of a deployer it uses +info, +config|get, +fcall_ro|ratelimit_info and, in a cluster,
+cluster|info. Managed servers refuse some of these: one line lists what it could not check.

Exit codes: 0 no finding · 1 error · 2 findings.`,
		Example: `  ratelimit doctor --redis redis://127.0.0.1:6379`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rdb, s, err := a.fleet(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = rdb.Close() }()
			d, err := doctor.Examine(cmd.Context(), rdb, s.Options.ReadTimeout, nil)
			if err != nil {
				return fmt.Errorf("interrupted before all servers were checked: %w", err)
			}
			a.examines = true
			for i := range d.Findings {
				f := &d.Findings[i]
				hint := a.hint(f.Err)
				if len(f.Addrs) > 1 && strings.Contains(hint, f.Addrs[0]) {
					hint += "; the same on the others"
				}
				f.Do = cmp.Or(hint, f.Do)
			}
			if a.json {
				a.printJSON(d)
			} else {
				a.printDiagnosis(d)
			}
			return differs(len(d.Findings) > 0)
		},
	}))
}

func (a *app) printDiagnosis(d doctor.Diagnosis) {
	silent := map[string]bool{} // servers that did not answer
	for _, f := range d.Findings {
		on := ""
		if len(f.Addrs) > 0 {
			on = "  on:    " + serverList(f.Addrs, d.Nodes) + "\n"
		}
		a.printf("%s: %s\n", f.Check, f.Found)
		a.printLines(on)
		a.printf("  means: %s\n  do:    %s\n\n", f.Means, f.Do)
		for _, addr := range f.Addrs {
			if !slices.Contains(d.Nodes, addr) {
				silent[addr] = true
			}
		}
	}
	var missed []string
	for _, u := range d.Unchecked {
		missed = append(missed, fmt.Sprintf("%s on %s (%s)", u.What, serverList(u.Addrs, d.Nodes), u.Why))
	}
	if len(missed) > 0 {
		a.printf("not checked: %s\n", strings.Join(missed, "; "))
	}
	where := " on " + plural(len(d.Nodes), "server")
	switch {
	case len(d.Nodes) == 0:
		where = "; no server could be examined"
	case len(silent) > 0:
		where = fmt.Sprintf("; %d of %s could be examined", len(d.Nodes), plural(len(d.Nodes)+len(silent), "server"))
	}
	rest := ""
	if len(missed) > 0 {
		rest = "; not everything was checked"
	}
	a.printf("%s%s%s\n", plural(len(d.Findings), "finding"), where, rest)
}

// serverList lists addresses in one line. If addrs contains all servers, and there are more than
// three, it returns only their number.
func serverList(addrs, all []string) string {
	if len(addrs) > 3 && len(addrs) == len(all) {
		return "all " + plural(len(addrs), "server")
	}
	return strings.Join(addrs, ", ")
}
