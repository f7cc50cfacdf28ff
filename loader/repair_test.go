package loader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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
		{"a replica that missed the last deployment took over", func(t *testing.T) {
			mustRun(t, at(t, f.addrs[2]), "FUNCTION", "FLUSH")
			for _, code := range afterA {
				put(t, f.addrs[2], code)
			}
		}, 1},
		{"somebody loaded another text on one server", func(t *testing.T) { put(t, f.addrs[0], string(version("0.0.9", "000000000009"))) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must[loader.Report](t)(l.Delete(ctx, loader.Options{}))
			must[loader.Report](t)(l.Deploy(ctx, buildA, loader.Options{}))
			afterA = texts(t, f.addrs[2])
			must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
			tt.lose(t)
			report := must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
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
	report := must[loader.Report](t)(l.Deploy(t.Context(), buildB, loader.Options{}))
	if n := report.Nodes[2]; report.Changed() != 1 || n.Previous.Digest != "" {
		t.Errorf("%+v", n)
	}
	if _, err := l.Rollback(t.Context(), loader.Options{}); !errors.Is(err, loader.ErrNothingKept) {
		t.Error(err)
	}
}

// A rollback restores all servers even if one of them has lost everything, and a second rollback
// undoes the first.
func TestRollbackWhereAServerLostAll(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring)
	must[loader.Report](t)(l.Deploy(ctx, buildA, loader.Options{}))
	must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
	for i, back := range []loader.Text{buildA, buildB, buildA} {
		mustRun(t, at(t, f.addrs[i]), "FUNCTION", "FLUSH")
		rollBack(t, l, back)
	}
	// A server that lost everything after a rollback gets back what the other servers have.
	mustRun(t, at(t, f.addrs[0]), "FUNCTION", "FLUSH")
	report := must[loader.Report](t)(l.Deploy(ctx, buildA, loader.Options{}))
	for _, n := range report.Nodes {
		if n.Running.BuildID != "00000000000a" || n.Previous.BuildID != "00000000000b" {
			t.Errorf("%+v", n)
		}
	}
}

// In a cluster, an empty primary that joins gets the library, and the record for a rollback.
func TestRepairOfAShardThatJoined(t *testing.T) {
	addrs, _ := startCluster(t, 2, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, at(t, addrs[0]))
	must[loader.Report](t)(l.Deploy(ctx, buildA, loader.Options{}))
	must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
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
	report = must[loader.Report](t)(l.Deploy(ctx, buildB, loader.Options{}))
	for _, n := range report.Nodes {
		if n.Changed != (n.Addr == joined) || n.Previous.BuildID != "00000000000a" {
			t.Errorf("%+v", n)
		}
	}
	report, err := l.Rollback(ctx, loader.Options{})
	if err != nil || !report.InStep() || report.Changed() != 4 || report.Wanted.BuildID != "00000000000a" {
		t.Errorf("%v\n%s", err, states(report))
	}
}
