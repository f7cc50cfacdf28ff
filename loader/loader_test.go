package loader_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

func TestNewRefuses(t *testing.T) {
	rdb := at(t, "127.0.0.1:1")
	ap := must[*redis.AutoPipeliner](t)(rdb.AutoPipeline())
	t.Cleanup(func() { _ = ap.Close() })
	nowhere := redis.NewClusterClient(&redis.ClusterOptions{})
	t.Cleanup(func() { _ = nowhere.Close() })
	for _, tt := range []struct {
		rdb redis.UniversalClient
		c   loader.Config
	}{
		{nil, loader.Config{}},
		{ap, loader.Config{}},
		{nowhere, loader.Config{}},
		{rdb, loader.Config{Interval: -time.Second}},
		{rdb, loader.Config{Timeout: -time.Second}},
	} {
		if l, err := loader.New(tt.rdb, tt.c); l != nil || err == nil {
			t.Errorf("%T: %v, %v", tt.rdb, l, err)
		}
	}
}

func TestStandalone(t *testing.T) {
	addr, _ := startRedis(t)
	rdb := at(t, addr)
	l := newLoader(t, rdb)
	b := build(t)
	ctx := t.Context()
	node := loader.Node{Addr: addr, Role: "primary", Engine: "redis", ServerVersion: "7.0.15"}
	version := must[string](t)(rdb.Info(ctx, "server").Result())
	_, version, _ = strings.Cut(version, "redis_version:")
	node.ServerVersion, _, _ = strings.Cut(version, "\r\n")
	oldText, oldLibrary := older(t)
	deploy := func(ctx context.Context, b loader.Build) (loader.Report, error) {
		return l.Deploy(ctx, b, loader.Options{})
	}

	for _, tt := range []struct {
		name    string
		do      func(context.Context, loader.Build) (loader.Report, error)
		before  func()
		state   loader.State
		running text.Library
		changed bool
	}{
		{"status of an empty server", l.Status, nil, loader.Absent, text.Library{}, false},
		{"first deploy", deploy, nil, loader.Same, wanted(b), true},
		{"second deploy", deploy, nil, loader.Same, wanted(b), false},
		{"status", l.Status, nil, loader.Same, wanted(b), false},
		{"status of an older build", l.Status, func() {
			require(t, rdb.FunctionLoadReplace(ctx, oldText).Err())
		}, loader.Different, oldLibrary, false},
		{"deploy over an older build", deploy, nil, loader.Same, wanted(b), true},
		{"deploy after FUNCTION FLUSH", deploy, func() { mustRun(t, rdb, "FUNCTION", "FLUSH") }, loader.Same, wanted(b), true},
		{"status of a stranger's library", l.Status, func() {
			require(t, rdb.FunctionLoadReplace(ctx, "#!lua name=ratelimit\nredis.register_function('f', function() return 1 end)").Err())
		}, loader.Different, text.Library{Digest: functions.Digest("#!lua name=ratelimit\nredis.register_function('f', function() return 1 end)")}, false},
	} {
		if tt.before != nil {
			tt.before()
		}
		report, err := tt.do(ctx, b)
		report.Nodes[0].Before, report.Nodes[0].Changes = text.Library{}, nil // TestPlan covers these
		node.State, node.Running, node.Changed, node.Previous = tt.state, tt.running, tt.changed, text.Library{}
		if tt.name == "deploy over an older build" {
			node.Previous = oldLibrary
		}
		expect := loader.Report{Topology: nodes.Standalone, Wanted: wanted(b), Nodes: []loader.Node{node}}
		if err != nil || !reflect.DeepEqual(report, expect) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", tt.name, err, report, expect)
		}
		if report.InStep() != (tt.state == loader.Same) {
			t.Errorf("%s: in step is %v", tt.name, report.InStep())
		}
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Errorf("the caller's client after all that: %v", err)
	}
}

