package loader_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// halfDeployed simulates a deployer that dies. It calls the function deploy, and then restores the
// library and the record on all servers except f.addrs[on].
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
			put(t, addr, before[addr]["ratelimit_previous"])
		}
	}
}

// A watch loads nothing on an empty server if it cannot determine the newest policies of the other
// namespaces.
func TestEmptyServerBesideServersThatDisagree(t *testing.T) {
	f := startThree(t, redis.Options{})
	unreadable := strings.Replace(set(t, "payments/api 1/m").Text(), "'1/m' }", "'1/m'}", 1)
	for _, tt := range []struct {
		texts [2]string
		class error
	}{
		{[2]string{set(t, "payments/api 1/m, search/x 1/s").Text(), set(t, "payments/api 2/m, search/x 1/s").Text()}, loader.ErrNoNewest},
		{[2]string{unreadable, unreadable}, loader.ErrBadBuild},
	} {
		for empty := range f.addrs {
			others := slices.Delete(slices.Clone(f.addrs), empty, empty+1)
			mustRun(t, at(t, f.addrs[empty]), "FUNCTION", "FLUSH")
			for i, addr := range others {
				put(t, addr, tt.texts[i])
			}
			if err := in(t, f.ring, "search").Repair(t.Context(), set(t, "search/x 1/s")); !errors.Is(err, tt.class) || !strings.Contains(err.Error(), f.addrs[empty]+" has no library, and it is not known") {
				t.Errorf("%d is empty: %v", empty, err)
			}
			for i, addr := range others {
				if texts(t, addr)["ratelimit"] != tt.texts[i] {
					t.Errorf("%s changed", addr)
				}
			}
			if got := texts(t, f.addrs[empty]); len(got) > 0 {
				t.Errorf("the empty server runs %s", policiesIn(t, got["ratelimit"]))
			}
		}
	}
}

// If servers ran different policies of a namespace before its last deployment, a rollback restores
// the newest of these policies, even if only one server ran them. If it is not known which policies
// were the newest, the rollback fails.
func TestRollbackOfANamespaceAfterADeployerDied(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	payments := in(t, f.ring, "payments")
	deploy := func(policies string) { must[loader.Report](t)(payments.Deploy(ctx, set(t, policies))) }
	for on := range f.addrs {
		deploy("payments/api 1/m")
		halfDeployed(t, f, on, func() { deploy("payments/api 2/m") })
		deploy("payments/api 3/m")
		report := must[loader.Report](t)(payments.Status(ctx, set(t, "payments/api 3/m")))
		plan := must[loader.Plan](t)(payments.PlanRollback(ctx))
		if report.Nodes[0].Previous != plan.Wanted {
			t.Errorf("%+v\n%+v", report.Nodes[0].Previous, plan.Wanted)
		}
		must[loader.Report](t)(payments.Rollback(ctx))
		allRun(t, f.addrs, "payments/api 2/m")
	}
	onEach(t, f.addrs, "FUNCTION", "DELETE", "ratelimit_previous")
	put(t, f.addrs[1], set(t, "payments/api 1/m").Text())
	deploy("payments/api 3/m")
	if _, err := payments.Rollback(ctx); !errors.Is(err, loader.ErrNothingKept) {
		t.Error(err)
	}
}

// If servers ran different policies of a namespace before a deployment of the library, a rollback
// of that deployment restores the same build on all of them. Before the rollback, Status reports
// that build as Node.Previous.
func TestRollbackOfTheLibraryKeepsNamespaces(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	plain, payments := newLoader(t, f.ring), in(t, f.ring, "payments")
	must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 1/d")))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 1/m")))
	halfDeployed(t, f, 1, func() { must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 2/m"))) })
	report := must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 2/d")))
	plan := must[loader.Plan](t)(plain.PlanRollback(ctx))
	for _, n := range append(must[loader.Report](t)(plain.Status(ctx, set(t, "api 2/d"))).Nodes, report.Nodes...) {
		if n.Previous != plan.Wanted {
			t.Errorf("%s would go back to %s, and the plan is %s", n.Addr, n.Previous, plan.Wanted)
		}
	}
	must[loader.Report](t)(plain.Rollback(ctx, loader.To(plan.Wanted.BuildID)))
	allRun(t, f.addrs, "api 1/d, payments/api 2/m")
	must[loader.Report](t)(plain.Rollback(ctx))
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
	l := newLoader(t, at(t, addr), clock.option(), loader.WithTrace(func(s loader.Step) {
		switch {
		case strings.HasPrefix(s.Command, "FUNCTION LOAD ratelimit_lease_"):
			once.Do(func() { put(t, addr, foreign) })
			clock.move(2 * time.Minute)
		case strings.HasPrefix(s.Command, "FUNCTION LOAD REPLACE ratelimit_lease_"):
			renewals.Add(1)
		}
	}))
	_, err := l.Delete(ctx)
	want(t, "a library that came between", err, loader.ErrForeign)
	if got := texts(t, addr); len(got) != 1 || got["ratelimit"] != foreign {
		t.Errorf("%q", got)
	}
	report := must[loader.Report](t)(l.Delete(ctx, loader.ReplaceForeign()))
	if got := texts(t, addr); len(got) != 0 || report.Changed() != 1 || renewals.Load() != 1 {
		t.Errorf("%q, %d renewals", got, renewals.Load())
	}
}
