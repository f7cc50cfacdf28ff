package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

func (a *app) resetCommand() *cobra.Command {
	return a.keysCommand(&cobra.Command{
		Use:   "reset KEY [KEY ...]",
		Short: "Delete what was counted for keys",
		Long: `Delete what was counted for keys, so that their limits are full again, and print how many of them had counts. In a
cluster, all keys of a call need the same hash tag, such as {user:42}.`,
		Example: `  ratelimit reset user:42`,
	}, keysChange{
		change: (*client.Client).Reset, verb: "forgot", unchanged: "nothing to forget: no key held anything",
		report: func(n int64, of int) any { return replyjson.Reset{Reset: n, Keys: of} },
	})
}

// keysChange is a change of keys, and what a command prints about it.
type keysChange struct {
	change    func(*client.Client, context.Context, ...string) (int64, error) // returns the number of keys that it changed
	verb      string                                                          // beginning of the output
	unchanged string                                                          // output if no key changed
	report    func(n int64, of int) any                                       // output of --json
}

// keysCommand makes cmd change the keys in its arguments.
func (a *app) keysCommand(cmd *cobra.Command, change keysChange) *cobra.Command {
	cmd.Args = needsKey
	cmd.RunE = func(cmd *cobra.Command, keys []string) error { return a.changeKeys(cmd.Context(), keys, change) }
	return a.jsonFlag(a.serverFlags(cmd))
}

func (a *app) changeKeys(ctx context.Context, keys []string, c keysChange) error {
	n, err := ask(ctx, a, func(ctx context.Context, to *client.Client) (int64, error) { return c.change(to, ctx, keys...) })
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(c.report(n, len(keys)))
	case n == 0:
		return a.printf("%s\n", c.unchanged)
	}
	return a.printf("%s %d of %s\n", c.verb, n, plural(len(keys), "key"))
}

// needsKey refuses a command line without a key.
func needsKey(cmd *cobra.Command, args []string) error { return needsKeyFor(cmd, example(cmd), args) }

// needsKeyFor is like needsKey, with another example in its error.
func needsKeyFor(cmd *cobra.Command, example string, args []string) error {
	if len(args) == 0 {
		return wrongUse(example, "%s needs a key", cmd.Name())
	}
	for i, key := range args {
		if key == "" {
			return emptyKey(example, i+1, len(args))
		}
	}
	return nil
}

// emptyKey returns the error for an empty key, the n-th of total keys. Without this error, all
// callers whose shell variable is not set would share one key.
func emptyKey(example string, n, total int) error {
	which := "the key"
	if total > 1 {
		which = fmt.Sprintf("key %d of %d", n, total)
	}
	return wrongUse(example, "%s is empty (is a shell variable not set?)", which)
}
