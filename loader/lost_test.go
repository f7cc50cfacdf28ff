package loader_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// A plan reports the problems that a load would have, but works without permission to load
// libraries.
func TestPlanOfAServerThatTakesNothing(t *testing.T) {
	addr, _ := startRedis(t)
	rdb := at(t, addr)
	mustRun(t, rdb, "ACL", "SETUSER", "looks", "on", ">x", "+function|list", "+function|stats", "+role")
	mustRun(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	plan, err := newLoader(t, rdb).Plan(t.Context(), buildA, loader.Options{})
	want(t, "memory", err, nodes.ErrNotWritable)
	if action(plan.Nodes[0]) != "refuse" {
		t.Errorf("%+v", plan.Nodes[0])
	}
	plan, err = newLoader(t, connect(t, redis.Options{Addr: addr, Username: "looks", Password: "x"})).Plan(t.Context(), buildA, loader.Options{})
	if err != nil || action(plan.Nodes[0]) != "load" {
		t.Errorf("%v: %+v", err, plan.Nodes)
	}
}

// A server whose library was loaded by hand, without the header, gets the header back from the other
// servers.
func TestLostRecord(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(ctx, buildA, loader.Options{}))
	must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
	lose := func() { put(t, f.addrs[1], string(buildB)) }
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
	if report := must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{})); report.Changed() != 1 || !report.Nodes[1].Changed {
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
