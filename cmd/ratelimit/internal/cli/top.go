package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
)

const (
	mostRows  = 1000 // limits the memory use of top, because keys may be long
	topRights = "+scan +hmget +time +ping"
)

type topFlags struct {
	by       string
	limit    int
	match    string
	watch    bool
	interval time.Duration
}

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "top",
		Short: "Show the usage keys with the most decisions",
		Long: `Show the usage keys (take --usage-key, TRACK, or a policy with track) of a server, or of all primaries of a cluster,
by the number of decisions or in another order. A key that is not used for a day is deleted. A rate is that of the
last whole minute; with --watch, that since the pass before.

It changes nothing. It scans all keys with SCAN, in small steps, and uses at most 5 % of a server's time; a million
keys take some minutes. If you interrupt it, it shows what it has found so far. With --watch it repeats: in a
terminal, b changes the order and q ends it; elsewhere each pass is a table, or with --json a line.

The user needs ` + topRights + `, and +dbsize for the progress.`,
		Example: `  ratelimit top --by denied
  ratelimit top --match 'user:*' --watch`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(usage.Orders, usage.Order(f.by)):
				return fmt.Errorf("--by %q is not an order; give one of %s", f.by, orders())
			case f.limit < 1 || f.limit > mostRows:
				return fmt.Errorf("--limit %d is out of range; give one from 1 to %d", f.limit, mostRows)
			}
			return a.top(cmd.Context(), f)
		},
	}))
	cmd.Flags().StringVar(&f.by, "by", string(usage.Total), "order: "+orders()+" (last: used last; newest, oldest: by the first use)")
	wholeVar(cmd, &f.limit, "limit", 10, fmt.Sprintf("how many keys to show, from 1 to %d", mostRows))
	cmd.Flags().StringVar(&f.match, "match", "*", "scan only the keys that match this pattern")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "repeat until interrupted")
	spanVar(cmd, &f.interval, "interval", 2*time.Second, "with --watch, time between two passes")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(strings.Split(orders(), ", "), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func orders() string {
	var names []string
	for _, order := range usage.Orders {
		names = append(names, string(order))
	}
	return strings.Join(names, ", ")
}

func (a *app) top(ctx context.Context, f topFlags) error {
	rdb, s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	switch {
	case f.watch && a.look().moving && !a.json:
		return a.topLive(ctx, rdb, s, f)
	case f.watch:
		return a.topWatch(ctx, rdb, s, f)
	}
	scan := usage.New(f.limit, f.match, usage.Order(f.by))
	err = scan.Run(ctx, rdb)
	p := pass{by: usage.Order(f.by), found: scan.Snapshot(), err: a.faults(s, err, topRights)}
	if ctx.Err() == nil || p.found.Tracked > 0 || a.json {
		a.printPass(p)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s", looked(p.found.Progress))
	}
	return p.err
}

// pass is a scan over all keys, with the result of the previous scan. The scan may still be
// running.
type pass struct {
	by     usage.Order
	found  usage.Snapshot
	before *usage.Snapshot
	err    error // reworded for users of the command
}

func (p pass) records() []usage.Record { return p.found.Top[p.by] }

// rate and rateOf return calls per second.
func (p pass) rate() usage.Rate                 { return p.found.Rate(p.before) }
func (p pass) rateOf(r usage.Record) usage.Rate { return p.found.RateOf(r, p.before) }

// topWatch prints every pass until the user interrupts the command, which is not an error. For an
// interrupted pass, topWatch prints what was found so far.
func (a *app) topWatch(ctx context.Context, rdb redis.UniversalClient, s servers, f topFlags) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	first := true
	a.topPasses(ctx, rdb, s, f, []usage.Order{usage.Order(f.by)}, nil, func(p pass) {
		if !first && !a.json {
			a.printf("\n")
		}
		first = false
		if a.printPass(p) != nil {
			stop()
		} else if p.err != nil && ctx.Err() == nil {
			a.report(p.err)
		}
	})
	return nil
}

// topReport is the output of top --json. Times are in ms since the epoch.
type topReport struct {
	Complete bool  `json:"complete"` // false if some keys were not examined
	Keys     int64 `json:"keys"`     // keys with usage
	Refused  int64 `json:"refused"`  // keys that the user may not read
	usage.Count
	Cost   int64      `json:"cost"`
	PerSec usage.Rate `json:"per_second"`
	Top    []topEntry `json:"top"`
	Error  string     `json:"error,omitempty"`
}

type topEntry struct {
	Key       string `json:"key"`
	KeyBase64 []byte `json:"key_base64,omitempty"` // if the key is not valid text
	usage.Entry
}

func newTopReport(p pass) topReport {
	report := topReport{
		Complete: p.found.Complete && p.err == nil, Keys: p.found.Tracked, Refused: p.found.Refused, Count: p.found.Sum, Cost: p.found.Cost,
		PerSec: p.rate(), Top: []topEntry{},
	}
	if p.err != nil {
		report.Error = p.err.Error()
	}
	for _, r := range p.records() {
		entry := topEntry{Key: r.Key, Entry: p.found.Entry(r, p.before)}
		if !utf8.ValidString(r.Key) {
			entry.KeyBase64 = []byte(r.Key)
		}
		report.Top = append(report.Top, entry)
	}
	return report
}

// printPass prints a pass. Without --json, it prints nothing if the pass has only an error.
func (a *app) printPass(p pass) error {
	if a.json {
		return a.printJSONLine(newTopReport(p))
	}
	if p.found.Tracked == 0 && p.err != nil {
		return nil
	}
	l, width := a.look(), 0
	if a.terminal {
		width = l.width
	}
	return a.write(strings.Join(topLines(p, l, width), "\n") + "\n")
}
