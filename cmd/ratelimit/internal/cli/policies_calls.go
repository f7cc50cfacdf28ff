package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/policycalls"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

func (a *app) policiesCommand() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "policies",
		Short: "Show the deployed policies, and how many calls each allowed and denied",
		Long: `Show the library and the deployed policies of a server, or of all primaries of a cluster, and how many takes and leases
to acquire each policy allowed and denied. Each primary counts since its library was loaded, so a deployment and a restart begin at 0;
the table has the sums. With --watch it repeats, and shows the calls a second since the pass before: in a terminal, q
ends it; elsewhere each pass is a table, or with --json a line.

A call counts once for each policy that it names, and is denied only for the policies that denied it. For a shadow
policy, DENIED are allowed calls that it would have denied. The calls on the keys of a canary are in its own row.
Rows of classes, with the percentage that each leaves to others, and of guaranteed and borrowed calls count the same calls again.
Decisions that a client makes by itself, from a batch or a remembered denial, do not reach a server, so they are not
counted.

It changes nothing. The user needs the rights of "ratelimit acl peek", and +function|list, or else the table has no
limits.`,
		Example: `  ratelimit policies
  ratelimit policies --watch --interval 10s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.policyCalls(cmd.Context(), watch, interval)
		},
	}))
	cmd.Flags().BoolVar(&watch, "watch", false, "repeat until interrupted")
	spanVar(cmd, &interval, "interval", 2*time.Second, "with --watch, time between two passes")
	cmd.AddCommand(a.schemaCommand())
	return cmd
}

func (a *app) policyCalls(ctx context.Context, watch bool, interval time.Duration) error {
	rdb, s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	reader := policycalls.Reader{Timeout: s.Options.ReadTimeout}
	if !watch {
		look := a.lookAtPolicies(ctx, &reader, rdb, s)
		a.printPolicyCalls(look)
		return look.err
	}
	if a.look().moving && !a.json {
		return a.policyCallsLive(ctx, &reader, rdb, s, interval)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	first := true
	a.eachLookAtPolicies(ctx, &reader, rdb, s, interval, func(look policyLook) {
		if !first && !a.json {
			a.printf("\n")
		}
		first = false
		if a.printPolicyCalls(look) != nil {
			stop()
		} else if look.err != nil {
			a.report(look.err)
		}
	})
	return nil
}

// policyLook is one reading of the policies of all servers.
type policyLook struct {
	fleet policycalls.Fleet
	err   error  // reworded for users of the command
	fault string // the text of err
	table string // for display; "" if no server replied
}

func (a *app) lookAtPolicies(ctx context.Context, reader *policycalls.Reader, rdb redis.UniversalClient, s servers) policyLook {
	fleet, err := reader.Read(ctx, rdb)
	look := policyLook{fleet: fleet, err: a.faults(s, err, "+fcall_ro|ratelimit_info")}
	if err != nil && look.err == nil {
		look.err = errors.New("interrupted before every server answered")
	}
	if look.err != nil {
		look.fault = look.err.Error()
	}
	for i, addr := range fleet.Uncounted {
		fleet.Uncounted[i] = s.nodeName(addr)
	}
	if fleet.Replied > 0 {
		look.table = a.policyTable(fleet)
	}
	return look
}

// eachLookAtPolicies calls show with a new reading at once, and again after each interval, until
// ctx is done.
func (a *app) eachLookAtPolicies(ctx context.Context, reader *policycalls.Reader, rdb redis.UniversalClient, s servers, interval time.Duration, show func(policyLook)) {
	for ctx.Err() == nil {
		look := a.lookAtPolicies(ctx, reader, rdb, s)
		if ctx.Err() != nil {
			return
		}
		show(look)
		_ = sleep.For(ctx, interval)
	}
}

// policyCallsLive shows the calls for each policy on the full screen, and updates them once per
// interval. When the user quits, the last table stays on the screen.
func (a *app) policyCallsLive(ctx context.Context, reader *policycalls.Reader, rdb redis.UniversalClient, s servers, interval time.Duration) error {
	shown := &policyView{}
	err := a.live(ctx, shown, func(ctx context.Context, change func(func())) {
		a.eachLookAtPolicies(ctx, reader, rdb, s, interval, func(look policyLook) { change(func() { shown.show(look) }) })
	})
	if err != nil {
		return err
	}
	a.printPolicyCalls(shown.last)
	return shown.last.err
}

type policyView struct{ last policyLook }

func (p *policyView) show(look policyLook) {
	look.table = cmp.Or(look.table, p.last.table) // keep showing the last result
	p.last = look
}

func (p *policyView) press(byte) {}

func (p *policyView) lines(l look) []string {
	var lines []string
	if p.last.table != "" {
		lines = strings.Split(strings.TrimSuffix(p.last.table, "\n"), "\n")
	}
	return l.screen("ratelimit policies", "", p.last.fault, lines)
}

type policiesReport struct {
	Complete  bool                  `json:"complete"`  // false if a server did not reply
	Servers   int                   `json:"servers"`   // primaries that replied
	Uncounted []string              `json:"uncounted"` // primaries whose library is too old to count calls
	Libraries []policycalls.Library `json:"libraries"`
	Policies  []policycalls.Policy  `json:"policies"`
	Error     string                `json:"error,omitempty"`
}

func newPoliciesReport(look policyLook) policiesReport {
	return policiesReport{
		Complete: look.err == nil, Servers: look.fleet.Replied, Uncounted: append([]string{}, look.fleet.Uncounted...),
		Libraries: append([]policycalls.Library{}, look.fleet.Libraries...), Policies: append([]policycalls.Policy{}, look.fleet.Policies...), Error: look.fault,
	}
}

// printPolicyCalls prints a reading as a table, or as a line of JSON with --json.
func (a *app) printPolicyCalls(look policyLook) error {
	if a.json {
		return a.printJSONLine(newPoliciesReport(look))
	}
	return a.write(look.table)
}

// libraryLines returns a line for each library that the servers run.
func libraryLines(fleet policycalls.Fleet) string {
	var text strings.Builder
	for _, l := range fleet.Libraries {
		where := ""
		if len(fleet.Libraries) > 1 {
			where = ", on " + plural(l.Servers, "server")
		}
		text.WriteString(printable.Line(fmt.Sprintf("%s %s, build %s, contract %d%s", functions.Name, l.Version, l.BuildID, l.Contract, where)) + "\n")
	}
	return text.String()
}

func (a *app) policyTable(fleet policycalls.Fleet) string {
	if len(fleet.Policies) == 0 {
		return libraryLines(fleet) + "the library has no policies; write some (docs/policies.md), and deploy them with: " + a.again("deploy", "--policies FILE") + "\n"
	}
	rates := slices.ContainsFunc(fleet.Policies, func(p policycalls.Policy) bool { return p.PerSec != nil })
	rows := [][]string{{"POLICY", "KIND", "ALLOWED", "DENIED", "DENIED %", "ALLOWED/S", "DENIED/S", "LIMIT"}}
	for _, p := range fleet.Policies {
		row := policyRow(p.Name, kind("", p.Shadow), p.Limits, p.Shadow, p.Calls)
		if p.Penalty != "" {
			row[7] += " (penalty " + p.Penalty + ")"
		}
		rows = append(rows, row)
		if c := p.Canary; c != nil {
			rows = append(rows, policyRow(p.Name, kind("canary "+functions.Canary{Share: int(c.Share)}.Percent(), c.Shadow), c.Limits, c.Shadow, c.Calls))
		}
		rows = append(rows, shareRows(p)...)
	}
	for column := 2; column < 7; column++ {
		width := 0
		for _, row := range rows {
			width = max(width, textWidth(row[column]))
		}
		for _, row := range rows {
			row[column] = fmt.Sprintf("%*s", width, row[column])
		}
	}
	if !rates {
		for i, row := range rows {
			rows[i] = append(row[:5], row[7])
		}
	}
	text := libraryLines(fleet) + fmt.Sprintf("%s on %s; calls since each server loaded its library\n\n%s",
		countPolicies(len(fleet.Policies)), plural(fleet.Replied, "server"), table(rows))
	if len(fleet.Uncounted) > 0 {
		text += "\n" + printable.Line(fmt.Sprintf("note: the library is too old to count calls on %s; %s", strings.Join(fleet.Uncounted, ", "),
			a.expand("load a newer one with: $deploy", nil))) + "\n"
	}
	return text
}

// shareRows returns a row for each class of a policy, and rows for its guarantee and its pool.
func shareRows(p policycalls.Policy) (rows [][]string) {
	named := func(kind string, percent *int) string {
		if percent == nil {
			return kind
		}
		return fmt.Sprintf("%s %d%%", kind, *percent)
	}
	for _, c := range p.Classes {
		rows = append(rows, policyRow(p.Name, named("class "+c.Name, c.Percent), nil, p.Shadow, policycalls.Calls{Counted: true, Count: c.Count, PerSec: c.PerSec}))
	}
	pool := p.Pool
	if pool == nil || !p.Counted {
		return rows
	}
	guaranteed, borrowed := "-", "-"
	if pool.PerSec != nil {
		guaranteed, borrowed = perSecond(pool.PerSec.Guaranteed), perSecond(pool.PerSec.Borrowed)
	}
	return append(rows, []string{"@" + p.Name, "guaranteed", grouped(pool.Guaranteed), "-", "-", guaranteed, "-", "-"},
		[]string{"@" + p.Name, named("borrowed, floor", pool.Floor), grouped(pool.Borrowed), "-", "-", borrowed, "-", "-"})
}

// kind describes a policy or a canary. own is "" for a policy. For a canary it is a string such as
// "canary 5%".
func kind(own string, shadow bool) string {
	switch {
	case own == "" && shadow:
		return "shadow"
	case own == "":
		return "enforced"
	case shadow:
		return own + ", shadow"
	}
	return own
}

func policyRow(name, kind string, limits []string, shadow bool, calls policycalls.Calls) []string {
	row := []string{"@" + name, kind, "-", "-", "-", "-", "-", dash(strings.Join(limits, " · "))}
	if calls.Counted {
		row[2], row[3] = grouped(calls.Allowed), grouped(calls.Denied)
		row[4] = deniedPercent(calls.Count)
	}
	if calls.PerSec != nil {
		row[5], row[6] = perSecond(calls.PerSec.Allowed), perSecond(calls.PerSec.Denied)
	}
	for _, column := range []int{3, 4, 6} {
		if shadow && calls.Denied > 0 && row[column] != "-" {
			row[column] = "would " + row[column]
		}
	}
	return row
}

func deniedPercent(calls usage.Count) string {
	percent := 100 * float64(calls.Denied) / float64(calls.Allowed+calls.Denied)
	switch {
	case calls == usage.Count{}:
		return "-"
	case calls.Denied > 0 && percent < 0.05:
		return "<0.1"
	}
	return strconv.FormatFloat(percent, 'f', 1, 64)
}
