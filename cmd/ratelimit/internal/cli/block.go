package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"

	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

func (a *app) blockCommand() *cobra.Command {
	var span, most, forget time.Duration
	var extend bool
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "block KEY [KEY ...] --for TIME",
		Short: "Deny keys for a time, regardless of their limits",
		Long: `Deny every call on keys for a time from now, regardless of their limits. Meanwhile the limits refill. A second block
replaces the first; with --extend, a block that ends later stays as it is. With --max and --forget, each block of a key
is twice as long as the last, up to --max, until --forget has passed since its end; a blocked key stays as it is. In a
cluster, all keys of a call need the same hash tag, such as {user:42}.`,
		Example: `  ratelimit block user:42 --for 1h`,
		Args:    needsKey,
		RunE: func(cmd *cobra.Command, keys []string) error {
			switch {
			case !cmd.Flags().Changed("for"):
				return wrongUse(example(cmd), "block needs --for, the time for which to block")
			case span <= 0:
				return fmt.Errorf("--for %v is not above 0; give one such as 1h, or remove blocks with: %s", span, a.again("unblock"))
			case cmd.Flags().Changed("max") && most < span:
				return fmt.Errorf("--max %v is below --for %v; the longest block is at least the first", most, span)
			case cmd.Flags().Changed("forget") && forget <= 0:
				return fmt.Errorf("--forget %v is not above 0; give one such as 1d", forget)
			}
			_, err := ask(cmd.Context(), a, func(ctx context.Context, c *client.Client) (any, error) {
				if extend || most > 0 || forget > 0 {
					return nil, c.Block(ctx, client.Block{For: span, Extend: extend, Max: most, Forget: forget}, keys...)
				}
				return nil, c.Block(ctx, client.Block{For: span}, keys...)
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(replyjson.Blocked{Blocked: len(keys), ForMS: span.Milliseconds()}) // a spanValue is a whole number of ms
			}
			least, stays := "", ""
			if extend || most > 0 {
				least = "at least "
			}
			if most > 0 {
				stays = ", or until an earlier block ends" // a blocked key stays as it is
			}
			return a.printf("blocked %s for %s%s%s\n", plural(len(keys), "key"), least, human(span), stays)
		},
	}))
	spanVar(cmd, &span, "for", 0, "duration of the block, such as 90s, 1h30m or 2d")
	spanVar(cmd, &most, "max", 0, "longest block, with --forget: each block is twice as long as the last")
	spanVar(cmd, &forget, "forget", 0, "with --max: how long after its end a block is remembered, such as 1d")
	cmd.MarkFlagsRequiredTogether("max", "forget")
	cmd.Flags().BoolVar(&extend, "extend", false, "do not shorten a block that ends later")
	cmd.MarkFlagsMutuallyExclusive("extend", "max")
	return cmd
}

func (a *app) unblockCommand() *cobra.Command {
	return a.keysCommand(&cobra.Command{
		Use:   "unblock KEY [KEY ...]",
		Short: "Remove blocks",
		Long: `Remove the blocks of keys, and print how many of them were blocked. What was counted before still counts. In a
cluster, all keys of a call need the same hash tag, such as {user:42}.`,
		Example: `  ratelimit unblock user:42`,
	}, keysChange{
		change: (*client.Client).Unblock, verb: "unblocked", unchanged: "nothing to lift: no key was blocked",
		report: func(n int64, of int) any { return replyjson.Unblocked{Unblocked: n, Keys: of} },
	})
}
