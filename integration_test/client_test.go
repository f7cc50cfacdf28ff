package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// deployForClients deploys a build with policies. It returns the build, and a client that has only
// the permissions of an application user.
func deployForClients(t *testing.T, b *backend.Backend) (functions.Build, *client.Client) {
	t.Helper()
	build := newBuild(t,
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "10/d"}, {Key: "consumer", Limit: "2/d"}}, Track: true},
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
		functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 2 lease=1h"}}},
	)
	deploy(testContext(t), t, newLoader(t, newClient(t, b)), build)
	setUser(t, b, "client-app", allFunctions(t, build, "it:", b.Cluster))
	c := newLimiter(t, newClient(t, b, asUser("client-app")), client.WithPrefix("it:"))
	return build, c
}

// tags returns hash tags. In a cluster of three primaries, each primary serves keys with some of
// the tags.
func tags() []string {
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprintf("{user:%d}", i))
	}
	return all
}

// within reports whether d is at most full, and less than a minute shorter. The minute allows for
// the time that the test has taken.
func within(d, full time.Duration) bool { return d <= full && d > full-20*time.Minute }

// TestClientCalls makes the client's calls as the application user, with keys on every primary.
func TestClientCalls(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		_, c := deployForClients(t, b)
		for name, calls := range map[string]func(context.Context, *testing.T, *client.Client){"requests": requests, "up to": upTo, "blocks": blocks, "leases": leases} {
			t.Run(name, func(t *testing.T) { calls(testContext(t), t, c) })
		}
	})
}

// requests checks that a request with all options is charged once, counted in the usage record, and
// refunded.
func requests(ctx context.Context, t *testing.T, c *client.Client) {
	for _, tag := range tags() {
		req := client.Request{
			Keys:    []string{tag + ":calc", tag + ":consumer", tag + ":bytes"},
			Limits:  []client.Limit{"@calc", limits.PerDay(1000)},
			Costs:   []int64{1, 1, 300},
			OnceKey: tag + ":once:1", OnceTTL: time.Hour, UsageKey: tag + ":usage",
		}
		for range 2 {
			if got, err := c.Take(ctx, req); err != nil || !got.Allowed || got.Limit != 2 || got.Remaining != 1 || got.Index != 2 || got.Shadow != nil {
				t.Errorf("%s: take %+v, %v", tag, got, err)
			}
		}
		req.OnceKey = tag + ":once:2"
		if got, err := c.Take(ctx, req); err != nil || !got.Allowed || got.Remaining != 0 {
			t.Errorf("%s: another take %+v, %v", tag, got, err)
		}
		req.OnceKey = tag + ":once:3"
		if got, err := c.Take(ctx, req); err != nil || got.Allowed || got.Index != 2 || !within(got.RetryAfter, 12*time.Hour) {
			t.Errorf("%s: a take too many %+v, %v", tag, got, err)
		}
		req.OnceKey, req.OnceTTL = "", 0
		if got, err := c.Peek(ctx, req); err != nil || got.Allowed {
			t.Errorf("%s: peek %+v, %v", tag, got, err)
		}
		if got, err := c.Refund(ctx, req); err != nil || !got.Allowed || got.Limit != 2 || got.Remaining != 1 {
			t.Errorf("%s: refund %+v, %v", tag, got, err)
		}
		if got, err := c.Refund(ctx, client.For(tag+":bytes", limits.PerDay(1000), 100000)); err != nil || !got.Allowed || got.Remaining != 1000 || got.ResetAfter != 0 {
			t.Errorf("%s: refund of more than was taken %+v, %v", tag, got, err)
		}
		usage, err := c.Usage(ctx, tag+":usage")
		if err != nil || usage.Allowed != 2 || usage.Denied != 1 || usage.Cost != 2 || usage.First.IsZero() || usage.Last.Before(usage.First) ||
			usage.Interval != time.Minute || len(usage.Series) == 0 {
			t.Errorf("%s: usage %+v, %v", tag, usage, err)
		}
	}
}

