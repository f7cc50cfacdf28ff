package loader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// A rollback removes the policies that the deployment added, without an option. It needs the option
// RemovePolicies for all others, and its plan shows the changes in any case.
func TestRollbackOfAddedPolicies(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 1/m, calc 1/m"), loader.Options{}))
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 1/m, calc 1/m, search 2/m"), loader.Options{}))
	plan, err := l.PlanRollback(ctx, loader.Options{})
	if err != nil || !slices.Contains(plan.Nodes[0].Changes, loader.Change{Kind: "policy", Name: "search", What: "removed", Old: "2/m"}) {
		t.Errorf("%v: %+v", err, plan)
	}
	mustRun(t, at(t, f.addrs[1]), "FUNCTION", "DELETE", "ratelimit") // a server that lost the library but not its record
	report, err := l.Rollback(ctx, loader.Options{})
	if err != nil || report.Changed() != 3 || !report.InStep() {
		t.Errorf("%v\n%s", err, states(report))
	}

	// A policy that was loaded by hand was not added by the deployment.
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 1/m, calc 1/m, search 2/m"), loader.Options{}))
	byHand := set(t, "api 1/m, calc 1/m, search 2/m, mine 3/m").Text()
	put(t, f.addrs[2], byHand)
	plan, err = l.PlanRollback(ctx, loader.Options{})
	if e := want(t, "by hand", err, loader.ErrRemovesPolicies); e.Addr != f.addrs[2] || strings.Join(e.Policies, " ") != "mine search" ||
		e.Remedy != "see what changes with PlanRollback, and set Options.RemovePolicies" || !strings.Contains(e.Problem, ", which a rollback would bring back, does not have") {
		t.Errorf("%+v", e)
	}
	if len(plan.Nodes[2].Changes) == 0 || plan.Nodes[2].Diff == "" {
		t.Errorf("no changes in %+v", plan.Nodes[2])
	}
	_, err = l.Rollback(ctx, loader.Options{})
	if !errors.Is(err, loader.ErrRemovesPolicies) || texts(t, f.addrs[2])["ratelimit"] != byHand {
		t.Error(err)
	}
}

func TestRollbackOfPoliciesAddedToANamespace(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	must[loader.Report](t)(newLoader(t, f.ring).Deploy(ctx, set(t, "api 1/m"), loader.Options{}))
	team := in(t, f.ring, "team")
	must[loader.Report](t)(team.Deploy(ctx, set(t, "team/a 1/m"), loader.Options{}))
	must[loader.Report](t)(team.Deploy(ctx, set(t, "team/a 1/m, team/b 1/m"), loader.Options{}))
	must[loader.Report](t)(in(t, f.ring, "other").Deploy(ctx, set(t, "other/c 1/m"), loader.Options{}))
	report, err := team.Rollback(ctx, loader.Options{})
	if err != nil || report.Changed() != 3 || !report.InStep() {
		t.Errorf("%v\n%s", err, states(report))
	}
	if list := must[[]functions.Policy](t)(functions.ReadPolicies(texts(t, f.addrs[0])["ratelimit"])); len(list) != 3 {
		t.Errorf("%+v", list)
	}
}

// A plan lists all reasons for which a deployment would be refused, and the changes.
func TestPlanOfARefusedBuild(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	denies := func(_ string, changes [][2]functions.Policy) ([]functions.Effect, error) {
		return slices.Repeat([]functions.Effect{{Keys: "denied, for up to 1h", Denied: true}}, len(changes)), nil
	}
	l := newLoader(t, at(t, addr), effects(denies))
	running := strings.Replace(set(t, "api 1/m, calc 1/m").Text(), "local VERSION = '"+functions.Version()+"'", "local VERSION = '9.9.9'", 1)
	put(t, addr, running)
	build := set(t, "calc 2/m")
	plan, err := l.Plan(ctx, build, loader.Options{})
	for _, class := range []error{loader.ErrDowngrade, loader.ErrRemovesPolicies, loader.ErrDeniesKeys} {
		if !errors.Is(err, class) {
			t.Errorf("%v is not one of the reasons: %v", class, err)
		}
	}
	if strings.Count(err.Error(), addr) != 3 || len(plan.Nodes[0].Changes) == 0 || plan.Nodes[0].Diff == "" || action(plan.Nodes[0]) != "refuse" {
		t.Errorf("%v: %+v", err, plan.Nodes[0])
	}
	if _, err := l.Deploy(ctx, build, loader.Options{AllowDowngrade: true, RemovePolicies: true}); !errors.Is(err, loader.ErrDeniesKeys) || errors.Is(err, loader.ErrDowngrade) {
		t.Error(err)
	}
	if texts(t, addr)["ratelimit"] != running {
		t.Error("a refused build was loaded")
	}
}
