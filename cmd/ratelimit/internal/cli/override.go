package cli

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/reply"
)

// rate matches an argument that begins like a limit. A key rarely does.
var rate = regexp.MustCompile(`^([a-z_]+ +)?[0-9]+(/[0-9]*(ms|s|m|h|d|w|mo|y)\b| +lease=)`)

func (a *app) overrideCommand() *cobra.Command {
	var span time.Duration
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "override KEY [KEY ...] LIMIT --for TIME",
		Short: "Put another limit on keys for a time",
		Long: `Put another limit on keys for a time from now. Meanwhile every decision on these keys goes by LIMIT, whatever limit
or policy the caller names. What was counted before still counts. A second override replaces the first. Blocks stay.
LIMIT is one argument, such as 1000/m or "gcra 10/s burst=20, 5000/h" (at most 5 rates), or "concurrency 9 lease=30s"
for the key of leases. It cannot be a policy. In a cluster, all keys of a call need the same hash tag, such as
{user:42}.

"ratelimit override-end" ends overrides, and "ratelimit overrides" lists them.`,
		Example: `  ratelimit override user:42 1000/m --for 30d
  ratelimit override {acme} {acme}:reports "10/s, 5000/h" --for 12h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
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
			keys, limit := args[:len(args)-1], args[len(args)-1]
			switch {
			case !cmd.Flags().Changed("for"):
				return wrongUse(example(cmd), "override needs --for, the time for which the limit applies")
			case span <= 0:
				return fmt.Errorf("--for %v is not above 0; give one such as 30d, or end overrides with: %s", span, a.again("override-end"))
			}
			_, err := ask(cmd.Context(), a, func(ctx context.Context, c *client.Client) (any, error) {
				return nil, c.Override(ctx, client.Limit(limit), span, keys...)
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(reply.Overridden{Overridden: len(keys), Limit: limit, ForMS: span.Milliseconds()})
			}
			return a.printf("overrode %s with %s for %s\n", plural(len(keys), "key"), limit, human(span))
		},
	}))
	spanVar(cmd, &span, "for", 0, "duration of the override, such as 90s, 12h or 30d")
	return cmd
}

func (a *app) overrideEndCommand() *cobra.Command {
	return a.keysCommand(&cobra.Command{
		Use:   "override-end KEY [KEY ...]",
		Short: "End overrides",
		Long: `End the overrides of keys now, and print how many of them had one. The limits of the callers apply again. What was
counted under an override still counts. In a cluster, all keys of a call need the same hash tag, such as {user:42}.`,
		Example: `  ratelimit override-end user:42`,
	}, (*client.Client).EndOverride, "ended the overrides of", "nothing to end: no key had an override", func(n int64, of int) any {
		return reply.OverrideEnded{Ended: n, Keys: of}
	})
}
