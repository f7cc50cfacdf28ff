package integration_test

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// TestUsageScan checks that the permissions listed in docs/usage.md are enough to find the usage
// keys on every primary, and that each record agrees with the library's reply.
func TestUsageScan(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build, c := deployForClients(t, b)
		for i, tag := range tags() {
			for range i + 1 {
				must[client.Result](t)(c.Take(ctx, client.Request{Keys: []string{tag}, Limits: []client.Limit{client.PerDay(5)}, UsageKey: tag + ":usage"}))
			}
		}
		require(t, newClient(t, b).HSet(ctx, "elsewhere", "first", 1, "last", 1, "cost", 1).Err())
		rules := accessRules(t, build, acl.Peeker, "it:", b.Cluster)
		setUser(t, b, "client-usage", append(rules, "+scan", "+hmget", "+time", "+dbsize"))
		scan := usage.New(3, "", usage.Denied, usage.Oldest)
		require(t, scan.Run(ctx, newClient(t, b, asUser("client-usage"))))
		found := scan.Snapshot()
		if !found.Complete || found.Tracked != 12 || found.Sum != (usage.Count{Allowed: 50, Denied: 28}) || found.Refused != 1 || found.Looked < 25 {
			t.Errorf("%+v", found)
		}
		if top := found.Top[usage.Denied]; len(top) != 3 || top[0].Key != "it:{user:11}:usage" || top[0].Denied != 7 || top[2].Denied != 5 {
			t.Errorf("the most denied are %+v", top)
		}
		for _, r := range found.Top[usage.Oldest] {
			u, err := c.Usage(ctx, r.Key[len("it:"):])
			if err != nil || u.Allowed != r.Allowed || u.Denied != r.Denied || u.Cost != r.Cost || !u.First.Equal(r.First) || !u.Last.Equal(r.Last) || r.At.Sub(r.Last) > time.Hour {
				t.Errorf("%v: %+v, and the library says %+v", err, r, u)
			}
		}
	})
}
