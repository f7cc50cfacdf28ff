package loader_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// set returns a build with the policies in a text such as "payments/api 5/m, search/x 1/s".
func set(t testing.TB, policies string) functions.Build {
	t.Helper()
	var list []functions.Policy
	for _, text := range strings.Split(policies, ", ") {
		if name, limit, ok := strings.Cut(text, " "); ok {
			list = append(list, functions.Policy{Name: name, Limits: []functions.PolicyLimit{{Limit: limit}}})
		}
	}
	return must[functions.Build](t)(functions.New(functions.WithPolicies(list...)))
}

// runs returns the policies on each server as text, such as "payments/api 5/m, search/x 1/s", or "-"
// for a server without the library.
func runs(t testing.TB, addrs []string) []string {
	t.Helper()
	var found []string
	for _, addr := range addrs {
		code := ""
		for _, l := range must[[]redis.Library](t)(at(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "ratelimit", WithCode: true}).Result()) {
			code = l.Code
		}
		found = append(found, policiesIn(t, code))
	}
	return found
}

func policiesIn(t testing.TB, code string) string {
	t.Helper()
	if code == "" {
		return "-"
	}
	var parts []string
	for _, p := range must[[]functions.Policy](t)(functions.ReadPolicies(code)) {
		parts = append(parts, p.Name+" "+p.Limits[0].Limit)
	}
	return strings.Join(parts, ", ")
}

// allRun checks that all servers run the same policies.
func allRun(t testing.TB, addrs []string, want string) {
	t.Helper()
	for i, got := range runs(t, addrs) {
		if got != want {
			t.Errorf("%s runs %q, want %q", addrs[i], got, want)
		}
	}
}

func in(t testing.TB, rdb redis.UniversalClient, namespace string, opts ...option) *loader.Loader {
	t.Helper()
	return newLoader(t, rdb, append(opts, func(c *loader.Config) { c.Namespace = namespace })...)
}

