package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
)

func (a *app) resetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset KEY [KEY ...]",
		Short: "Delete what was counted for keys",
		Long: `Delete what was counted for keys, so that their limits are full again, and print how many of them had counts. In a
cluster, all keys of a call need the same hash tag, such as {user:42}.`,
		Example: `  ratelimit reset user:42`,
		Args:    needsKey("ratelimit reset user:42"),
		RunE: func(cmd *cobra.Command, keys []string) error {
			var n int64
			err := a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				n, err = c.Reset(ctx, keys...)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(struct {
					Reset int64 `json:"reset"` // keys that existed
					Keys  int   `json:"keys"`
				}{n, len(keys)})
			}
			if n == 0 {
				return a.printf("nothing to forget: no key held anything\n")
			}
			return a.printf("forgot %d of %s\n", n, plural(int64(len(keys)), "key"))
		},
	}
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

// needsKey refuses a command line without a key.
func needsKey(example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
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
}

// emptyKey returns the error for an empty key, the n-th of several. Without the error, all callers
// with an unset variable would share one key.
func emptyKey(example string, n, of int) error {
	which := "the key"
	if of > 1 {
		which = fmt.Sprintf("key %d of %d", n, of)
	}
	return wrongUse(example, "%s is empty (is a shell variable not set?)", which)
}
