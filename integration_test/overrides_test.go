package integration_test

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// TestOverrides checks that an application user can override limits on every primary, and that the
// permissions listed in docs/overrides.md are enough to find the overrides and blocks on every
// primary.
func TestOverrides(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build, c := deployForClients(t, b)
		const limit = "7/m, 700/d"
		for _, tag := range tags() {
			used, blocked, jobs := tag+":used", tag+":blocked", tag+":jobs"
			if got, err := c.AllowN(ctx, used, limits.PerDay(5), 5); err != nil || !got.Allowed {
				t.Errorf("%s: before the override %+v, %v", tag, got, err)
			}
			if err := c.Override(ctx, limit, time.Hour, used, blocked); err != nil {
				t.Errorf("%s: override: %v", tag, err)
			}
			if got, err := c.Allow(ctx, used, limits.PerDay(5)); err != nil || got.Limit != 7 {
				t.Errorf("%s: under the override %+v, %v", tag, got, err)
			}
			if err := c.Block(ctx, client.Block{For: time.Hour}, blocked); err != nil {
				t.Errorf("%s: block: %v", tag, err)
			}
			if err := c.Override(ctx, limits.Concurrency(2, time.Minute), time.Hour, jobs); err != nil {
				t.Errorf("%s: override of leases: %v", tag, err)
			}
			for n := range 3 {
				got, err := c.Lease(jobs, limits.Concurrency(1, time.Second), "").Acquire(ctx)
				if err != nil || got.Allowed != (n < 2) || got.Limit != 2 || got.Allowed && got.ResetAfter != time.Minute {
					t.Errorf("%s: acquire number %d %+v, %v", tag, n+1, got, err)
				}
			}
		}
		require(t, newClient(t, b).Set(ctx, "elsewhere", "limit:9000000000000:0:3:5/m", 0).Err())
		rules := accessRules(t, build, acl.Peeker, "it:", b.Cluster)
		setUser(t, b, "client-overrides", append(rules, "+scan", "+type", "+getrange", "+zrange", "+zscore", "+time", "+dbsize"))
		type report struct {
			Complete      bool
			More, Refused int64
			Overrides     []struct {
				Limit   string
				Ends    int64 `json:"ends_ms"`
				Blocked int64 `json:"blocked_until_ms"`
			}
		}
		soon := func(ms int64, full time.Duration) bool { return within(time.Until(time.UnixMilli(ms)), full) }
		find := func() report { return printed[report](t, b, "client-overrides", "override", "--match", "*") }
		found := find()
		if !found.Complete || found.More != 0 || found.Refused != 1 || len(found.Overrides) != 36 {
			t.Fatalf("%+v", found)
		}
		for i, o := range found.Overrides { // the keys in order: blocked, jobs, used
			want := []string{limit, "concurrency 2 lease=60s", limit}[i%3]
			if o.Limit != want || !soon(o.Ends, time.Hour) || (o.Blocked == 0) == (i%3 == 0) {
				t.Errorf("%+v", o)
			}
		}
		for _, tag := range tags() {
			if n, err := c.EndOverride(ctx, tag+":used", tag+":blocked", tag+":jobs", tag+":none"); err != nil || n != 3 {
				t.Errorf("%s: EndOverride answers %d, %v; want 3", tag, n, err)
			}
			if got, err := c.Allow(ctx, tag+":used", limits.PerDay(5)); err != nil || got.Limit != 5 {
				t.Errorf("%s: after the override %+v, %v", tag, got, err)
			}
		}
		found = find()
		if !found.Complete || len(found.Overrides) != len(tags()) {
			t.Errorf("after the overrides %+v", found)
		}
		for _, o := range found.Overrides {
			if o.Limit != "" || o.Ends != 0 || !soon(o.Blocked, time.Hour) {
				t.Errorf("a block without an override: %+v", o)
			}
		}
	})
}