func TestNamespaces(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	plain, payments, search := newLoader(t, f.ring), in(t, f.ring, "payments"), in(t, f.ring, "search")
	deploy := func(l *loader.Loader, build loader.Build, want string, opts ...loader.Options) loader.Report {
		t.Helper()
		report, err := l.Deploy(ctx, build, slices.Concat(opts, []loader.Options{{}})[0])
		if err != nil || !report.InStep() {
			t.Fatalf("%v\n%s", err, states(report))
		}
		allRun(t, f.addrs, want)
		return report
	}
	deploy(payments, set(t, "payments/api 5/m, payments/b 1/s"), "payments/api 5/m, payments/b 1/s") // also loads the library's code
	report := deploy(search, set(t, "search/x 1/s"), "payments/api 5/m, payments/b 1/s, search/x 1/s")
	if changes := describeChanges(report.Nodes[0].Changes); changes != "policy search/x added: >1/s\n" {
		t.Errorf("%s", changes)
	}
	deploy(plain, set(t, "api 1/d"), "api 1/d, payments/api 5/m, payments/b 1/s, search/x 1/s")

	// Each Loader sees and changes only the policies of its namespace.
	for _, tt := range []struct {
		l     *loader.Loader
		build loader.Build
	}{{plain, set(t, "api 1/d")}, {payments, set(t, "payments/api 5/m, payments/b 1/s")}, {search, set(t, "search/x 1/s")}} {
		if status := must[loader.Report](t)(tt.l.Status(ctx, tt.build)); !status.InStep() || len(status.Notes) > 0 {
			t.Errorf("%s", states(status))
		}
		if plan := must[loader.Report](t)(tt.l.Plan(ctx, tt.build, loader.Options{})); !plan.InStep() {
			t.Errorf("%+v", plan)
		}
	}
	if status := must[loader.Report](t)(payments.Status(ctx, set(t, "payments/api 6/m"))); status.InStep() || status.Nodes[0].State != loader.Different {
		t.Errorf("%s", states(status))
	}

	// Without RemovePolicies, a deployment must not remove a policy of its own namespace. Policies of
	// other namespaces stay on the servers, although the build does not have them.
	_, err := payments.Deploy(ctx, set(t, "payments/api 6/m"), loader.Options{})
	if e := want(t, "removed", err, loader.ErrRemovesPolicies); !slices.Equal(e.Policies, []string{"payments/b"}) {
		t.Errorf("%v", e)
	}
	deploy(payments, set(t, "payments/api 6/m"), "api 1/d, payments/api 6/m, search/x 1/s", loader.Options{RemovePolicies: true})
	_, err = plain.Deploy(ctx, set(t, ""), loader.Options{})
	if e := want(t, "removed", err, loader.ErrRemovesPolicies); !slices.Equal(e.Policies, []string{"api"}) {
		t.Errorf("%v", e)
	}

	// A rollback restores the previous policies of the namespace, and a second rollback undoes the
	// first.
	deploy(search, set(t, "search/x 2/s"), "api 1/d, payments/api 6/m, search/x 2/s")
	must[loader.Report](t)(payments.Rollback(ctx, loader.Options{}))
	allRun(t, f.addrs, "api 1/d, payments/api 5/m, payments/b 1/s, search/x 2/s")
	_, err = payments.Rollback(ctx, loader.Options{})
	want(t, "guarded", err, loader.ErrRemovesPolicies)
	if plan, err := payments.PlanRollback(ctx, loader.Options{}); !errors.Is(err, loader.ErrRemovesPolicies) || action(plan.Nodes[0]) != "refuse" {
		t.Errorf("%v, %+v", err, plan)
	}
	plan := must[loader.Report](t)(payments.PlanRollback(ctx, loader.Options{RemovePolicies: true}))
	if got := describeChanges(plan.Nodes[2].Changes); got != "policy payments/api changed: 5/m>6/m\npolicy payments/b removed: 1/s>\n" {
		t.Error(got)
	}
	report = must[loader.Report](t)(payments.Rollback(ctx, loader.Options{RemovePolicies: true}))
	if report.Wanted.Digest != plan.Wanted.Digest || plan.Nodes[0].Previous != plan.Wanted {
		t.Errorf("%+v\n%+v", report.Wanted, plan.Nodes[0])
	}
	allRun(t, f.addrs, "api 1/d, payments/api 6/m, search/x 2/s")

	// A new build of the library, and its rollback, keep all namespaces.
	newer := strings.Replace(set(t, "api 1/d").Text(), "local VERSION = '"+functions.Version()+"'", "local VERSION = '9.0.0'", 1)
	deploy(plain, loader.Text(newer), "api 1/d, payments/api 6/m, search/x 2/s")
	deploy(payments, set(t, "payments/api 7/m"), "api 1/d, payments/api 7/m, search/x 2/s") // keeps the newer code
	if status := must[loader.Report](t)(payments.Status(ctx, set(t, "payments/api 7/m"))); status.Nodes[0].Running.Version != "9.0.0" {
		t.Errorf("%s", states(status))
	}
	report = must[loader.Report](t)(plain.Rollback(ctx, loader.Options{}))
	if report.Wanted.Version != functions.Version() {
		t.Errorf("%+v", report.Wanted)
	}
	allRun(t, f.addrs, "api 1/d, payments/api 7/m, search/x 2/s")
	must[loader.Report](t)(search.Rollback(ctx, loader.Options{}))
	allRun(t, f.addrs, "api 1/d, payments/api 7/m, search/x 1/s")

	// A server that lost everything gets everything back, regardless of which Loader deploys.
	mustRun(t, at(t, f.addrs[0]), "FUNCTION", "FLUSH")
	deploy(search, set(t, "search/x 1/s"), "api 1/d, payments/api 7/m, search/x 1/s")

	// A deployment without policies removes the namespace.
	deploy(search, set(t, ""), "api 1/d, payments/api 7/m", loader.Options{RemovePolicies: true})
}

