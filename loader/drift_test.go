package loader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Status without a build compares the servers with the last deployment, and not with the build of the caller.
func TestDrift(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	other := libraryAs("0.0.9", "000000000009")
	var next string // the library of a server after a deployment of build C
	for _, tt := range []struct {
		name   string
		before func(t *testing.T)
		states [3]loader.State
		wanted string // the build ID, or "" if no server runs the last deployment
		notes  int
	}{
		{"a healthy fleet", func(*testing.T) {}, [3]loader.State{loader.Same, loader.Same, loader.Same}, "00000000000a", 0},
		{"a server without libraries", func(t *testing.T) { mustRun(t, at(t, f.addrs[1]), "FUNCTION", "FLUSH") },
			[3]loader.State{loader.Same, loader.Absent, loader.Same}, "00000000000a", 0},
		{"another build on two servers", func(t *testing.T) { put(t, f.addrs[0], string(other)); put(t, f.addrs[1], string(other)) },
			[3]loader.State{loader.Different, loader.Different, loader.Same}, "00000000000a", 0},
		{"another build on all servers", func(t *testing.T) {
			for _, addr := range f.addrs {
				put(t, addr, string(other))
			}
		}, [3]loader.State{loader.Different, loader.Different, loader.Different}, "", 0},
		{"a server without its record", func(t *testing.T) { put(t, f.addrs[2], string(buildA)) }, [3]loader.State{loader.Same, loader.Same, loader.Same}, "00000000000a", 1},
		{"no libraries", func(t *testing.T) {
			onEach(t, f.addrs, "FUNCTION", "FLUSH")
		}, [3]loader.State{loader.Absent, loader.Absent, loader.Absent}, "", 0},
		{"a deployer that died after it loaded one server", func(t *testing.T) { put(t, f.addrs[0], next) },
			[3]loader.State{loader.Same, loader.Different, loader.Different}, "00000000000c", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onEach(t, f.addrs, "FUNCTION", "FLUSH")
			must[loader.Report](t)(l.Deploy(ctx, buildA, loader.Options{}))
			before := texts(t, f.addrs[0])["ratelimit"]
			must[loader.Report](t)(l.Deploy(ctx, buildC, loader.Options{}))
			next = texts(t, f.addrs[0])["ratelimit"]
			for _, addr := range f.addrs {
				put(t, addr, before)
			}
			tt.before(t)
			report, err := l.Status(ctx, nil)
			var found [3]loader.State
			for i, n := range report.Nodes {
				found[i] = n.State
			}
			if err != nil || found != tt.states || report.Wanted.BuildID != tt.wanted {
				t.Errorf("%v, wanted %+v\n%s", err, report.Wanted, states(report))
			}
			if len(report.Notes) != tt.notes || tt.notes > 0 && !errors.Is(report.Notes[0], loader.ErrNoRecord) {
				t.Errorf("%v", report.Notes)
			}
		})
	}
	if _, err := l.Status(ctx, functions.Build{}); !errors.Is(err, loader.ErrBadBuild) {
		t.Error(err)
	}
	f.stop[1]()
	report, err := l.Status(ctx, nil)
	if want(t, "a server that stopped", err, nodes.ErrUnreachable); report.Wanted.BuildID == "" || report.Nodes[1].State != loader.Unreachable {
		t.Errorf("%+v\n%s", report.Wanted, states(report))
	}
}

// Status without a build compares the policies of all namespaces, and reports the build that a rollback of the
// Loader's namespace would restore.
func TestDriftOfNamespaces(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	plain, payments := newLoader(t, f.ring), in(t, f.ring, "payments")
	must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 1/s"), loader.Options{}))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 2/s"), loader.Options{}))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 3/s"), loader.Options{}))
	for _, l := range []*loader.Loader{plain, payments} {
		if report := must[loader.Report](t)(l.Status(ctx, nil)); !report.InStep() || len(report.Notes) != 0 {
			t.Errorf("%v\n%s", report.Notes, states(report))
		}
	}
	back := must[loader.Report](t)(payments.PlanRollback(ctx, loader.Options{})).Wanted
	put(t, f.addrs[2], set(t, "api 1/s, payments/api 4/s").Text())
	report := must[loader.Report](t)(payments.Status(ctx, nil))
	if slices.IndexFunc(report.Nodes, func(n loader.Node) bool { return n.State != loader.Same }) != 2 || report.Nodes[0].Previous != back {
		t.Errorf("%+v\n%s", report.Nodes[0].Previous, states(report))
	}
}

// A file whose policies were edited by hand may list them in another order. As soon as a namespace has
// policies, too, the text would have them sorted, and its part would no longer have its number. So
// such a file is refused.
func TestUnsortedPolicies(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	good := set(t, "a 1/m, b 2/m").Text()
	edited := strings.Replace(strings.Replace(good, "  ['b'] = { '2/m' },\n", "", 1), "  ['a'] = ", "  ['b'] = { '2/m' },\n  ['a'] = ", 1)
	if list, err := functions.ReadPolicies(edited); err != nil || edited == good || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	_, err := newLoader(t, f.ring).Deploy(ctx, loader.Text(edited), loader.Options{})
	if !errors.Is(err, loader.ErrBadBuild) || err.Error() != "the policies of the build are not in the order and form in which functions.New writes them; make it with functions.New" {
		t.Errorf("%v", err)
	}
	for _, addr := range f.addrs {
		if len(texts(t, addr)) != 0 {
			t.Errorf("%s has changed", addr)
		}
	}

	// If the file was loaded by hand, a rollback brings it back sorted.
	for _, addr := range f.addrs {
		put(t, addr, edited)
	}
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(ctx, set(t, "a 1/m, b 3/m"), loader.Options{}))
	back := must[loader.Report](t)(l.Status(ctx, nil)).Nodes[0].Previous
	if report, err := l.Rollback(ctx, loader.Options{}); err != nil || report.Wanted != back {
		t.Errorf("%v: %s, and Status said %s", err, report.Wanted, back)
	}
	must[loader.Report](t)(in(t, f.ring, "payments").Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	if got := must[text.Text](t)(text.Parse(texts(t, f.addrs[0])["ratelimit"])); got.Parts[""].Number == 0 {
		t.Error("the part has lost its number")
	}
	must[loader.Report](t)(l.Rollback(ctx, loader.Options{}))
	allRun(t, f.addrs, "a 1/m, b 3/m, payments/api 1/m")
}
