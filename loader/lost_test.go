package loader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// If only the library was deleted, its record remains. A build without the policies of the deleted
// library is therefore refused, and the previous build stays available for a rollback.
func TestPoliciesOfALostLibrary(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	with := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1/s"}}})))
	must[loader.Report](t)(l.Deploy(ctx, buildA))
	must[loader.Report](t)(l.Deploy(ctx, with))
	onEach(t, f.addrs, "FUNCTION", "DELETE", "ratelimit")
	plan, err := l.Plan(ctx, buildB)
	if e := want(t, "plan", err, loader.ErrRemovesPolicies); !slices.Equal(e.Policies, []string{"api"}) {
		t.Errorf("%+v", e)
	}
	for _, n := range plan.Nodes {
		if !strings.HasSuffix(describeChanges(n.Node.Changes), "policy api removed: >\n") {
			t.Errorf("%s: %s", n.Node.Addr, describeChanges(n.Node.Changes))
		}
	}
	_, err = l.Deploy(ctx, buildB)
	want(t, "policies that all had", err, loader.ErrRemovesPolicies)
	if report, err := l.Deploy(ctx, with); err != nil || report.Changed() != 3 {
		t.Errorf("%v\n%s", err, states(report))
	}
	onEach(t, f.addrs, "FUNCTION", "DELETE", "ratelimit")
	report := must[loader.Report](t)(l.Deploy(ctx, buildB, loader.RemovePolicies()))
	for _, n := range report.Nodes {
		if n.Running.BuildID != "00000000000b" || n.Previous.BuildID != "00000000000a" {
			t.Errorf("%+v", n)
		}
	}
}

// A first deployment loads the record before the library. Another deployment that finds only the
// record then waits for the lease, and does not assume that the library was lost.
func TestRecordOfADeploymentInProgress(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	must[loader.Report](t)(in(t, at(t, addr), "payments").Deploy(ctx, set(t, "payments/api 1/m")))
	mustRun(t, at(t, addr), "FUNCTION", "DELETE", "ratelimit")
	put(t, addr, leaseOfAnn(time.Now(), time.Now().Add(time.Minute)))
	search := in(t, at(t, addr), "search")
	_, err := search.Deploy(ctx, set(t, "search/x 1/s"), loader.WaitForLease(0))
	want(t, "in a deployment", err, loader.ErrLeased)
	put(t, addr, leaseOfAnn(time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)))
	_, err = search.Deploy(ctx, set(t, "search/x 1/s"))
	want(t, "after the deployment died", err, loader.ErrRemovesPolicies)
}

// A plan reports the problems that a load would have, but works without permission to load
// libraries.
func TestPlanOfAServerThatTakesNothing(t *testing.T) {
	addr, _ := startRedis(t)
	rdb := at(t, addr)
	mustRun(t, rdb, "ACL", "SETUSER", "looks", "on", ">x", "+function|list", "+function|stats", "+role")
	mustRun(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	plan, err := newLoader(t, rdb).Plan(t.Context(), buildA)
	want(t, "memory", err, loader.ErrOutOfMemory)
	if plan.Nodes[0].Action != loader.Refuse {
		t.Errorf("%+v", plan.Nodes[0])
	}
	plan, err = newLoader(t, connect(t, redis.Options{Addr: addr, Username: "looks", Password: "x"})).Plan(t.Context(), buildA)
	if err != nil || plan.Nodes[0].Action != loader.Load {
		t.Errorf("%v: %+v", err, plan.Nodes)
	}
}

// A server that lost only its record gets the record back from the other servers.
func TestLostRecord(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(ctx, buildA))
	must[loader.Report](t)(l.Deploy(ctx, buildB))
	lose := func() { mustRun(t, at(t, f.addrs[1]), "FUNCTION", "DELETE", "ratelimit_previous") }
	has := func(who string) {
		t.Helper()
		report := must[loader.Report](t)(l.Status(ctx, buildB))
		if n := report.Nodes[1]; !report.InStep() || len(report.Notes) != 0 || n.Previous.BuildID != "00000000000a" {
			t.Errorf("after %s: %v\n%+v", who, report.Notes, n)
		}
	}
	lose()
	report := must[loader.Report](t)(l.Status(ctx, buildB))
	if len(report.Notes) != 1 || !errors.Is(report.Notes[0], loader.ErrNoRecord) || report.Notes[0].Addr != f.addrs[1] {
		t.Errorf("%v", report.Notes)
	}
	if report := must[loader.Report](t)(l.Deploy(ctx, buildB)); report.Changed() != 1 || !report.Nodes[1].Changed {
		t.Errorf("%s", states(report))
	}
	has("a deployment")
	lose()
	clock := newTestClock()
	w := startWatch(t, newLoader(t, f.ring, clock.option()), buildB)
	clock.asleep(t)
	if n, e := w.count(f.addrs[1], loader.Repaired); n != 1 || e.Node.Before.BuildID != "00000000000b" {
		t.Errorf("%d times, %+v", n, e)
	}
	has("a watch")
}