func TestReportAsJSON(t *testing.T) {
	report := loader.Report{
		Topology: nodes.Cluster,
		Wanted:   text.Library{Version: "0.1.0", Contract: 1, BuildID: "b", Digest: "d"},
		Nodes: []loader.Node{
			{Addr: "a:1", Role: "primary", Engine: "redis", ServerVersion: "7.0.15", State: loader.Absent, Changed: true, Replicas: 1, Acked: 1,
				Changes: []loader.Change{{Kind: "policy", Name: "api", What: "removed", Old: "1/s"}}},
			{Addr: "a:2", State: loader.Unreachable, Err: errors.New("gone"), Taken: []loader.Taken{{Function: "ratelimit_take", Library: "theirs"}}},
		},
	}
	got := must[[]byte](t)(json.Marshal(report))
	expect := `{"topology":"cluster","wanted":{"version":"0.1.0","contract":1,"build_id":"b","digest":"d"},"nodes":[` +
		`{"addr":"a:1","role":"primary","engine":"redis","server_version":"7.0.15","state":"absent","running":{"version":"","contract":0,"build_id":"","digest":""},"before":{"version":"","contract":0,"build_id":"","digest":""},"changes":[{"kind":"policy","name":"api","what":"removed","old":"1/s"}],"previous":{"version":"","contract":0,"build_id":"","digest":""},"changed":true,"put_back":false,"replicas":1,"acked":1},` +
		`{"addr":"a:2","role":"","engine":"","server_version":"","state":"unreachable","running":{"version":"","contract":0,"build_id":"","digest":""},"before":{"version":"","contract":0,"build_id":"","digest":""},"previous":{"version":"","contract":0,"build_id":"","digest":""},"changed":false,"put_back":false,"replicas":0,"acked":0,` +
		`"taken":[{"function":"ratelimit_take","library":"theirs"}],"error":"gone"}]}`
	if string(got) != expect {
		t.Errorf("%s\nwant\n%s", got, expect)
	}
	if report.Changed() != 1 || report.InStep() || (loader.Report{}).InStep() {
		t.Errorf("changed %d, in step %v; want 1, false", report.Changed(), report.InStep())
	}
}

// startCluster starts primaries with an equal share of the slots each, and one primary without
// slots. auth holds a client's connection options.
func startCluster(t *testing.T, primaries int, auth redis.Options, args ...string) (addrs []string, stop []func()) {
	t.Helper()
	addrs, stop = make([]string, primaries+1), make([]func(), primaries+1)
	nodes := make([]*redis.Client, primaries+1)
	for i := range nodes {
		addrs[i], stop[i] = startRedis(t, append([]string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"}, args...)...)
		auth.Addr = addrs[i]
		nodes[i] = connect(t, auth)
	}
	redistest.Join(t, nodes, primaries)
	return addrs, stop
}

func TestCluster(t *testing.T) {
	addrs, stop := startCluster(t, 3, redis.Options{Password: "secret"}, "--requirepass", "secret")
	ctx := t.Context()
	b := build(t)

	// Deploy through a plain client for one node, here the primary without slots. The client's
	// password is valid for all nodes.
	plain := newLoader(t, connect(t, redis.Options{Addr: addrs[3], Password: "secret"}))
	report := must[loader.Report](t)(plain.Deploy(ctx, b, loader.Options{}))
	if report.Topology != nodes.Cluster || len(report.Nodes) != 4 || report.Changed() != 4 || !report.InStep() {
		t.Errorf("deploy through one node: %s\n%s", report.Topology, states(report))
	}
	for i, addr := range addrs {
		list := must[[]redis.Library](t)(connect(t, redis.Options{Addr: addr, Password: "secret"}).
			FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result())
		if at := slices.IndexFunc(list, func(l redis.Library) bool { return l.Name == functions.Name }); len(list) != 1 || text.Body(list[at].Code) != b.Text() {
			t.Errorf("node %d does not hold the build", i)
		}
	}

	// Deploy through a cluster client after one node has lost the library.
	mustRun(t, connect(t, redis.Options{Addr: addrs[1], Password: "secret"}), "FUNCTION", "FLUSH")
	cc := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", addrs[0]}, Password: "secret"})
	t.Cleanup(func() { _ = cc.Close() })
	l := newLoader(t, cc)
	report = must[loader.Report](t)(l.Status(ctx, b))
	for _, n := range report.Nodes {
		if (n.State == loader.Absent) != (n.Addr == addrs[1]) || n.Role != "primary" || n.Engine != "redis" {
			t.Errorf("status: %+v", n)
		}
	}
	if report.InStep() {
		t.Error("in step, while one node has no library")
	}
	report = must[loader.Report](t)(l.Deploy(ctx, b, loader.Options{}))
	for _, n := range report.Nodes {
		if n.Changed != (n.Addr == addrs[1]) || n.State != loader.Same {
			t.Errorf("deploy: %+v", n)
		}
	}

	// Use the caller's own list of the nodes.
	own := redis.NewClusterClient(&redis.ClusterOptions{
		Password: "secret",
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8000, Nodes: []redis.ClusterNode{{Addr: addrs[0]}, {Addr: addrs[1]}}},
				{Start: 8001, End: 9000, Nodes: []redis.ClusterNode{{Addr: addrs[2]}}},
				{Start: 9001, End: 16383, Nodes: []redis.ClusterNode{{Addr: addrs[0]}}},
			}, nil
		},
	})
	t.Cleanup(func() { _ = own.Close() })
	report = must[loader.Report](t)(newLoader(t, own).Status(ctx, b))
	if len(report.Nodes) != 2 || !report.InStep() || report.Topology != nodes.Cluster {
		t.Errorf("by the caller's list: %s\n%s", report.Topology, states(report))
	}

	// This user may not call CLUSTER SHARDS.
	mustRun(t, connect(t, redis.Options{Addr: addrs[0], Password: "secret"}), "ACL", "SETUSER", "half", "on", ">x",
		"+function|load", "+function|list", "+function|delete", "+function|stats")
	half := newLoader(t, connect(t, redis.Options{Addr: addrs[0], Username: "half", Password: "x"}))
	_, err := half.Status(ctx, b)
	want(t, "no shards", err, nodes.ErrNoPermission)

	// If a primary with slots is dead, nothing is written, and the error names the primary.
	oldText, oldLibrary := older(t)
	for _, addr := range addrs {
		require(t, connect(t, redis.Options{Addr: addr, Password: "secret"}).FunctionLoadReplace(ctx, oldText).Err())
	}
	stop[2]()
	report, err = l.Deploy(ctx, b, loader.Options{})
	want(t, "one node down", err, nodes.ErrUnreachable)
	for _, n := range report.Nodes {
		switch {
		case n.Addr == addrs[2]:
			if n.State != loader.Unreachable || n.Err == nil {
				t.Errorf("the dead node: %+v", n)
			}
		case n.State != loader.Different || n.Running != oldLibrary || n.Changed || n.Err != nil:
			t.Errorf("a live node: %+v", n)
		}
	}
	report, err = l.Status(ctx, b)
	want(t, "status with a node down", err, nodes.ErrUnreachable)
	if len(report.Nodes) != 4 {
		t.Errorf("%s", states(report))
	}
}

