package loader_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// A deployment or a rollback that would deny keys in use is refused without the option
// DenyKeysInUse, and every change describes its effect on keys in use.
func TestKeysInUse(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	var asked []string
	l := newLoader(t, f.ring, effects(func(library string, changes [][2]functions.Policy) ([]functions.Effect, error) {
		if list, err := functions.ReadPolicies(library); err != nil || len(list) > 0 {
			t.Errorf("the library has policies: %v, %v", list, err)
		}
		var effects []functions.Effect
		for _, c := range changes {
			asked = append(asked, c[0].Limits[0].Limit+" to "+c[1].Limits[0].Limit)
			effects = append(effects, functions.Effect{Keys: "of " + c[1].Name, Denied: c[1].Limits[0].Limit == "1/h"})
		}
		if strings.Contains(strings.Join(asked, ""), "9/h") {
			return nil, errors.New("no engine")
		}
		return effects, nil
	}))
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 1/h, calc 1/m"), loader.Options{}))
	report := must[loader.Report](t)(l.Deploy(ctx, set(t, "api 2/h, calc 1/m, new 1/s"), loader.Options{}))
	if got := report.Nodes[1].Changes; len(got) != 2 || got[0].Keys != "of api" || got[1].Keys != "" || strings.Join(asked, ", ") != "1/h to 2/h" {
		t.Errorf("%+v, %q", got, asked)
	}
	back := set(t, "api 1/h, calc 1/m, new 1/s")
	for _, call := range []func() error{
		func() error { _, err := l.Deploy(ctx, back, loader.Options{}); return err },
		func() error { _, err := l.Plan(ctx, back, loader.Options{}); return err },
		func() error { _, err := l.Rollback(ctx, loader.Options{RemovePolicies: true}); return err },
		func() error { _, err := l.PlanRollback(ctx, loader.Options{RemovePolicies: true}); return err },
	} {
		e := want(t, "keys in use", call(), loader.ErrDeniesKeys)
		if e.Error() != f.addrs[0]+" has keys in use whose calls this build would deny, although they have units left: api (of api); "+
			"give callers another policy or another key for the new limit first, or set Options.DenyKeysInUse" {
			t.Error(e)
		}
	}
	allRun(t, f.addrs, "api 2/h, calc 1/m, new 1/s")
	if plan := must[loader.Report](t)(l.Plan(ctx, back, loader.Options{DenyKeysInUse: true})); plan.Nodes[0].Changes[0].Keys != "of api" {
		t.Errorf("%+v", plan.Nodes[0].Changes)
	}
	must[loader.Report](t)(l.Rollback(ctx, loader.Options{RemovePolicies: true, DenyKeysInUse: true}))
	allRun(t, f.addrs, "api 1/h, calc 1/m")
	report = must[loader.Report](t)(l.Deploy(ctx, set(t, "api 9/h, calc 1/m"), loader.Options{}))
	if got := report.Nodes[0].Changes[0].Keys; got != "unknown: no engine" {
		t.Error(got)
	}
}

// If a deployment with DenyKeysInUse was interrupted, a deployment of another namespace completes
// it without this option. A deployment of the same namespace needs the option again.
func TestKeysInUseOfAnotherNamespace(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	denies := effects(func(_ string, changes [][2]functions.Policy) ([]functions.Effect, error) {
		var effects []functions.Effect
		for _, c := range changes {
			effects = append(effects, functions.Effect{Keys: "denied", Denied: c[1].Name == "payments/api"})
		}
		return effects, nil
	})
	payments, search := in(t, f.ring, "payments", denies), in(t, f.ring, "search", denies)
	must[loader.Report](t)(search.Deploy(ctx, set(t, "search/x 1/s"), loader.Options{}))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	halfDeployed(t, f, 0, func() {
		must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 2/m"), loader.Options{DenyKeysInUse: true}))
	})
	_, err := payments.Deploy(ctx, set(t, "payments/api 2/m"), loader.Options{})
	want(t, "the same namespace", err, loader.ErrDeniesKeys)
	must[loader.Report](t)(search.Deploy(ctx, set(t, "search/x 3/s"), loader.Options{}))
	allRun(t, f.addrs, "payments/api 2/m, search/x 3/s")
}

