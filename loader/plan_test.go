package loader_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

func TestPlan(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	l := newLoader(t, at(t, addr))
	with := func(policies ...functions.Policy) functions.Build {
		return must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	}
	one := functions.Policy{Name: "one", Limits: []functions.PolicyLimit{{Limit: "100/m"}}}
	two := functions.Policy{Name: "two", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/s"}, {Key: "b", Limit: "2/s"}}, Shadow: true, Track: true}
	three := functions.Policy{Name: "three", Limits: []functions.PolicyLimit{{Limit: "3/d"}}}
	more := one
	more.Limits = []functions.PolicyLimit{{Limit: "200/m"}}

	plan := must[loader.Report](t)(l.Plan(ctx, with(one, two), loader.Options{}))
	if plan.InStep() || len(plan.Nodes) != 1 || action(plan.Nodes[0]) != "load" || plan.Nodes[0].Diff != "" {
		t.Fatalf("%+v", plan)
	}
	text := describeChanges(plan.Nodes[0].Changes)
	if !strings.Contains(text, "function ratelimit_take added: >\n") || !strings.Contains(text, "policy two added: >a: 1/s; b: 2/s (shadow) (track)\n") || strings.Contains(text, "source") {
		t.Errorf("%s", text)
	}
	if left := at(t, addr).Do(ctx, "FUNCTION", "LIST").Val().([]any); len(left) != 0 {
		t.Error("a plan changed something")
	}

	must[loader.Report](t)(l.Deploy(ctx, with(one, two), loader.Options{}))
	plan = must[loader.Report](t)(l.Plan(ctx, with(two, one), loader.Options{}))
	if !plan.InStep() || action(plan.Nodes[0]) != "nothing" || len(plan.Nodes[0].Changes) != 0 {
		t.Errorf("%+v", plan)
	}
	plan = must[loader.Report](t)(l.Plan(ctx, with(more, three), loader.Options{RemovePolicies: true}))
	if got, want := describeChanges(plan.Nodes[0].Changes), "policy one changed: 100/m>200/m\npolicy three added: >3/d\npolicy two removed: a: 1/s; b: 2/s (shadow) (track)>\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	diff := plan.Nodes[0].Diff
	if action(plan.Nodes[0]) != "replace" || !strings.Contains(diff, "\n-  ['one'] = { '100/m' },\n") || !strings.Contains(diff, "\n+  ['one'] = { '200/m' },\n") ||
		!strings.HasPrefix(diff, "--- "+with(one, two).Version()+" build "+with(one, two).ID()+"\n+++ ") || strings.Count(diff, "\n@@ ") != 2 {
		t.Errorf("%+v\n%s", action(plan.Nodes[0]), diff)
	}

	// A deployment and a rollback report the same changes as the plan.
	report := must[loader.Report](t)(l.Deploy(ctx, with(more, three), loader.Options{RemovePolicies: true}))
	if n := report.Nodes[0]; !reflect.DeepEqual(n.Changes, plan.Nodes[0].Changes) || n.Before.BuildID != with(one, two).ID() || n.Running.BuildID != with(more, three).ID() {
		t.Errorf("%+v", n)
	}
	report = must[loader.Report](t)(l.Rollback(ctx, loader.Options{}))
	if got, want := describeChanges(report.Nodes[0].Changes), "policy one changed: 200/m>100/m\npolicy three removed: 3/d>\npolicy two added: >a: 1/s; b: 2/s (shadow) (track)\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}

	// The server's library has a function that the build lacks, lacks one that the build has, and
	// differs from the build in one source file.
	other := strings.Replace(string(libraryAs("0.0.9", "000000000009")), "'ratelimit_usage'", "'ratelimit_statistics'", 1)
	other = strings.Replace(other, "\n--@ src/algorithms/gcra.lua\n", "\n--@ src/algorithms/gcra.lua\n-- before\n", 1)
	require(t, at(t, addr).FunctionLoadReplace(ctx, other).Err())
	plan = must[loader.Report](t)(l.Plan(ctx, build(t), loader.Options{}))
	if got, want := describeChanges(plan.Nodes[0].Changes), "function ratelimit_statistics removed: >\nfunction ratelimit_usage added: >\nsource src/algorithms/gcra.lua changed: >\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}

	// A plan reports the deployments that would be refused.
	require(t, at(t, addr).FunctionLoadReplace(ctx, string(libraryAs("0.2.0", "000000000009"))).Err())
	plan, err := l.Plan(ctx, build(t), loader.Options{})
	want(t, "downgrade", err, loader.ErrDowngrade)
	if action(plan.Nodes[0]) != "refuse" || plan.InStep() {
		t.Errorf("%+v", plan.Nodes[0])
	}
	if plan, err := l.Plan(ctx, build(t), loader.Options{AllowDowngrade: true}); err != nil || action(plan.Nodes[0]) != "replace" {
		t.Errorf("%v, %+v", err, plan)
	}
	_, err = newLoader(t, at(t, "127.0.0.1:1")).Plan(ctx, build(t), loader.Options{})
	want(t, "unreachable", err, nodes.ErrUnreachable)
}

// Without RemovePolicies, deployments and watches remove no policies.
func TestPoliciesAreNotLostSilently(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring, every(often))
	for _, tt := range []struct {
		before, after functions.Build
		lost          string
	}{
		{set(t, ""), set(t, "api 1/m"), ""},
		{set(t, "api 1/m"), set(t, "api 1/m, calc 1/m"), ""},
		{set(t, "api 1/m, calc 1/m"), set(t, "api 1/m"), "calc"},
		{set(t, "api 1/m, calc 1/m"), set(t, ""), "api calc"},
		{set(t, "api 1/m"), set(t, "other 1/m"), "api"},
	} {
		must[loader.Report](t)(l.Delete(ctx, loader.Options{}))
		must[loader.Report](t)(l.Deploy(ctx, tt.after, loader.Options{}))
		put(t, f.addrs[1], tt.before.Text()) // on one of the three servers
		plan, planErr := l.Plan(ctx, tt.after, loader.Options{})
		report, err := l.Deploy(ctx, tt.after, loader.Options{})
		if tt.lost == "" {
			if planErr != nil || err != nil || !report.InStep() {
				t.Errorf("%v; %v\n%s", planErr, err, states(report))
			}
			continue
		}
		for _, err := range []error{planErr, err} {
			if e := want(t, tt.lost, err, loader.ErrRemovesPolicies); e.Addr != f.addrs[1] || strings.Join(e.Policies, " ") != tt.lost {
				t.Errorf("%+v", e)
			}
		}
		if action(plan.Nodes[1]) != "refuse" || report.Changed() != 0 || texts(t, f.addrs[1])["ratelimit"] != tt.before.Text() {
			t.Errorf("%+v\n%s", plan.Nodes[1], states(report))
		}
		plan, planErr = l.Plan(ctx, tt.after, loader.Options{RemovePolicies: true})
		report, err = l.Deploy(ctx, tt.after, loader.Options{RemovePolicies: true})
		if planErr != nil || action(plan.Nodes[1]) != "replace" || err != nil || !report.InStep() || report.Changed() != 1 {
			t.Errorf("%v: %+v; %v\n%s", planErr, plan.Nodes[1], err, states(report))
		}
	}
}