// A list of primaries from before a failover may name a node that is now a replica. The Loader uses
// the replica's primary instead.
func TestAReplicaInTheListIsReplacedByItsPrimary(t *testing.T) {
	primary, _ := startRedis(t)
	replica, _ := startRedis(t)
	host, port := hostPort(primary)
	mustRun(t, at(t, replica), "REPLICAOF", host, port)
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(at(t, replica).Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	stale := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: replica}}}}, nil
	}})
	t.Cleanup(func() { _ = stale.Close() })

	report := must[loader.Report](t)(newLoader(t, stale).Deploy(t.Context(), build(t), loader.Options{}))
	if len(report.Nodes) != 1 || report.Nodes[0].Addr != primary || !report.Nodes[0].Changed || !report.InStep() {
		t.Errorf("got %+v, want the build on %s alone", report.Nodes, primary)
	}
}

func TestRing(t *testing.T) {
	one, _ := startRedis(t)
	two, _ := startRedis(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one, "two": two}})
	t.Cleanup(func() { _ = ring.Close() })
	report := must[loader.Report](t)(newLoader(t, ring).Deploy(t.Context(), build(t), loader.Options{}))
	if report.Topology != nodes.Ring || len(report.Nodes) != 2 || report.Changed() != 2 || !report.InStep() {
		t.Errorf("%s\n%s", report.Topology, states(report))
	}
}

// TestAddressFoundByDialer uses a dialer that finds the server itself, like the dialer of a
// Sentinel client.
func TestAddressFoundByDialer(t *testing.T) {
	addr, _ := startRedis(t)
	var dials atomic.Int32
	rdb := connect(t, redis.Options{Addr: "FailoverClient", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		dials.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}})
	report := must[loader.Report](t)(newLoader(t, rdb).Deploy(t.Context(), build(t), loader.Options{}))
	if len(report.Nodes) != 1 || report.Nodes[0].Addr != addr || !report.InStep() || dials.Load() == 0 {
		t.Errorf("%d dials\n%s", dials.Load(), states(report))
	}
}
