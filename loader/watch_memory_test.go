package loader_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// watchOf starts a watch of one server. The returned function runs one round. It then checks how
// many events of the given kind the watch has sent so far, and the error of the last one.
func watchOf(t *testing.T, addr string, build loader.Build) func(kind loader.EventKind, times int, class error) {
	t.Helper()
	clock := newTestClock()
	w := startWatch(t, newLoader(t, at(t, addr), clock.option(), every(time.Millisecond)), build)
	clock.asleep(t)
	return func(kind loader.EventKind, times int, class error) {
		t.Helper()
		clock.round(t, time.Millisecond)
		if n, e := w.count(addr, kind); n != times || !errors.Is(e.Err, class) {
			t.Errorf("%s %d times, last %s\nwant %d times, %v", kind, n, e.Text, times, class)
		}
	}
}

// A watch remembers the deployments that it has seen, even if all servers have lost them, and
// notices a new deployment in the next round.
func TestWatchRemembers(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	l := newLoader(t, at(t, addr))
	one, two := libraryAs("0.1.0", "000000000001"), libraryAs("0.1.0", "000000000002")
	must[loader.Report](t)(l.Deploy(ctx, two, loader.Options{}))
	must[loader.Report](t)(l.Deploy(ctx, one, loader.Options{}))
	round := watchOf(t, addr, one)
	round(loader.InStep, 1, nil)

	mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
	round(loader.Repaired, 1, nil)
	if n := must[loader.Report](t)(l.Status(ctx, one)).Nodes[0]; n.Previous.BuildID != "000000000002" {
		t.Errorf("the way back got lost: %+v", n)
	}
	round(loader.InStep, 1, nil)
	must[loader.Report](t)(l.Deploy(ctx, two, loader.Options{}))
	round(loader.InStep, 1, nil)
	mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
	round(loader.Repaired, 2, nil)
	if got := builds(t, []string{addr})[addr]; got != "000000000002" {
		t.Errorf("the watch loaded %s", got)
	}
	must[loader.Report](t)(l.Deploy(ctx, one, loader.Options{}))
	round(loader.InStep, 1, nil)
	mustRun(t, at(t, addr), "FUNCTION", "DELETE", "ratelimit")
	round(loader.Repaired, 3, nil)
}

// A watch remembers a deletion, and deletes a library again that comes back without a number.
func TestWatchRemembersADeletion(t *testing.T) {
	addr, _ := startRedis(t)
	l := newLoader(t, at(t, addr))
	must[loader.Report](t)(l.Deploy(t.Context(), buildA, loader.Options{}))
	must[loader.Report](t)(l.Delete(t.Context(), loader.Options{}))
	round := watchOf(t, addr, buildA)
	round(loader.InStep, 1, nil)
	mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
	round(loader.Repaired, 1, nil)
	put(t, addr, string(buildA))
	round(loader.Repaired, 2, nil)
	if got := builds(t, []string{addr})[addr]; got != "-" || len(texts(t, addr)) != 1 {
		t.Errorf("the watch loaded %s", got)
	}
}

var otherText = strings.TrimSpace(`
#!lua name=ratelimit
redis.register_function('mine', function() return 1 end)`)

// A watch forgets all that it knows of a node that is gone: its connection, what it has read there
// (half a megabyte), and its sight.
func TestWatchForgetsNodesThatAreGone(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	must[loader.Report](t)(newLoader(t, f.ring).Deploy(ctx, buildA, loader.Options{}))
	nodes := f.addrs
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		var slots []redis.ClusterSlot
		for i, addr := range nodes {
			slots = append(slots, redis.ClusterSlot{Start: i, End: i, Nodes: []redis.ClusterNode{{Addr: addr}}})
		}
		return slots, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	round, end, err := loader.Rounds(newLoader(t, rdb), buildA)
	require(t, err)
	t.Cleanup(end)
	if reads, sights := round(ctx); reads != 3 || sights != 3 {
		t.Errorf("%d reads, %d sights of three nodes", reads, sights)
	}
	gone := at(t, f.addrs[2])
	clients := func() int { return strings.Count(must[string](t)(gone.ClientList(ctx).Result()), "id=") }
	before := clients()
	nodes = f.addrs[:2]
	if reads, sights := round(ctx); reads != 2 || sights != 2 {
		t.Errorf("%d reads, %d sights of two nodes", reads, sights)
	}
	eventually(t, "the connections are closed", func() bool { return clients() < before })
}
