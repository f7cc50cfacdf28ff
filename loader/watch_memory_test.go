package loader_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// watchOf starts a watch of one server. The returned function runs one round. It then checks how
// many events of the given kind the watch has sent so far, and the error of the last one.
func watchOf(t *testing.T, addr string, build loader.Build) func(kind loader.EventKind, times int, class error) {
	t.Helper()
	clock := newTestClock()
	w := startWatch(t, newLoader(t, at(t, addr), clock.option(), loader.WithInterval(time.Millisecond)), build)
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
	must[loader.Report](t)(l.Deploy(ctx, two))
	must[loader.Report](t)(l.Deploy(ctx, one))
	round := watchOf(t, addr, one)
	round(loader.InStep, 1, nil)

	mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
	round(loader.Repaired, 1, nil)
	if n := must[loader.Report](t)(l.Status(ctx, one)).Nodes[0]; n.Previous.BuildID != "000000000002" {
		t.Errorf("the way back got lost: %+v", n)
	}
	round(loader.InStep, 1, nil) // the watch reads the source code in this round, and reuses it in the next ones
	must[loader.Report](t)(l.Deploy(ctx, two))
	round(loader.Left, 1, loader.ErrLaterBuild)
	mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
	for range looksPerRead {
		round(loader.Left, 2, loader.ErrLaterBuild)
	}
	if found := texts(t, addr); len(found) != 0 {
		t.Errorf("the watch loaded %d libraries", len(found))
	}
	// After the watch's own build is deployed, the watch resumes repairs, although the deployment
	// numbers have started over.
	must[loader.Report](t)(l.Deploy(ctx, one))
	mustRun(t, at(t, addr), "FUNCTION", "DELETE", "ratelimit")
	round(loader.Repaired, 2, nil)
}

// A watch that left a server unchanged loads nothing on it, even after FUNCTION FLUSH, until a
// deployment is recorded.
func TestWatchLeavesWhatItLeft(t *testing.T) {
	one := libraryAs("0.1.0", "000000000001")
	policies := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1/s"}}})))
	for _, text := range []string{string(libraryAs("0.2.0", "000000000005")), policies.Text(), otherText} {
		addr, _ := startRedis(t)
		put(t, addr, text)
		round := watchOf(t, addr, one)
		mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
		round(loader.Left, 2, loader.ErrUnknownOrder)
		if found := texts(t, addr); len(found) != 0 {
			t.Errorf("the watch loaded %d libraries over %.60q", len(found), text)
		}
		must[loader.Report](t)(newLoader(t, at(t, addr)).Deploy(t.Context(), one))
		round(loader.InStep, 1, nil)
		mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
		round(loader.Repaired, 1, nil)
	}
}

var otherText = strings.TrimSpace(`
#!lua name=ratelimit
redis.register_function('mine', function() return 1 end)`)
