package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

const leaseHelp = `The limit is one such as "concurrency 3 lease=30s", or @name, a policy of one. A lease that is not renewed expires.

`

func (a *app) acquireCommand() *cobra.Command {
	return a.leaseCommand(&cobra.Command{
		Use:   "acquire KEY LIMIT [LEASE_ID]",
		Short: "Acquire a lease, if one is available",
		Long: "Acquire one of the leases of a key, and print its ID, which is random if none is given. Acquiring with the ID of a lease\n" +
			"that is held renews that lease.\n\n" + leaseHelp + "Exit codes: 0 acquired · 1 error · 2 denied.",
		Example: `  ratelimit acquire exports "concurrency 3 lease=30s"
  ratelimit acquire exports "concurrency 3 lease=30s" job-7`,
	}, 2, (*client.Lease).Acquire)
}

func (a *app) renewCommand() *cobra.Command {
	return a.leaseCommand(&cobra.Command{
		Use:   "renew KEY LIMIT LEASE_ID",
		Short: "Renew a lease",
		Long: "Renew a lease that is held, for the time in lease= of its limit.\n\n" + leaseHelp +
			"Exit codes: 0 renewed · 1 error · 2 not held, or expired.",
		Example: `  ratelimit renew exports "concurrency 3 lease=30s" job-7`,
	}, 3, (*client.Lease).Renew)
}

func (a *app) releaseCommand() *cobra.Command {
	return a.leaseCommand(&cobra.Command{
		Use:   "release KEY LIMIT LEASE_ID",
		Short: "Release a lease",
		Long: "Release a lease that is held. A second release has no effect.\n\n" + leaseHelp +
			"Exit codes: 0 released · 1 error · 2 not held, or expired.",
		Example: `  ratelimit release exports "concurrency 3 lease=30s" job-7`,
	}, 3, func(lease *client.Lease, ctx context.Context) (client.Result, error) {
		held, err := lease.Release(ctx)
		return client.Result{Allowed: held}, err
	})
}

// leaseArgs requires a key, a limit and, if least is 3, the ID of a lease.
func leaseArgs(least int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least, len(args) > 3:
			return wrongUse(example(cmd), "%s takes %s, not %s", cmd.Name(), strings.TrimPrefix(cmd.Use, cmd.Name()+" "),
				plural(len(args), "argument"))
		case args[0] == "":
			return emptyKey(example(cmd), 1, 1)
		case len(args) == 3 && args[2] == "":
			return errors.New("the lease ID is empty; give 1 to 256 bytes, such as job-7")
		}
		return nil
	}
}

func (a *app) leaseCommand(cmd *cobra.Command, least int, call func(*client.Lease, context.Context) (client.Result, error)) *cobra.Command {
	cmd.Args = leaseArgs(least)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id := ""
		if len(args) == 3 {
			id = args[2]
		}
		res, err := ask(cmd.Context(), a, func(ctx context.Context, c *client.Client) (client.Result, error) {
			lease := c.Lease(args[0], client.Limit(args[1]), id)
			id = lease.ID
			return call(lease, ctx)
		})
		if err != nil {
			return err
		}
		switch {
		case !a.json:
			a.printf("%s\n", leaseSentence(cmd.Name(), id, res))
		case cmd.Name() == "release":
			a.printJSON(replyjson.Released{Released: res.Allowed, LeaseID: id})
		default:
			a.printJSON(replyjson.OfLease(args[0], id, res))
		}
		return differs(!res.Allowed)
	}
	return a.jsonFlag(a.serverFlags(cmd))
}

func leaseSentence(command, id string, res client.Result) string {
	left := fmt.Sprintf("%s of %s left", grouped(res.Remaining), grouped(res.Limit))
	switch {
	case command == "release" && res.Allowed:
		return "released"
	case command == "release":
		return "not held"
	case res.Allowed && res.Shadow != nil && !res.Shadow.Allowed:
		return "allowed  " + left + " · a shadow policy would deny it: no lease is held"
	case res.Allowed && command == "renew":
		return "renewed  " + left
	case res.Allowed:
		return "acquired  " + left + " · lease " + visible(id)
	case res.RetryAfter == client.Never:
		return "not held  " + left
	}
	return "denied  " + left + " · try again in " + human(res.RetryAfter)
}