// A deployment to a namespace replaces policies, but not the library's code on the servers. So the
// effects of new policies are tried with the servers' code, not with the build's.
func TestPoliciesThatOlderCodeRefuses(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	must[loader.Report](t)(newLoader(t, at(t, addr)).Deploy(ctx, libraryAs("0.0.9", "000000000001"), loader.Options{}))
	l := in(t, at(t, addr), "payments", effects(func(library string, changes [][2]functions.Policy) ([]functions.Effect, error) {
		if !strings.Contains(library, "local VERSION = '0.0.9'") || len(changes) != 1 || len(changes[0][0].Limits) != 0 {
			t.Errorf("%v", changes)
		}
		if changes[0][1].Limits[0].Limit == "1/mo" {
			return []functions.Effect{{Refused: `"1/mo": no such period`}}, nil
		}
		return []functions.Effect{{}}, nil
	}))
	_, err := l.Deploy(ctx, set(t, "payments/api 1/mo"), loader.Options{})
	if e := want(t, "older code", err, loader.ErrRefused); e.Error() != addr+` would get version 0.0.9 of the library, which does not take the policy payments/api: "1/mo": no such period; write the limit as that version takes it` {
		t.Error(e)
	}
	must[loader.Report](t)(l.Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	allRun(t, []string{addr}, "payments/api 1/m")
}

// A rollback to an older version is allowed, but a rollback to a lower contract is refused.
func TestRollbackToALowerContract(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	l := newLoader(t, at(t, addr))
	must[loader.Report](t)(l.Deploy(ctx, libraryAs("0.0.9", "000000000001"), loader.Options{}))
	higher := strings.Replace(functions.Source(), "local CONTRACT = 1", "local CONTRACT = 2", 1)
	must[loader.Report](t)(l.Deploy(ctx, loader.Text(higher), loader.Options{}))
	_, err := l.Rollback(ctx, loader.Options{})
	want(t, "a lower contract", err, loader.ErrDowngrade)
	report := must[loader.Report](t)(l.Rollback(ctx, loader.Options{AllowDowngrade: true}))
	if report.Wanted.Version != "0.0.9" {
		t.Errorf("%+v", report.Wanted)
	}
	must[loader.Report](t)(l.Rollback(ctx, loader.Options{}))
}

func effects(f func(library string, changes [][2]functions.Policy) ([]functions.Effect, error)) option {
	return func(c *loader.Config) { loader.SetEffects(c, f) }
}

// A Loader tries each change of a policy, without an option that somebody could forget.
func TestEffectsByDefault(t *testing.T) {
	addr, _ := startRedis(t)
	l := must[*loader.Loader](t)(loader.New(at(t, addr), loader.Config{Timeout: time.Minute}))
	ctx := t.Context()
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 1/m"), loader.Options{}))
	_, err := l.Deploy(ctx, set(t, "api fixed_window 2/m"), loader.Options{})
	want(t, "another algorithm", err, loader.ErrDeniesKeys)
	allRun(t, []string{addr}, "api 1/m")
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 10/m"), loader.Options{DenyKeysInUse: true}))
	allRun(t, []string{addr}, "api 10/m")
}

// refusesMonths is what a Loader may find out: version 0.0.9 of the library takes no months.
func refusesMonths(library string, changes [][2]functions.Policy) ([]functions.Effect, error) {
	list := make([]functions.Effect, len(changes))
	for i, c := range changes {
		if strings.Contains(library, "local VERSION = '0.0.9'") && strings.HasSuffix(c[1].Limits[0].Limit, "/mo") {
			list[i].Refused = "no such period"
		}
	}
	return list, nil
}

// A text may be composed of older code and of policies that were deployed with newer code. It is not
// written if the code does not take the policies.
func TestPartsThatDoNotFit(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	plain, payments := newLoader(t, f.ring, effects(refusesMonths)), in(t, f.ring, "payments", effects(refusesMonths))
	must[loader.Report](t)(plain.Deploy(ctx, libraryAs("0.0.9", "000000000001"), loader.Options{}))
	must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 1/m"), loader.Options{}))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 1/mo"), loader.Options{}))
	const problem = ` would get version 0.0.9 of the library, which does not take the policy payments/api: no such period; write the limit as that version takes it`
	refused := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, loader.ErrRefused) || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := plain.Rollback(ctx, loader.Options{RemovePolicies: true})
	refused("a rollback", err)
	_, err = plain.Deploy(ctx, libraryAs("0.0.9", "000000000001"), loader.Options{RemovePolicies: true, AllowDowngrade: true})
	refused("a deployment", err)
	allRun(t, f.addrs, "api 1/m, payments/api 1/mo")

	// A watch leaves the other nodes as they are, if an older loader wrote such a text.
	halfDeployed(t, f, 0, func() {
		must[loader.Report](t)(newLoader(t, f.ring).Deploy(ctx, libraryAs("0.0.9", "000000000001"), loader.Options{RemovePolicies: true, AllowDowngrade: true}))
	})
	refused("a watch", plain.Repair(ctx, set(t, "api 1/m")))
	allRun(t, f.addrs[1:], "api 1/m, payments/api 1/mo")
}
