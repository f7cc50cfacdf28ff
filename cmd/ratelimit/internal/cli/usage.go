package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

func (a *app) usageCommand() *cobra.Command {
	return a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "usage USAGE_KEY",
		Short: "Show what was counted under a usage key",
		Long: `Show how many decisions were counted under a usage key (take --usage-key, TRACK, or a policy with track), and when,
minute by minute for the last hour with a decision. A key that is not used for a day is deleted.`,
		Example: `  ratelimit usage user:42:usage`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongUse(example(cmd), "usage takes one key, not %s", plural(len(args), "argument"))
			}
			if args[0] == "" {
				return emptyKey(example(cmd), 1, 1)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			usage, err := ask(cmd.Context(), a, func(ctx context.Context, c *client.Client) (client.Usage, error) { return c.Usage(ctx, args[0]) })
			if err != nil {
				return err
			}
			return a.printUsage(usage)
		},
	}))
}

func (a *app) printUsage(u client.Usage) error {
	if a.json {
		return a.printJSON(replyjson.OfUsage(u))
	}
	if u.First.IsZero() {
		return a.printf("nothing was counted under this key, or not for a day\n")
	}
	a.printf("%s allowed, %s denied, cost %s · from %s to %s UTC\n\n", grouped(u.Allowed), grouped(u.Denied), grouped(u.Cost),
		u.First.Format(time.DateTime), u.Last.Format(time.DateTime))
	rows := [][]string{{"MINUTE", "ALLOWED", "DENIED", ""}}
	for i, bar := range usageBars(u.Series, a.look()) {
		m := u.Series[i]
		rows = append(rows, []string{m.Start.Format("2006-01-02 15:04"), grouped(m.Allowed), grouped(m.Denied), bar})
	}
	return a.write(table(rows))
}

// usageBars draws a bar for each minute: full characters for allowed calls, light ones for denied
// calls. The longest bar fills the space after the numbers.
func usageBars(series []struct {
	Start           time.Time
	Allowed, Denied int64
}, l look) []string {
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
		long := func(n int64) int { return int((float64(n)*float64(width) + float64(most) - 1) / float64(most)) } // rounded up: anything above 0 is visible
		bars = append(bars, strings.Repeat(allowed, long(m.Allowed))+strings.Repeat(denied, long(m.Denied)))
	}
	return bars
}
