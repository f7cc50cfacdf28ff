package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// completePolicies makes a shell complete --policy with the names that list returns.
func completePolicies(cmd *cobra.Command, list func(context.Context) []string) {
	complete := func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		names := slices.DeleteFunc(list(cmd.Context()), func(name string) bool { return !strings.HasPrefix(name, begin) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc("policy", complete); err != nil {
		panic(err) // the command has no such flag
	}
}

// deployedPolicies asks a server for its policies. It returns no names if the server does not reply
// within two seconds or --timeout.
func (a *app) deployedPolicies(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, min(a.servers.timeout, 2*time.Second))
	defer cancel()
	rdb, _, err := a.connect(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = rdb.Close() }()
	reply, err := rdb.Do(ctx, "FCALL_RO", "ratelimit_info", 0).Result()
	if err != nil {
		return nil
	}
	list, _ := respmap.Of(reply)["policies"].([]any)
	var names []string
	for _, name := range list {
		if text, ok := name.(string); ok {
			names = append(names, text)
		}
	}
	return names
}

// policiesInFiles returns the names of the policies in the files of --policies.
func (a *app) policiesInFiles(context.Context) []string {
	given := slices.Compact(slices.Sorted(slices.Values(a.policies))) // cobra parses the flags twice, so each file is listed twice
	file, err := policies.Read(given...)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range file.Policies {
		names = append(names, p.Name)
	}
	return names
}