// upTo checks requests with UPTO for two keys. Both keys are charged the cost, but at most what the
// second key has left, which is less than the first has. A repeated request is not charged.
func upTo(ctx context.Context, t *testing.T, c *client.Client) {
	for _, tag := range tags() {
		req := client.Request{
			Keys: []string{tag + ":minute", tag + ":day"}, Limits: []client.Limit{limits.PerDay(9), "sliding_log 5/d"}, Costs: []int64{3}, UpTo: true,
			UsageKey: tag + ":upto:usage",
		}
		for _, want := range []int64{3, 2, 0} {
			peeked, err := c.Peek(ctx, req)
			if err != nil || peeked.Taken != want || peeked.Allowed != (want > 0) {
				t.Errorf("%s: peek %+v, %v; want %d taken", tag, peeked, err, want)
			}
			req.OnceKey, req.OnceTTL = fmt.Sprintf("%s:upto:once:%d", tag, want), time.Hour
			for range 2 {
				if got, err := c.Take(ctx, req); err != nil || got.Taken != want || got.Allowed != (want > 0) || got.Limit != 5 || got.Index != 2 {
					t.Errorf("%s: take %+v, %v; want %d taken", tag, got, err, want)
				}
			}
			req.OnceKey, req.OnceTTL = "", 0
		}
		if got, err := c.Take(ctx, client.Request{Keys: []string{tag + ":minute"}, Limits: []client.Limit{limits.PerDay(9)}, Costs: []int64{100}, UpTo: true}); err != nil || got.Taken != 4 || got.Remaining != 0 {
			t.Errorf("%s: the rest of the first key %+v, %v", tag, got, err)
		}
		if usage, err := c.Usage(ctx, tag+":upto:usage"); err != nil || usage.Allowed != 2 || usage.Denied != 2 || usage.Cost != 5 {
			t.Errorf("%s: usage %+v, %v", tag, usage, err)
		}
	}
}

func blocks(ctx context.Context, t *testing.T, c *client.Client) {
	for _, tag := range tags() {
		one, two := tag+":blocked:1", tag+":blocked:2"
		if err := c.Block(ctx, client.Block{For: time.Hour}, one, two); err != nil {
			t.Errorf("%s: block: %v", tag, err)
		}
		if got, err := c.Allow(ctx, two, "5/m"); err != nil || got.Allowed || got.Limit != 5 || !within(got.RetryAfter, time.Hour) {
			t.Errorf("%s: of a blocked key %+v, %v", tag, got, err)
		}
		if n, err := c.Unblock(ctx, one, two, tag+":3"); err != nil || n != 2 {
			t.Errorf("%s: unblock answers %d, %v; want 2", tag, n, err)
		}
		if got, err := c.Allow(ctx, two, "5/m"); err != nil || !got.Allowed || got.Remaining != 4 {
			t.Errorf("%s: after the block %+v, %v", tag, got, err)
		}
	}
}

func leases(ctx context.Context, t *testing.T, c *client.Client) {
	for i, tag := range tags() {
		limit := client.Limit("@jobs")
		if i%2 == 0 {
			limit = limits.Concurrency(2, time.Hour)
		}
		var leases [3]*client.Lease
		for n := range leases {
			leases[n] = c.Lease(tag, limit, "")
			want := n < 2
			got, err := leases[n].Acquire(ctx)
			if err != nil || got.Allowed != want || got.Limit != 2 || got.Remaining != int64(max(0, 1-n)) || !want && !within(got.RetryAfter, time.Hour) {
				t.Errorf("%s: acquire number %d %+v, %v", tag, n+1, got, err)
			}
			if got, err := leases[n].Renew(ctx); err != nil || got.Allowed != want || !want && got.RetryAfter != client.Never {
				t.Errorf("%s: renew number %d %+v, %v", tag, n+1, got, err)
			}
		}
		for range 2 {
			if got, err := leases[0].Acquire(ctx); err != nil || !got.Allowed || got.Remaining != 0 {
				t.Errorf("%s: acquire again %+v, %v", tag, got, err)
			}
		}
		for _, want := range []bool{true, false} {
			if held, err := leases[0].Release(ctx); err != nil || held != want {
				t.Errorf("%s: release answers %v, %v; want %v", tag, held, err, want)
			}
		}
		if got, err := leases[2].Acquire(ctx); err != nil || !got.Allowed {
			t.Errorf("%s: the place that was released %+v, %v", tag, got, err)
		}
	}
}

// TestClientInfo checks that Info returns the same information from every node, except for the
// counts of shadow policies, because each node counts its own calls.
func TestClientInfo(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build, c := deployForClients(t, b)
		const calls = 24
		for i := range calls {
			got, err := c.Allow(ctx, tags()[i%12], "@export")
			if err != nil || !got.Allowed || got.Shadow == nil || got.Shadow.Allowed != (i < 12) || got.Shadow.Index != 1 {
				t.Errorf("call %d: %+v with the shadow %+v, %v", i+1, got, got.Shadow, err)
			}
		}
		for range 6 {
			info, err := c.Info(ctx)
			if err != nil || info.BuildID != build.ID() || info.Version != build.Version() || info.Contract != functions.Contract ||
				!slices.Equal(info.Policies, []string{"calc", "export", "jobs"}) {
				t.Errorf("%+v, %v", info, err)
			}
			denied, found := info.ShadowDenied["export"]
			if !found || denied > 12 || !b.Cluster && denied != 12 {
				t.Errorf("%d calls that the shadow would have denied are counted, want 12 over all nodes", denied)
			}
		}
	})
}
