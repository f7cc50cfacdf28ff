package loader_test

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// halfDeployed simulates a deployer that dies. It calls the function deploy, and then restores the
// library on all servers except f.addrs[on].
func halfDeployed(t *testing.T, f three, on int, deploy func()) {
	t.Helper()
	before := map[string]map[string]string{}
	for _, addr := range f.addrs {
		before[addr] = texts(t, addr)
	}
	deploy()
	for i, addr := range f.addrs {
		if i != on {
			put(t, addr, before[addr]["ratelimit"])
		}
	}
}

// A deployment changes nothing if a server has a text that cannot be read. A watch leaves that server
// as it is.
func TestUnreadableText(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	must[loader.Report](t)(in(t, f.ring, "payments").Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	good := texts(t, f.addrs[1])["ratelimit"]
	header, _, _ := strings.Cut(good, "\n--ratelimit body")
	for name, tt := range map[string]struct{ text, remedy string }{
		"unreadable policies":      {strings.Replace(set(t, "payments/api 1/m").Text(), "'1/m' }", "'1/m'}", 1), "delete it there with FUNCTION DELETE ratelimit, and deploy again"},
		"a header of another part": {strings.Replace(good, "--part ", "--part A", 1), "delete it there with FUNCTION DELETE ratelimit, and deploy again"},
		"a cut header":             {header + "\n", "delete it there with FUNCTION DELETE ratelimit, and deploy again"},
		"a newer format":           {strings.Replace(good, "--ratelimit header 1", "--ratelimit header 2", 1), "deploy with that version"},
	} {
		put(t, f.addrs[1], tt.text)
		before := []map[string]string{texts(t, f.addrs[0]), texts(t, f.addrs[1]), texts(t, f.addrs[2])}
		_, err := in(t, f.ring, "search").Deploy(ctx, set(t, "search/x 1/s"), loader.Options{})
		if e := want(t, name, err, loader.ErrUnreadable); e.Addr != f.addrs[1] || e.Remedy != tt.remedy {
			t.Errorf("%s: %+v", name, e)
		}
		if err := newLoader(t, f.ring).Repair(ctx, build(t)); !errors.Is(err, loader.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
		for i, addr := range f.addrs {
			if !maps.Equal(texts(t, addr), before[i]) {
				t.Errorf("%s: %s changed", name, addr)
			}
		}
	}
}

// If servers ran different policies of a namespace before its last deployment, a rollback restores
// the newest of these policies, even if only one server ran them.
func TestRollbackOfANamespaceAfterADeployerDied(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	payments := in(t, f.ring, "payments")
	deploy := func(policies string) {
		must[loader.Report](t)(payments.Deploy(ctx, set(t, policies), loader.Options{}))
	}
	for on := range f.addrs {
		deploy("payments/api 1/m")
		halfDeployed(t, f, on, func() { deploy("payments/api 2/m") })
		deploy("payments/api 3/m")
		report := must[loader.Report](t)(payments.Status(ctx, set(t, "payments/api 3/m")))
		plan := must[loader.Report](t)(payments.PlanRollback(ctx, loader.Options{}))
		if report.Nodes[0].Previous != plan.Wanted {
			t.Errorf("%+v\n%+v", report.Nodes[0].Previous, plan.Wanted)
		}
		must[loader.Report](t)(payments.Rollback(ctx, loader.Options{}))
		allRun(t, f.addrs, "payments/api 2/m")
	}
}

// If servers ran different policies of a namespace before a deployment of the library, a rollback
// of that deployment restores the same build on all of them. Before the rollback, Status reports
// that build as Node.Previous.
func TestRollbackOfTheLibraryKeepsNamespaces(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	plain, payments := newLoader(t, f.ring), in(t, f.ring, "payments")
	must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 1/d"), loader.Options{}))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	halfDeployed(t, f, 1, func() { must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 2/m"), loader.Options{})) })
	report := must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 2/d"), loader.Options{}))
	plan := must[loader.Report](t)(plain.PlanRollback(ctx, loader.Options{}))
	for _, n := range append(must[loader.Report](t)(plain.Status(ctx, set(t, "api 2/d"))).Nodes, report.Nodes...) {
		if n.Previous != plan.Wanted {
			t.Errorf("%s would go back to %s, and the plan is %s", n.Addr, n.Previous, plan.Wanted)
		}
	}
	must[loader.Report](t)(plain.Rollback(ctx, loader.Options{}))
	allRun(t, f.addrs, "api 1/d, payments/api 2/m")
	must[loader.Report](t)(plain.Rollback(ctx, loader.Options{}))
	allRun(t, f.addrs, "api 2/d, payments/api 2/m")
}

// Delete inspects the servers again when it has the lease, and renews the lease.
func TestDeleteUnderTheLease(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	put(t, addr, string(buildA))
	const foreign = "#!lua name=ratelimit\nredis.register_function('mine', function() return 1 end)"
	clock := newTestClock()
	var once sync.Once
	var renewals atomic.Int64
	l := newLoader(t, at(t, addr), clock.option(), trace(func(_, command string) {
		switch {
		case strings.HasPrefix(command, "FUNCTION LOAD ratelimit_lease_"):
			once.Do(func() { put(t, addr, foreign) })
			clock.move(2 * time.Minute)
		case strings.HasPrefix(command, "FUNCTION LOAD REPLACE ratelimit_lease_"):
			renewals.Add(1)
		}
	}))
	_, err := l.Delete(ctx, loader.Options{})
	want(t, "a library that came between", err, nodes.ErrForeign)
	if got := texts(t, addr); len(got) != 1 || got["ratelimit"] != foreign {
		t.Errorf("%q", got)
	}
	report := must[loader.Report](t)(l.Delete(ctx, loader.Options{ReplaceForeign: true}))
	if got := texts(t, addr); len(got) != 1 || strings.Contains(got["ratelimit"], "ratelimit_take") || report.Changed() != 1 || renewals.Load() != 1 {
		t.Errorf("%q, %d renewals", got, renewals.Load())
	}
}
