package loader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// put loads a library by hand, without a deployment.
func put(t *testing.T, addr, code string) {
	t.Helper()
	require(t, at(t, addr).FunctionLoadReplace(t.Context(), code).Err())
}

// texts returns the source code of each library on a server, by name.
func texts(t *testing.T, addr string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, l := range must[[]redis.Library](t)(at(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{WithCode: true}).Result()) {
		found[l.Name] = l.Code
	}
	return found
}

var buildA, buildB, buildC = version("0.1.0", "00000000000a"), version("0.1.0", "00000000000b"), version("0.1.0", "00000000000c")

// A deployment that only repairs a server leaves the record for a rollback unchanged, regardless of
// what the server lost.
func TestRepairKeepsTheWayBack(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	var afterA map[string]string // the libraries of a server that got build A but missed build B
	for _, tt := range []struct {
		name string
		lose func(t *testing.T)
		lost int // number of servers on which the library must be loaded again
	}{
		{"one server has nothing", func(t *testing.T) { mustRun(t, at(t, f.addrs[1]), "FUNCTION", "FLUSH") }, 1},
		{"the leader has nothing", func(t *testing.T) { mustRun(t, at(t, f.addrs[0]), "FUNCTION", "FLUSH") }, 1},
		{"two servers have nothing", func(t *testing.T) {
			onEach(t, f.addrs[:2], "FUNCTION", "FLUSH")
		}, 2},
		{"one server lost the library alone", func(t *testing.T) { mustRun(t, at(t, f.addrs[1]), "FUNCTION", "DELETE", "ratelimit") }, 1},
		{"all servers lost the library alone", func(t *testing.T) {
			onEach(t, f.addrs, "FUNCTION", "DELETE", "ratelimit")
		}, 3},
		{"one server lost the library, the others all", func(t *testing.T) {
			mustRun(t, at(t, f.addrs[0]), "FUNCTION", "DELETE", "ratelimit")
			onEach(t, f.addrs[1:], "FUNCTION", "FLUSH")
		}, 3},
		{"a replica that missed the last deployment took over", func(t *testing.T) {
			mustRun(t, at(t, f.addrs[2]), "FUNCTION", "FLUSH")
			for _, code := range afterA {
				put(t, f.addrs[2], code)
			}
		}, 1},
		{"a replica that got half of the last deployment took over", func(t *testing.T) { put(t, f.addrs[2], string(buildA)) }, 1},
		{"somebody loaded another text on one server", func(t *testing.T) { put(t, f.addrs[0], string(version("0.0.9", "000000000009"))) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must[loader.Report](t)(l.Delete(ctx))
			must[loader.Report](t)(l.Deploy(ctx, buildA))
			afterA = texts(t, f.addrs[2])
			must[loader.Report](t)(l.Deploy(ctx, buildB))
			tt.lose(t)
			report := must[loader.Report](t)(l.Deploy(ctx, buildB))
			if !report.InStep() || report.Changed() != tt.lost {
				t.Errorf("%d servers were loaded, want %d\n%s", report.Changed(), tt.lost, states(report))
			}
			for _, n := range report.Nodes {
				if n.Previous.BuildID != "00000000000a" {
					t.Errorf("%s would go back to %s", n.Addr, n.Previous)
				}
			}
			rollBack(t, l, buildA, buildB)
		})
	}
}

// If one server is empty and all others already run a build, a deployment of that build replaces
// nothing. So there is no build to roll back to.
func TestNothingWasReplaced(t *testing.T) {
	f := startThree(t, redis.Options{})
	l := newLoader(t, f.ring)
	for _, addr := range f.addrs[:2] {
		put(t, addr, string(buildB))
	}
	report := must[loader.Report](t)(l.Deploy(t.Context(), buildB))
	if n := report.Nodes[2]; report.Changed() != 1 || n.Previous.Digest != "" {
		t.Errorf("%+v", n)
	}
	if _, err := l.Rollback(t.Context()); !errors.Is(err, loader.ErrNothingKept) {
		t.Error(err)
	}
}

// A rollback restores all servers even if one of them has lost everything, and a second rollback
// undoes the first.
func TestRollbackWhereAServerLostAll(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(ctx, buildA))
	must[loader.Report](t)(l.Deploy(ctx, buildB))
	for i, back := range []loader.Text{buildA, buildB, buildA} {
		mustRun(t, at(t, f.addrs[i]), "FUNCTION", "FLUSH")
		rollBack(t, l, back)
	}
	// A server that lost everything after a rollback gets back what the other servers have.
	mustRun(t, at(t, f.addrs[0]), "FUNCTION", "FLUSH")
	report := must[loader.Report](t)(l.Rollback(ctx, loader.To("00000000000a")))
	for _, n := range report.Nodes {
		if n.Running.BuildID != "00000000000a" || n.Previous.BuildID != "00000000000b" {
			t.Errorf("%+v", n)
		}
	}
}

