package integration_test

import (
	"reflect"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
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
		type policy struct {
			Name            string
			Limits          []string
			Counted         bool
			Allowed, Denied int64
		}
		type report struct {
			Complete  bool
			Servers   int
			Uncounted []string
			Policies  []policy
		}
		found := printed[report](t, b, "client-calls", "policies")
		if !found.Complete || found.Servers != len(primariesOf(ctx, t, b)) || len(found.Uncounted) != 0 {
			t.Errorf("%+v", found)
		}
		all := int64(len(tags()))
		want := []policy{
			{"calc", []string{"resource: 10/d", "consumer: 2/d"}, true, 2 * all, all},
			{"export", []string{"1/d"}, true, all, 2 * all},
			{"jobs", []string{"concurrency 2 lease=1h"}, true, 2 * all, all},
		}
		if !reflect.DeepEqual(found.Policies, want) {
			t.Errorf("%+v, want %+v", found.Policies, want)
		}
	})
}
