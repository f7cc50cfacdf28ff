package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/reply"
)

func (a *app) resetCommand() *cobra.Command {
	return a.keysCommand(&cobra.Command{
		Use:   "reset KEY [KEY ...]",
		Short: "Delete what was counted for keys",
		Long: `Delete what was counted for keys, so that their limits are full again, and print how many of them had counts. In a
cluster, all keys of a call need the same hash tag, such as {user:42}.`,
		Example: `  ratelimit reset user:42`,
	}, (*client.Client).Reset, "forgot", "nothing to forget: no key held anything", func(n int64, of int) any {
		return reply.Reset{Reset: n, Keys: of}
	})
}

// keysCommand makes cmd change the keys in its arguments. change returns the number of keys that it
// changed, and report returns the output of --json. Without --json, the command prints the text in
// unchanged if no key changed. Otherwise, its output begins with the text in verb.
func (a *app) keysCommand(cmd *cobra.Command, change func(*client.Client, context.Context, ...string) (int64, error),
	verb, unchanged string, report func(n int64, of int) any) *cobra.Command {
	cmd.Args = needsKey
	cmd.RunE = func(cmd *cobra.Command, keys []string) error {
		n, err := ask(cmd.Context(), a, func(ctx context.Context, c *client.Client) (int64, error) { return change(c, ctx, keys...) })
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(report(n, len(keys)))
		case n == 0:
			return a.printf("%s\n", unchanged)
		}
		return a.printf("%s %d of %s\n", verb, n, plural(len(keys), "key"))
	}
	return a.jsonFlag(a.serverFlags(cmd))
}

// needsKey refuses a command line without a key.
func needsKey(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return wrongUse(example(cmd), "%s needs a key", cmd.Name())
	}
	for i, key := range args {
		if key == "" {
			return emptyKey(cmd, i+1, len(args))
		}
	}
	return nil
}

// emptyKey returns the error for an empty key, the n-th of total keys. Without this error, all
// callers whose shell variable is not set would share one key.
func emptyKey(cmd *cobra.Command, n, total int) error {
	which := "the key"
	if total > 1 {
		which = fmt.Sprintf("key %d of %d", n, total)
	}
	return wrongUse(example(cmd), "%s is empty (is a shell variable not set?)", which)
}