// If records disagree about what a deployment replaced, a higher deployment number alone does not
// make a record valid.
func TestRecordsThatDisagree(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	record := func(t *testing.T, addr, deployment, deployed, replaced string) string {
		t.Helper()
		code := texts(t, addr)["ratelimit_previous"]
		head, rest, _ := strings.Cut(code, "\nlocal TEXT = ")
		_, tail, ok := strings.Cut(rest, "\nredis.register_function{")
		if !ok || !strings.Contains(head, "local DEPLOYMENT = 2\nlocal DEPLOYED = '"+functions.Digest(string(buildB))+"'\n") {
			t.Fatalf("the record is not as this test expects it:\n%.300s", code)
		}
		head = strings.Replace(head, "local DEPLOYMENT = 2\n", "local DEPLOYMENT = "+deployment+"\n", 1)
		head = strings.Replace(head, functions.Digest(string(buildB)), functions.Digest(deployed), 1)
		return head + "\nlocal TEXT = " + string(luastring.Append(nil, replaced)) + "\nredis.register_function{" + tail
	}
	for _, tt := range []struct {
		name    string
		disturb func(t *testing.T)
		want    string // expected build ID or error
	}{
		{"a deployment of before this was mended found nothing on one server",
			func(t *testing.T) { put(t, f.addrs[1], record(t, f.addrs[1], "3", string(buildB), "")) }, "00000000000a"},
		{"a record is left of a deployment that did not get further",
			func(t *testing.T) { put(t, f.addrs[0], record(t, f.addrs[0], "3", string(buildC), string(buildB))) }, "00000000000a"},
		{"a shard joined that was deployed to elsewhere", func(t *testing.T) {
			put(t, f.addrs[1], record(t, f.addrs[1], "7", string(buildC), string(version("0.1.0", "00000000000d"))))
			put(t, f.addrs[1], string(buildC))
			must[loader.Report](t)(l.Deploy(ctx, buildB))
		}, "0.1.0 build 00000000000a and 0.1.0 build 00000000000c"},
		{"the servers ran different builds, and one none", func(t *testing.T) {
			mustRun(t, at(t, f.addrs[0]), "FUNCTION", "FLUSH")
			put(t, f.addrs[1], string(buildC))
			must[loader.Report](t)(l.Deploy(ctx, version("0.1.0", "00000000000d")))
		}, "0.1.0 build 00000000000c and 0.1.0 build 00000000000b"},
		{"somebody loaded another text on all", func(t *testing.T) {
			for _, addr := range f.addrs {
				put(t, addr, string(buildC))
			}
		}, "00000000000a"},
		{"somebody loaded another text on all, and this build was deployed again", func(t *testing.T) {
			for _, addr := range f.addrs {
				put(t, addr, string(buildC))
			}
			must[loader.Report](t)(l.Deploy(ctx, buildB))
		}, "00000000000c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must[loader.Report](t)(l.Delete(ctx))
			must[loader.Report](t)(l.Deploy(ctx, buildA))
			must[loader.Report](t)(l.Deploy(ctx, buildB))
			tt.disturb(t)
			report, err := l.Rollback(ctx)
			if errors.Is(err, loader.ErrSeveralKept) && strings.Contains(err.Error(), " "+tt.want+" ") {
				return
			}
			if err != nil || !report.InStep() || report.Wanted.BuildID != tt.want {
				t.Errorf("%v\n%s", err, states(report))
			}
		})
	}
}

// In a cluster, an empty primary that joins gets the library, and the record for a rollback.
func TestRepairOfAShardThatJoined(t *testing.T) {
	addrs, _ := startCluster(t, 2, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, at(t, addrs[0]))
	must[loader.Report](t)(l.Deploy(ctx, buildA))
	must[loader.Report](t)(l.Deploy(ctx, buildB))
	joined, _ := startRedis(t, "--cluster-enabled", "yes")
	host, port := hostPort(joined)
	require(t, at(t, addrs[0]).ClusterMeet(ctx, host, port).Err())
	var report loader.Report
	eventually(t, "the cluster lists the node that joined, and it lists the cluster", func() bool {
		var err error
		report, err = l.Status(ctx, buildB)
		seen := at(t, joined).ClusterInfo(ctx).Val()
		return err == nil && len(report.Nodes) == 4 && strings.Contains(seen, "cluster_known_nodes:4")
	})
	if at := slices.IndexFunc(report.Nodes, func(n loader.Node) bool { return n.Addr == joined }); at < 0 || report.Nodes[at].State != loader.Absent {
		t.Errorf("%s", states(report))
	}
	report = must[loader.Report](t)(l.Deploy(ctx, buildB))
	for _, n := range report.Nodes {
		if n.Changed != (n.Addr == joined) || n.Previous.BuildID != "00000000000a" {
			t.Errorf("%+v", n)
		}
	}
	report, err := l.Rollback(ctx)
	if err != nil || !report.InStep() || report.Changed() != 4 || report.Wanted.BuildID != "00000000000a" {
		t.Errorf("%v\n%s", err, states(report))
	}
}