// A plan shows which part of a canary changes: the share, the limits, or both.
func TestPlanOfCanaries(t *testing.T) {
	addr, _ := startRedis(t)
	l := newLoader(t, at(t, addr))
	limits := []functions.PolicyLimit{{Key: "a", Limit: "100/m"}, {Key: "b", Limit: "9/s"}}
	with := func(share int, shadow bool, of ...string) functions.Policy {
		return functions.Policy{Name: "api", Limits: limits, Canary: &functions.Canary{Limits: of, Share: share, Shadow: shadow}}
	}
	for _, tt := range []struct {
		after functions.Policy
		want  string
	}{
		{with(5, true, "60/m", "9/s"), "policy api added: >a: 100/m; b: 9/s\ncanary api added: >0.5% of the keys: a: 60/m; b: 9/s (shadow)\n"},
		{with(50, true, "60/m", "9/s"), "canary api changed: 0.5% of the keys>5% of the keys\n"},
		{with(50, true, "50/m", "9/s"), "canary api changed: a: 60/m; b: 9/s (shadow)>a: 50/m; b: 9/s (shadow)\n"},
		{with(50, false, "50/m", "9/s"), "canary api changed: a: 50/m; b: 9/s (shadow)>a: 50/m; b: 9/s\n"},
		{with(1000, false, "50/m", "8/s"), "canary api changed: 5% of the keys: a: 50/m; b: 9/s>100% of the keys: a: 50/m; b: 8/s\n"},
		{functions.Policy{Name: "api", Limits: limits}, "canary api removed: 100% of the keys: a: 50/m; b: 8/s>\n"},
	} {
		build := must[functions.Build](t)(functions.New(functions.WithPolicies(tt.after)))
		plan := must[loader.Report](t)(l.Plan(t.Context(), build, loader.Options{}))
		got := describeChanges(plan.Nodes[0].Changes)
		if i := strings.Index(got, "policy "); action(plan.Nodes[0]) == "load" && i >= 0 {
			got = got[i:] // skip the lines about functions
		}
		if got != tt.want {
			t.Errorf("%s\nwant\n%s", got, tt.want)
		}
		must[loader.Report](t)(l.Deploy(t.Context(), build, loader.Options{}))
	}
}

func describeChanges(changes []loader.Change) string {
	var b strings.Builder
	for _, c := range changes {
		b.WriteString(c.Kind + " " + c.Name + " " + c.What + ": " + c.Old + ">" + c.New + "\n")
	}
	return b.String()
}