func TestNamespacesThatCannotBe(t *testing.T) {
	rdb := at(t, "127.0.0.1:1")
	for _, name := range []string{"..", "Payments", "a/b", "ä", strings.Repeat("a", 65)} {
		if _, err := loader.New(rdb, loader.Config{Namespace: name}); err == nil || !strings.HasPrefix(err.Error(), "loader.New: the namespace ") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, tt := range []struct {
		l     *loader.Loader
		build loader.Build
		want  string
	}{
		{newLoader(t, rdb), set(t, "payments/api 5/m"), "the build has the policy payments/api of the namespace payments; deploy the policies of a namespace with Config.Namespace, and the library without them"},
		{in(t, rdb, "search"), set(t, "payments/api 5/m"), "the build has the policy payments/api, which is not in the namespace search; deploy it without the policies of others"},
		{in(t, rdb, "search"), set(t, "api 5/m"), "the build has the policy api, which is not in the namespace search; deploy it without the policies of others"},
		{in(t, rdb, "search"), loader.Text("#!lua name=ratelimit\nlocal VERSION = '1'\nlocal BUILD_ID = '2'\n"), "the policies of the build cannot be read; make it with functions.New"},
	} {
		for _, call := range []func() error{
			func() error { _, err := tt.l.Deploy(t.Context(), tt.build, loader.Options{}); return err },
			func() error { _, err := tt.l.Plan(t.Context(), tt.build, loader.Options{}); return err },
			func() error { return tt.l.Repair(t.Context(), tt.build) },
		} {
			if err := call(); !errors.Is(err, loader.ErrBadBuild) || err.Error() != tt.want {
				t.Errorf("%v\nwant %s", err, tt.want)
			}
		}
	}
}

// In a namespace, Delete removes the policies of that namespace, and loads nothing on a server
// without the library. Rollback brings the policies back.
func TestDeleteOfANamespace(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	rdb := at(t, addr)
	if report, err := in(t, rdb, "payments").Delete(ctx, loader.Options{}); err != nil || report.Changed() != 0 || texts(t, addr)["ratelimit"] != "" {
		t.Errorf("%v\n%s", err, states(report))
	}
	must[loader.Report](t)(newLoader(t, rdb).Deploy(ctx, set(t, "api 1/m"), loader.Options{}))
	must[loader.Report](t)(in(t, rdb, "payments").Deploy(ctx, set(t, "payments/api 2/m"), loader.Options{}))
	report := must[loader.Report](t)(in(t, rdb, "search").Delete(ctx, loader.Options{}))
	if report.Changed() != 0 || strings.Join(report.Nodes[0].Policies, " ") != "api payments/api" {
		t.Errorf("%s, %v", states(report), report.Nodes[0].Policies)
	}
	if report = must[loader.Report](t)(in(t, rdb, "payments").Delete(ctx, loader.Options{})); report.Changed() != 1 {
		t.Errorf("%s", states(report))
	}
	allRun(t, []string{addr}, "api 1/m")
	must[loader.Report](t)(in(t, rdb, "payments").Rollback(ctx, loader.Options{}))
	allRun(t, []string{addr}, "api 1/m, payments/api 2/m")
}

// A deployment of any namespace completes an earlier one that reached only some servers. Of texts
// without a header, the greater one counts.
func TestNamespacesOfServersThatDisagree(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	payments, search := in(t, f.ring, "payments"), in(t, f.ring, "search")
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 1/m, payments/b 1/m"), loader.Options{}))
	must[loader.Report](t)(search.Deploy(ctx, set(t, "search/x 1/s"), loader.Options{}))
	before := texts(t, f.addrs[0])["ratelimit"]
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 2/m"), loader.Options{RemovePolicies: true}))
	after := texts(t, f.addrs[0])["ratelimit"]
	byHand := set(t, "payments/api 9/m").Text()
	for _, tt := range []struct {
		name  string
		texts [3]string
	}{
		{"one has it", [3]string{after, before, before}},
		{"the last has it", [3]string{before, before, after}},
		{"one has nothing", [3]string{"", before, after}},
		{"one was loaded by hand", [3]string{byHand, before, after}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, addr := range f.addrs {
				mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
				if tt.texts[i] != "" {
					put(t, addr, tt.texts[i])
				}
			}
			report, err := search.Deploy(ctx, set(t, "search/x 3/s"), loader.Options{})
			if err != nil || !report.InStep() {
				t.Errorf("%v\n%s", err, states(report))
			}
			allRun(t, f.addrs, "payments/api 2/m, search/x 3/s")
			// The policies that the unfinished deployment replaced can still be restored.
			must[loader.Report](t)(payments.Rollback(ctx, loader.Options{}))
			allRun(t, f.addrs, "payments/api 1/m, payments/b 1/m, search/x 3/s")
		})
	}
}

