package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

// rate matches an argument that begins like a limit. A key rarely does.
var rate = regexp.MustCompile(`^([a-z_]+ +)?[0-9]+(/[0-9]*(ms|s|m|h|d|w|mo|y)\b| +lease=)`)

// forPrograms is the library's remedy for an override with the count 0.
const forPrograms = "to deny keys, use ratelimit_block"

const endExample = "ratelimit override user:42 --end"

func (a *app) overrideCommand() *cobra.Command {
	var span time.Duration
	var end bool
	var match string
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "override [KEY [KEY ...] LIMIT --for TIME | KEY [KEY ...] --end]",
		Short: "Put another limit on keys for a time, or list such keys and blocked keys",
		Long: `Put another limit on keys for a time from now. Meanwhile every decision on these keys goes by LIMIT, whatever limit
or policy the caller names. What was counted before still counts. A second override replaces the first. Blocks stay.
LIMIT is one argument, such as 1000/m or "gcra 10/s burst=20, 5000/h" (at most 5 rates), or "concurrency 9 lease=30s"
for the key of leases. It cannot be a policy. In a cluster, all keys of a call need the same hash tag, such as
{user:42}.

With --end, end the overrides of keys now, and print how many of them had one. The limits of the callers apply again.
What was counted under an override still counts.

Without keys, list the keys that have an override or a block, of a server or of all primaries of a cluster, sorted by
key: the limit of the override, the time until it ends, and the time until the block ends. That changes nothing.
It scans all keys with SCAN, in small steps, and uses at most 5 % of a server's time; a million keys take some minutes.
If you interrupt it, it shows what it has found so far. The user needs ` + overrideRights + `, and
+dbsize for the progress.`,
		Example: `  ratelimit override user:42 1000/m --for 30d
  ratelimit override {acme} {acme}:reports "10/s, 5000/h" --for 12h
  ` + endExample + `
  ratelimit override
  ratelimit override --match 'user:*' --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			timed, matched := cmd.Flags().Changed("for"), cmd.Flags().Changed("match")
			switch {
			case end && len(args) > 0 && rate.MatchString(args[len(args)-1]):
				return wrongUse(endExample, "--end takes keys, and %q is a limit", args[len(args)-1])
			case end:
				return needsKeyFor(cmd, endExample, args)
			case len(args) == 0 && !timed:
				return nil
			case matched:
				return wrongUse("ratelimit override --match 'user:*'", "--match is for the list, which takes no keys, not %s", plural(len(args), "argument"))
			case len(args) < 2:
				return wrongUse(example(cmd), "override needs a key and a limit, not %s", plural(len(args), "argument"))
			}
			keys := args[:len(args)-1]
			for _, key := range keys {
				if rate.MatchString(key) {
					return wrongUse(example(cmd), "%q is a limit, but not the last argument: all keys get one limit, which follows them", key)
				}
			}
			return needsKey(cmd, keys)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case end:
				return a.endOverrides(cmd.Context(), args)
			case len(args) == 0:
				return a.listOverrides(cmd.Context(), match)
			case !cmd.Flags().Changed("for"):
				return wrongUse(example(cmd), "override needs --for, the time for which the limit applies")
			case span <= 0:
				return fmt.Errorf("--for %v is not above 0; give one such as 30d, or end overrides with: %s", span, a.again("override", "KEY", "--end"))
			}
			return a.override(cmd.Context(), args[:len(args)-1], args[len(args)-1], span)
		},
	}))
	spanVar(cmd, &span, "for", 0, "duration of the override, such as 90s, 12h or 30d")
	cmd.Flags().BoolVar(&end, "end", false, "end the overrides of the keys")
	cmd.Flags().StringVar(&match, "match", "*", "list only the keys that match this `pattern`")
	cmd.MarkFlagsMutuallyExclusive("for", "end", "match")
	return cmd
}

func (a *app) override(ctx context.Context, keys []string, limit string, span time.Duration) error {
	_, err := ask(ctx, a, func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.Override(ctx, client.Limit(limit), span, keys...)
	})
	if err != nil && strings.Contains(err.Error(), forPrograms) {
		return errors.New(strings.Replace(err.Error(), forPrograms, "to deny keys: "+a.again("block", "KEY", "--for", "TIME"), 1))
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(replyjson.Overridden{Overridden: len(keys), Limit: limit, ForMS: span.Milliseconds()})
	}
	return a.printf("overrode %s with %s for %s\n", plural(len(keys), "key"), limit, human(span))
}

func (a *app) endOverrides(ctx context.Context, keys []string) error {
	return a.changeKeys(ctx, keys, keysChange{
		change: (*client.Client).EndOverride, verb: "ended the overrides of", unchanged: "nothing to end: no key had an override",
		report: func(n int64, of int) any { return replyjson.OverrideEnded{Ended: n, Keys: of} },
	})
}
