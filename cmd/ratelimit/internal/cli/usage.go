package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
)

func (a *app) usageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage USAGE_KEY",
		Short: "Show what was counted under a usage key",
		Long: `Show how many decisions were counted under a usage key (take --usage-key, TRACK, or a policy with track), and when,
minute by minute for the last hour in which there was one. A key that is not used for a day is deleted.`,
		Example: `  ratelimit usage user:42:usage`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongUse("ratelimit usage user:42:usage", "usage takes one key, not %s", plural(int64(len(args)), "argument"))
			}
			if args[0] == "" {
				return emptyKey("ratelimit usage user:42:usage", 1, 1)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var usage client.Usage
			err := a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				usage, err = c.Usage(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			return a.printUsage(usage)
		},
	}
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

// usageReport is what usage --json prints: the fields of the reply under the contract's names, with
// times in ms since the epoch.
type usageReport struct {
	Allowed    int64         `json:"allowed"`
	Denied     int64         `json:"denied"`
	Cost       int64         `json:"cost"`
	FirstMS    int64         `json:"first_ms"` // 0: never
	LastMS     int64         `json:"last_ms"`
	IntervalMS int64         `json:"interval_ms"`
	Series     []usageMinute `json:"series"`
}

type usageMinute struct {
	StartMS int64 `json:"start_ms"`
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

func newUsageReport(u client.Usage) usageReport {
	report := usageReport{
		Allowed: u.Allowed, Denied: u.Denied, Cost: u.Cost, IntervalMS: u.Interval.Milliseconds(), Series: []usageMinute{},
	}
	if !u.First.IsZero() {
		report.FirstMS, report.LastMS = u.First.UnixMilli(), u.Last.UnixMilli()
	}
	for _, m := range u.Series {
		report.Series = append(report.Series, usageMinute{m.Start.UnixMilli(), m.Allowed, m.Denied})
	}
	return report
}

func (a *app) printUsage(u client.Usage) error {
	if a.json {
		return a.printJSON(newUsageReport(u))
	}
	if u.First.IsZero() {
		return a.printf("nothing was counted under this key, or not for a day\n")
	}
	if err := a.printf("%s allowed, %s denied, cost %s · from %s to %s UTC\n\n", grouped(u.Allowed), grouped(u.Denied), grouped(u.Cost),
		u.First.Format(time.DateTime), u.Last.Format(time.DateTime)); err != nil {
		return err
	}
	rows := [][]string{{"MINUTE", "ALLOWED", "DENIED", ""}}
	for i, bar := range usageBars(u.Series, a.look()) {
		m := u.Series[i]
		rows = append(rows, []string{m.Start.Format("2006-01-02 15:04"), grouped(m.Allowed), grouped(m.Denied), bar})
	}
	return table(a.stdout, rows)
}

// usageBars draws a bar for each minute: full characters for allowed calls, light ones for denied
// calls. The longest bar fills the room after the numbers.
func usageBars(series []client.UsageInterval, l look) []string {
	allowed, denied := "█", "░"
	if l.bars[1] == '1' { // no Unicode on this terminal
		allowed, denied = "#", "."
	}
	const before = len("2006-01-02 15:04  ALLOWED  DENIED  ")
	width, most := int64(max(0, min(30, l.width-before-1))), int64(1)
	for _, m := range series {
		most = max(most, m.Allowed+m.Denied)
	}
	var bars []string
	for _, m := range series {
		long := func(n int64) int { return int((float64(n)*float64(width) + float64(most) - 1) / float64(most)) } // anything above 0 is visible
		bars = append(bars, strings.Repeat(allowed, long(m.Allowed))+strings.Repeat(denied, long(m.Denied)))
	}
	return bars
}

func (a *app) infoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show the library and the policies of a server",
		Long: `Show which library and which policies a server holds, and how many calls each shadow policy has let through that it
would have denied: since the library was loaded, on that server. In a cluster one node replies; status asks them all.`,
		Example: `  ratelimit info --redis redis://127.0.0.1:6379`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var info client.Info
			err := a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				info, err = c.Info(ctx)
				return err
			})
			if err != nil {
				return err
			}
			return a.printInfo(info)
		},
	}
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

// infoReport is what info --json prints, under the contract's names.
type infoReport struct {
	Version      string           `json:"version"`
	Contract     int64            `json:"contract"`
	BuildID      string           `json:"build_id"`
	Policies     []string         `json:"policies"`
	ShadowDenied map[string]int64 `json:"shadow_denied"`
}

func (a *app) printInfo(info client.Info) error {
	if a.json {
		report := infoReport(info)
		if report.Policies == nil {
			report.Policies = []string{}
		}
		return a.printJSON(report)
	}
	if err := a.printf("ratelimit %s, build %s, contract %d, %s\n",
		info.Version, info.BuildID, info.Contract, countPolicies(len(info.Policies))); err != nil {
		return err
	}
	if len(info.Policies) == 0 {
		return nil
	}
	rows := [][]string{{"POLICY", "SHADOW"}}
	for _, name := range info.Policies {
		shadow := ""
		if n, found := info.ShadowDenied[name]; found {
			shadow = "would have denied " + grouped(n)
		}
		rows = append(rows, []string{"@" + name, shadow})
	}
	if err := a.printf("\n"); err != nil {
		return err
	}
	return table(a.stdout, rows)
}
