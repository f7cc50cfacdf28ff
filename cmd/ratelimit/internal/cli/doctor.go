package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/loader"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "doctor",
		Short: "Find problems of the servers, present and future",
		Long: `Check every primary and its replicas for what prevents decisions now (no functions, no library or one that does not
respond, no writes), and for what causes problems later: keys of limits that may be evicted, libraries that a restart
loses, clocks that differ, replicas that lag, rights that the user lacks, slots that no primary serves. Each finding
says what it means and what to do. It changes nothing.

In addition to the rights of a deployer it uses +info, +config|get, +fcall_ro|ratelimit_info and, in a cluster,
+cluster|info. It lists what it cannot check without them.

Exit codes: 0 no finding · 1 error · 2 findings.`,
		Example: `  ratelimit doctor --redis redis://127.0.0.1:6379`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, end, err := a.loader(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			d, err := l.Doctor(cmd.Context())
			if err != nil {
				return fmt.Errorf("interrupted before all servers were checked: %w", err)
			}
			for i := range d.Findings {
				d.Findings[i].Do = cmp.Or(a.hint(d.Findings[i].Err), d.Findings[i].Do)
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

func (a *app) printDiagnosis(d loader.Diagnosis) {
	silent := map[string]bool{} // servers that did not answer
	for _, f := range d.Findings {
		a.printf("%s, %s: %s\n  means: %s\n  do:    %s\n\n", f.Check, cmp.Or(f.Addr, "all"), f.Found, f.Means, f.Do)
		if f.Check == "reach" && f.Addr != "" && !slices.Contains(d.Nodes, f.Addr) {
			silent[f.Addr] = true
		}
	}
	for _, u := range d.Unchecked {
		a.printf("not checked: %s\n", u)
	}
	where, missed := " on "+plural(len(d.Nodes), "server"), ""
	if len(silent) > 0 {
		where = fmt.Sprintf("; %d of %s answered", len(d.Nodes), plural(len(d.Nodes)+len(silent), "server"))
	}
	if n := len(d.Unchecked); n > 0 {
		missed = fmt.Sprintf("; %d not checked", n)
	}
	a.printf("%s%s%s\n", plural(len(d.Findings), "finding"), where, missed)
}
