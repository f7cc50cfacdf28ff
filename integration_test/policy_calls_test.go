package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// TestPolicyCalls checks that the permissions listed in docs/usage.md are enough to read the counts
// of policies from every primary, and that the sums of these counts match the calls made.
func TestPolicyCalls(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build, c := deployForClients(t, b)
		for _, tag := range tags() {
			for range 3 {
				must[client.Result](t)(c.Allow(ctx, tag+":export", "@export"))
				must[client.Result](t)(c.Lease(tag+":jobs", "@jobs", "").Acquire(ctx))
				req := client.Request{Keys: []string{tag + ":resource", tag + ":consumer"}, Limits: []client.Limit{"@calc"}, UsageKey: tag + ":usage"}
				must[client.Result](t)(c.Take(ctx, req))
			}
		}
		setUser(t, b, "client-calls", append(accessRules(t, build, acl.Peeker, "it:", b.Cluster), "+function|list"))
		var mu sync.Mutex
		sums, counting := map[string]client.PolicyCalls{}, 0
		require(t, scan.EachPrimary(ctx, newClient(t, b, asUser("client-calls")), func(ctx context.Context, node *redis.Client) error {
			libraries, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: functions.Name, WithCode: true}).Result()
			if err != nil {
				return err
			}
			limiter, err := client.New(node, client.WithTimeout(time.Minute))
			if err != nil {
				return err
			}
			info, err := limiter.Info(ctx)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if policies, err := functions.ReadPolicies(libraries[0].Code); err != nil || len(policies) != 3 || len(info.PolicyCalls) != 3 {
				t.Errorf("%d policies in the text, %v; %d with counts", len(policies), err, len(info.PolicyCalls))
			}
			for name, calls := range info.PolicyCalls {
				sum := sums[name]
				sum.Allowed += calls.Allowed
				sum.Denied += calls.Denied
				sums[name] = sum
			}
			if info.PolicyCalls["calc"].Allowed > 0 {
				counting++
			}
			return nil
		}))
		all := int64(len(tags()))
		for name, want := range map[string]client.PolicyCalls{"calc": {Allowed: 2 * all, Denied: all}, "export": {Allowed: all, Denied: 2 * all}, "jobs": {Allowed: 2 * all, Denied: all}} {
			if sums[name] != want {
				t.Errorf("%s: %+v, want %+v", name, sums[name], want)
			}
		}
		if counting != len(primariesOf(ctx, t, b)) {
			t.Errorf("%d primaries have counted calls", counting)
		}
	})
}
