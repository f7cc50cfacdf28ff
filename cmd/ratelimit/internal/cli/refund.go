package cli

import (
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
)

func (a *app) refundCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refund KEY LIMIT [KEY LIMIT ...] | refund --policy NAME KEY [KEY ...]",
		Short: "Give back what was taken, up to full",
		Long: `Give back what take has counted: on every key, or on none if one is blocked. A key never exceeds its limit.
Limits, keys and costs are those of the take; a policy that counts usage takes no usage key here. An --once-key must not be
that of the take.

Exit codes: 0 given back · 1 error · 2 a key is blocked.`,
		Example: `  ratelimit refund user:42 100/m
  ratelimit refund {acme}:ann 10/s {acme} 50/s --cost 1,5
  ratelimit refund {ann} 100/d --once-key {ann}:order7:back --once-ttl 10m`,
	}
	var options client.Request
	cmd = a.decisionCommand(cmd, &decide{ask: (*client.Client).Refund, words: words{"given back", "blocked, not given back", ""}, options: &options})
	return onceFlags(cmd, &options)
}