// action returns what a deployment with this plan would do to a node.
func action(n loader.Node) string {
	switch {
	case n.Err != nil:
		return "refuse"
	case n.State == loader.Same:
		return "nothing"
	case n.State == loader.Absent:
		return "load"
	}
	return "replace"
}

// A plan shows the classes of a policy, and its guarantee and pool.
func TestPlanOfClassesAndGuarantees(t *testing.T) {
	addr, _ := startRedis(t)
	l := newLoader(t, at(t, addr))
	policy := func(change func(*functions.Policy)) functions.Policy {
		p := functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "80/s"}, {Key: "pool", Limit: "900/s"}}}
		change(&p)
		return p
	}
	canary := func(floor int) *functions.Canary {
		return &functions.Canary{Limits: []string{"80/s", "800/s"}, Share: 50, Floor: floor}
	}
	const limits = "guarantee: 80/s; pool: 900/s"
	for _, tt := range []struct {
		change func(*functions.Policy)
		want   string
	}{
		{func(*functions.Policy) {}, "policy api added: >" + limits + "\n"},
		{func(p *functions.Policy) { p.Classes = map[string]int{"batch": 50, "default": 20} },
			"policy api changed: " + limits + ">" + limits + " (classes batch 50%, default 20%)\n"},
		{func(p *functions.Policy) { p.Classes = map[string]int{"batch": 60, "default": 20} },
			"policy api changed: " + limits + " (classes batch 50%, default 20%)>" + limits + " (classes batch 60%, default 20%)\n"},
		{func(p *functions.Policy) { p.AnyClass = true },
			"policy api changed: " + limits + " (classes batch 60%, default 20%)>" + limits + " (classes any)\n"},
		{func(p *functions.Policy) { p.Borrow = true },
			"policy api changed: " + limits + " (classes any)>" + limits + " (borrow, floor 0%)\n"},
		{func(p *functions.Policy) { p.Borrow, p.Floor = true, 80 },
			"policy api changed: " + limits + " (borrow, floor 0%)>" + limits + " (borrow, floor 80%)\n"},
		{func(p *functions.Policy) { p.Borrow, p.Floor, p.Canary = true, 80, canary(80) },
			"canary api added: >5% of the keys: guarantee: 80/s; pool: 800/s (borrow, floor 80%)\n"},
		{func(p *functions.Policy) { p.Borrow, p.Floor, p.Canary = true, 80, canary(20) },
			"canary api changed: guarantee: 80/s; pool: 800/s (borrow, floor 80%)>guarantee: 80/s; pool: 800/s (borrow, floor 20%)\n"},
	} {
		build := must[functions.Build](t)(functions.New(functions.WithPolicies(policy(tt.change))))
		plan := must[loader.Report](t)(l.Plan(t.Context(), build, loader.Options{}))
		if got := describeChanges(plan.Nodes[0].Changes); !strings.HasSuffix(got, tt.want) || strings.Count(got, "policy")+strings.Count(got, "canary") != 1 {
			t.Errorf("%s\nwant\n%s", got, tt.want)
		}
		must[loader.Report](t)(l.Deploy(t.Context(), build, loader.Options{}))
	}
}

// A plan shows the penalty of a policy, at which share it warns, and a change of only that.
func TestPlanOfPenalties(t *testing.T) {
	addr, _ := startRedis(t)
	l := newLoader(t, at(t, addr))
	for _, tt := range []struct {
		penalty *functions.Penalty
		warn    int
		want    string
	}{
		{&functions.Penalty{First: time.Minute, Max: time.Hour, Forget: 24 * time.Hour}, 0, "policy login added: >5/m (penalty 1m..1h, forget 1d)\n"},
		{&functions.Penalty{First: time.Minute, Max: time.Hour, Forget: time.Hour}, 0, "policy login changed: 5/m (penalty 1m..1h, forget 1d)>5/m (penalty 1m..1h, forget 1h)\n"},
		{nil, 0, "policy login changed: 5/m (penalty 1m..1h, forget 1h)>5/m\n"},
		{nil, 80, "policy login changed: 5/m>5/m (warn at 80%)\n"},
		{nil, 90, "policy login changed: 5/m (warn at 80%)>5/m (warn at 90%)\n"},
	} {
		build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
			Name: "login", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Penalty: tt.penalty, Warn: tt.warn})))
		plan := must[loader.Report](t)(l.Plan(t.Context(), build, loader.Options{}))
		if got := describeChanges(plan.Nodes[0].Changes); !strings.HasSuffix(got, tt.want) || strings.Count(got, "policy") != 1 {
			t.Errorf("%s\nwant\n%s", got, tt.want)
		}
		must[loader.Report](t)(l.Deploy(t.Context(), build, loader.Options{}))
	}
}