// Deployments of several namespaces and of the library that start at the same time all succeed, and
// none of them removes what another one deploys.
func TestNamespacesAtOnce(t *testing.T) {
	f := startThree(t, redis.Options{})
	names := []string{"payments", "search", "mail", "users"}
	for round := range 3 {
		var wg sync.WaitGroup
		for _, name := range names {
			l := in(t, f.ring, name)
			build := set(t, fmt.Sprintf("%s/api %d/m", name, round+1))
			wg.Go(func() {
				if report, err := l.Deploy(t.Context(), build, loader.Options{}); err != nil || report.Changed() == 0 {
					t.Errorf("round %d, %s: %v", round, name, err)
				}
			})
		}
		wg.Wait()
		n := round + 1
		allRun(t, f.addrs, fmt.Sprintf("mail/api %d/m, payments/api %d/m, search/api %d/m, users/api %d/m", n, n, n, n))
	}
}

// A watch, whether of a namespace or of the library, restores the policies of all namespaces. It
// keeps the policies that another Loader deploys.
func TestWatchOfNamespaces(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	payments := in(t, f.ring, "payments", every(often))
	plain := newLoader(t, f.ring, every(often))
	search := in(t, f.ring, "search")
	must[loader.Report](t)(plain.Deploy(ctx, set(t, "api 1/d"), loader.Options{}))
	must[loader.Report](t)(payments.Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	for name, tt := range map[string]struct {
		l     *loader.Loader
		build loader.Build
	}{"namespace": {payments, set(t, "payments/api 1/m")}, "library": {plain, set(t, "api 1/d")}} {
		t.Run(name, func(t *testing.T) {
			must[loader.Report](t)(search.Deploy(ctx, set(t, "search/x 1/s"), loader.Options{}))
			w := startWatch(t, tt.l, tt.build)
			w.waitFor(t, f.addrs[0], loader.InStep, 1)
			must[loader.Report](t)(search.Deploy(ctx, set(t, "search/x 2/s"), loader.Options{}))
			mustRun(t, at(t, f.addrs[1]), "FUNCTION", "FLUSH")
			w.waitFor(t, f.addrs[1], loader.Repaired, 1)
			allRun(t, f.addrs, "api 1/d, payments/api 1/m, search/x 2/s")
			if n, last := w.count(f.addrs[0], loader.Left); n > 0 && !errors.Is(last.Err, loader.ErrLeased) {
				t.Errorf("%s", last.Text)
			}
		})
	}
	t.Run("all servers lost everything", func(t *testing.T) {
		w := startWatch(t, payments, set(t, "payments/api 1/m"))
		w.waitFor(t, f.addrs[0], loader.InStep, 1)
		onEach(t, f.addrs, "FUNCTION", "FLUSH")
		for _, addr := range f.addrs {
			w.waitFor(t, addr, loader.Repaired, 1)
		}
		allRun(t, f.addrs, "api 1/d, payments/api 1/m, search/x 2/s")
	})
	t.Run("another deployment of the namespace", func(t *testing.T) {
		w := startWatch(t, payments, set(t, "payments/api 1/m"))
		w.waitFor(t, f.addrs[0], loader.InStep, 1)
		must[loader.Report](t)(in(t, f.ring, "payments").Deploy(ctx, set(t, "payments/api 2/m"), loader.Options{}))
		mustRun(t, at(t, f.addrs[1]), "FUNCTION", "FLUSH")
		w.waitFor(t, f.addrs[1], loader.Repaired, 1)
		allRun(t, f.addrs, "api 1/d, payments/api 2/m, search/x 2/s")
	})
}

// If all servers and records are lost, each watched namespace is restored.
func TestNamespacesComeBackOneByOne(t *testing.T) {
	addr, _ := startRedis(t)
	for _, name := range []string{"payments", "search", "payments", "mail"} {
		if err := in(t, at(t, addr), name).Repair(t.Context(), set(t, name+"/api 1/m")); err != nil {
			t.Error(err)
		}
	}
	allRun(t, []string{addr}, "mail/api 1/m, payments/api 1/m, search/api 1/m")
	// What the server has is not older than the file of a watch.
	require(t, in(t, at(t, addr), "mail").Repair(t.Context(), set(t, "mail/api 2/m")))
	require(t, newLoader(t, at(t, addr)).Repair(t.Context(), set(t, "api 2/m")))
	allRun(t, []string{addr}, "mail/api 1/m, payments/api 1/m, search/api 1/m")
}

// The size limits of a build apply to all namespaces together. If the policies in a server's
// library cannot be read, a deployment fails, because it could not keep them.
func TestNamespacesThatDoNotFit(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	var most []functions.Policy
	for i := range functions.MostPolicies {
		most = append(most, functions.Policy{Name: fmt.Sprintf("team%d/api", i), Limits: []functions.PolicyLimit{{Limit: "100/m"}}})
	}
	full := must[functions.Build](t)(functions.New(functions.WithPolicies(most...)))
	put(t, addr, full.Text())
	must[loader.Report](t)(in(t, at(t, addr), "team77").Deploy(ctx, set(t, "team77/api 5/m"), loader.Options{}))
	if got := runs(t, []string{addr})[0]; !strings.Contains(got, ", team77/api 5/m, ") || strings.Count(got, "100/m") != functions.MostPolicies-1 {
		t.Errorf("%.1000s", got)
	}
	long := strings.Repeat("a", 64)
	const begin = " cannot take this build together with the policies of other namespaces on it: "
	for _, tt := range []struct{ name, text, want string }{
		{"too many", full.Text(), begin + "10001 policies; a build has at most 10000"},
		{"policies that cannot be read", strings.Replace(full.Text(), "'100/m' }", "'100/m'}", 1), " has a library \"ratelimit\" that this program cannot read (the policies of namespaces in it cannot be read: functions: the text has no table of policies in the form that New writes); delete it there with FUNCTION DELETE ratelimit, and deploy again"},
		{"too large", nearlyTooLarge(t), begin + "the library would have "},
	} {
		put(t, addr, tt.text)
		for l, build := range map[*loader.Loader]functions.Build{
			in(t, at(t, addr), "one-more"): set(t, "one-more/"+long+" 1/m"), newLoader(t, at(t, addr)): set(t, long+" 1/m"),
		} {
			_, err := l.Deploy(ctx, build, loader.Options{})
			if e := want(t, tt.name, err, nil); !strings.HasPrefix(e.Error(), addr+tt.want) {
				t.Error(e)
			}
		}
		if got := texts(t, addr)["ratelimit"]; got != tt.text {
			t.Errorf("%s: the library changed", tt.name)
		}
	}
}

// nearlyTooLarge returns a build of nearly 2 MiB with policies in namespaces.
func nearlyTooLarge(t *testing.T) string {
	t.Helper()
	var list []functions.Policy
	text := ""
	for bytes, add := 1000, 512; bytes > 0; {
		more := list
		for range add {
			more = append(more, functions.Policy{Name: fmt.Sprintf("team%d/api", len(more)), Limits: []functions.PolicyLimit{{Limit: strings.Repeat("1", bytes)}}})
		}
		build, err := functions.New(functions.WithPolicies(more...))
		switch {
		case err == nil:
			list, text = more, build.Text()
		case add > 1:
			add /= 2
		default:
			bytes /= 2
		}
	}
	return text
}
