package integration_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
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
		type counts struct{ Allowed, Denied, Cost int64 }
		type report struct {
			Complete      bool
			Keys, Refused int64
			counts
			Top []struct {
				Key string
				counts
				First int64 `json:"first_ms"`
				Last  int64 `json:"last_ms"`
			}
		}
		top := func(by string) report {
			return printed[report](t, b, "client-usage", "top", "--limit", "3", "--by", by)
		}
		found := top("denied")
		if !found.Complete || found.Keys != 12 || found.counts != (counts{50, 28, 50}) || found.Refused != 1 {
			t.Errorf("%+v", found)
		}
		if top := found.Top; len(top) != 3 || top[0].Key != "it:{user:11}:usage" || top[0].Denied != 7 || top[2].Denied != 5 {
			t.Errorf("the most denied are %+v", top)
		}
		for _, r := range top("oldest").Top {
			u, err := c.Usage(ctx, r.Key[len("it:"):])
			if err != nil || u.Allowed != r.Allowed || u.Denied != r.Denied || u.Cost != r.Cost || u.First.UnixMilli() != r.First || u.Last.UnixMilli() != r.Last {
				t.Errorf("%v: %+v, and the library says %+v", err, r, u)
			}
		}
	})
}
