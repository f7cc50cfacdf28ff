package loader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// watching runs a watch and collects its events.
type watching struct {
	mu     sync.Mutex
	events []loader.Event
}

func startWatch(t *testing.T, l *loader.Loader, build loader.Build) *watching {
	t.Helper()
	w := &watching{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- l.Watch(ctx, build, func(e loader.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return w
}

// count returns the number of events of a kind on a node, and the last one.
func (w *watching) count(addr string, kind loader.EventKind) (n int, last loader.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Node.Addr == addr && e.Kind == kind {
			n, last = n+1, e
		}
	}
	return n, last
}

func (w *watching) waitFor(t *testing.T, addr string, kind loader.EventKind, n int) (last loader.Event) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d times %q on %s", n, kind, addr), func() bool {
		var got int
		got, last = w.count(addr, kind)
		return got >= n
	})
	return last
}

// looksPerRead is the number of rounds within which a watch reads the source code at least once.
const looksPerRead = 11

const often = 20 * time.Millisecond

func TestWatchRepairsWhatIsLost(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	one, two := version("0.1.0", "000000000001"), version("0.1.0", "000000000002")
	l := newLoader(t, f.ring, every(often))
	must[loader.Report](t)(l.Deploy(ctx, one, loader.Options{}))
	afterOne := texts(t, f.addrs[1])
	must[loader.Report](t)(l.Deploy(ctx, two, loader.Options{}))
	w := startWatch(t, l, two)
	for _, addr := range f.addrs {
		if e := w.waitFor(t, addr, loader.InStep, 1); e.Node.Running.BuildID != "000000000002" {
			t.Errorf("%+v", e)
		}
	}
	for _, addr := range f.addrs {
		mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
		if e := w.waitFor(t, addr, loader.Repaired, 1); e.Node.Before.BuildID != "" || e.Node.Running.BuildID != "000000000002" {
			t.Errorf("%+v", e)
		}
	}
	// Somebody loads an older build by hand, without a deployment.
	put(t, f.addrs[1], string(version("0.0.9", "000000000009")))
	if e := w.waitFor(t, f.addrs[1], loader.Repaired, 2); e.Node.Before.BuildID != "000000000009" || e.Node.Running.BuildID != "000000000002" {
		t.Errorf("%+v", e)
	}
	// A replica without the last deployment takes over.
	put(t, f.addrs[1], afterOne["ratelimit"])
	if e := w.waitFor(t, f.addrs[1], loader.Repaired, 3); e.Node.Before.BuildID != "000000000001" || e.Node.Running.BuildID != "000000000002" {
		t.Errorf("%+v", e)
	}
	// The record for a rollback is restored, too.
	report := must[loader.Report](t)(l.Status(ctx, two))
	for _, n := range report.Nodes {
		if n.State != loader.Same || n.Previous.BuildID != "000000000001" {
			t.Errorf("%+v", n)
		}
	}
	for _, addr := range f.addrs {
		if n, e := w.count(addr, loader.Failed); n != 0 {
			t.Errorf("%d failures, such as %s", n, e.Text)
		}
	}
}

func TestWatchNeverGoesBack(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	one, two := version("0.1.0", "000000000001"), version("0.1.0", "000000000002")
	l := newLoader(t, f.ring, every(often))
	must[loader.Report](t)(l.Deploy(ctx, one, loader.Options{}))
	w := startWatch(t, l, one)
	w.waitFor(t, f.addrs[2], loader.InStep, 1)
	must[loader.Report](t)(l.Deploy(ctx, two, loader.Options{Wait: time.Minute}))
	// If nodes lose the library, the watch loads what was deployed last.
	onEach(t, f.addrs[1:], "FUNCTION", "FLUSH")
	for _, addr := range f.addrs[1:] {
		if e := w.waitFor(t, addr, loader.Repaired, 1); e.Node.Running.BuildID != "000000000002" {
			t.Errorf("%+v", e)
		}
	}

	// A watch does not replace a library by its file, even if that library was loaded without a
	// deployment.
	newest := version("0.2.0", "000000000005")
	alone, _ := startRedis(t)
	single := newLoader(t, at(t, alone), every(often))
	for _, tt := range []struct {
		text string
		want error
	}{
		{string(newest), nil},
		{string(version("0.0.1", "000000000006")), nil},
		{otherText, nodes.ErrForeign},
	} {
		require(t, at(t, alone).FunctionLoadReplace(ctx, tt.text).Err())
		t.Run("", func(t *testing.T) {
			w := startWatch(t, single, one)
			if tt.want == nil {
				w.waitFor(t, alone, loader.InStep, 1)
			} else if e := w.waitFor(t, alone, loader.Left, 1); !errors.Is(e.Err, tt.want) {
				t.Error(e.Text)
			}
		})
		list := at(t, alone).FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Val()
		if len(list) != 1 || list[0].Code != tt.text {
			t.Errorf("the watch changed what runs: %d libraries", len(list))
		}
	}
}

// If someone keeps replacing the library, the watch repairs it less and less often.
func TestWatchDoesNotFight(t *testing.T) {
	addr, _ := startRedis(t)
	clock := newTestClock()
	older, _ := older(t)
	must[loader.Report](t)(newLoader(t, at(t, addr)).Deploy(t.Context(), build(t), loader.Options{}))
	w := startWatch(t, newLoader(t, at(t, addr), clock.option(), every(time.Millisecond)), build(t))
	repairs := 0
	repaired := func(when string, wanted int) {
		t.Helper()
		repairs += wanted
		if n, _ := w.count(addr, loader.Repaired); n != repairs {
			t.Fatalf("%d repairs %s, want %d", n, when, repairs)
		}
	}
	clock.asleep(t)
	repaired("of a server that runs it", 0)
	mustRun(t, at(t, addr), "FUNCTION", "FLUSH")
	clock.round(t, time.Millisecond)
	repaired("of an empty server", 1)
	for range 3 {
		put(t, addr, older)
		clock.round(t, time.Millisecond)
		repaired("at once", 1)
	}
	for wait := 4 * time.Second; wait < 20*time.Minute; wait *= 2 { // the wait doubles each time, up to a minute
		put(t, addr, older)
		clock.round(t, min(wait, time.Minute)-time.Millisecond)
		repaired("a moment before it is time", 0)
		clock.round(t, time.Millisecond)
		repaired("when it is time", 1)
	}
	// If the build stays loaded for a minute, the next repair is immediate again.
	clock.round(t, 3*time.Minute)
	put(t, addr, older)
	for range looksPerRead { // the source code is not read in every round
		if n, _ := w.count(addr, loader.Repaired); n > repairs {
			break
		}
		clock.round(t, time.Millisecond)
	}
	repaired("after it was quiet", 1)
	for range 2 {
		put(t, addr, older)
		clock.round(t, time.Millisecond)
		repaired("after it was quiet, again", 1)
	}
}

// A failed load is tried again, but not in every round.
func TestWatchWaitsAfterAFailure(t *testing.T) {
	addr, _ := startRedis(t)
	clock := newTestClock()
	var tries atomic.Int64
	l := newLoader(t, at(t, addr), clock.option(), every(time.Millisecond), trace(func(_, command string) {
		if strings.HasPrefix(command, "FUNCTION LOAD ratelimit_lease_") {
			tries.Add(1)
		}
	}))
	mustRun(t, at(t, addr), "CONFIG", "SET", "maxmemory", "1")
	w := startWatch(t, l, build(t))
	clock.asleep(t)
	for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if n := tries.Load(); n != int64(i+1) {
			t.Fatalf("%d tries, want %d", n, i+1)
		}
		clock.round(t, wait-time.Millisecond)
		if n := tries.Load(); n != int64(i+1) {
			t.Errorf("%d tries before it is time, want %d", n, i+1)
		}
		clock.round(t, time.Millisecond)
	}
	mustRun(t, at(t, addr), "CONFIG", "SET", "maxmemory", "0")
	clock.round(t, 8*time.Second-time.Millisecond)
	if n, _ := w.count(addr, loader.Repaired); n != 0 {
		t.Errorf("repaired before it is time")
	}
	clock.round(t, time.Millisecond)
	failures, _ := w.count(addr, loader.Failed)
	if n, _ := w.count(addr, loader.Repaired); n != 1 || failures != 1 {
		t.Errorf("%d repairs, and the failure was said %d times", n, failures)
	}
}

// During a deployment, a watch loads nothing, even if the deployment begins after the watch has
// inspected the nodes and before the watch takes its lease. If a deployment ends without releasing
// its lease, the watch continues after the lease has expired.
func TestWatchWaitsForADeployment(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	one := version("0.1.0", "000000000001")
	must[loader.Report](t)(newLoader(t, f.ring).Deploy(ctx, one, loader.Options{}))
	now := must[time.Time](t)(at(t, f.addrs[0]).Time(ctx).Result())
	clock := newTestClock()
	comes := false
	l := newLoader(t, f.ring, clock.option(), every(time.Millisecond), trace(func(_, command string) {
		if comes && strings.HasPrefix(command, "FUNCTION LOAD ratelimit_lease_") {
			comes = false
			put(t, f.addrs[0], leaseOfAnn(now, now.Add(time.Hour)))
		}
	}))
	w := startWatch(t, l, one)
	clock.asleep(t)
	says := func(kind loader.EventKind, wanted int, class error) {
		t.Helper()
		if n, e := w.count(f.addrs[1], kind); n != wanted || !errors.Is(e.Err, class) {
			t.Errorf("%d times, %s\nwant %d times, %v", n, e.Text, wanted, class)
		}
	}
	mustRun(t, at(t, f.addrs[1]), "FUNCTION", "FLUSH")
	put(t, f.addrs[0], leaseOfAnn(now, now.Add(time.Hour)))
	clock.round(t, time.Millisecond)
	says(loader.Left, 1, loader.ErrLeased)
	if _, e := w.count(f.addrs[1], loader.Left); strings.Contains(e.Text, "Options") {
		t.Errorf("a watch, which tries again by itself, says %s", e.Text)
	}
	put(t, f.addrs[0], leaseOfAnn(now.Add(-time.Hour), now.Add(-time.Minute)))
	for range looksPerRead {
		clock.round(t, time.Millisecond)
	}
	says(loader.Repaired, 1, nil)

	mustRun(t, at(t, f.addrs[1]), "FUNCTION", "FLUSH")
	comes = true
	clock.round(t, time.Millisecond)
	says(loader.Left, 2, loader.ErrLeased)
	mustRun(t, at(t, f.addrs[0]), "FUNCTION", "DELETE", "ratelimit_lease_ann")
	clock.round(t, time.Millisecond)
	says(loader.Repaired, 2, nil)

	// A node without the header has lost the record of its deployment, and not the library.
	mustRun(t, at(t, f.addrs[1]), "FUNCTION", "LOAD", "REPLACE", string(one))
	put(t, f.addrs[0], leaseOfAnn(now, now.Add(time.Hour)))
	clock.round(t, time.Millisecond)
	says(loader.Left, 3, loader.ErrLeased)
	if _, e := w.count(f.addrs[1], loader.Left); !strings.HasPrefix(e.Text, f.addrs[1]+" runs 0.1.0 build 000000000001 and is left as it is") {
		t.Error(e.Text)
	}
}

// A watch that reaches no server reports that once, and continues.
func TestWatchOfNoServer(t *testing.T) {
	addr, stop := startRedis(t)
	clock := newTestClock()
	l := newLoader(t, at(t, addr), clock.option(), every(time.Millisecond))
	w := startWatch(t, l, build(t))
	clock.asleep(t)
	stop()
	for range 2 {
		clock.round(t, time.Millisecond)
	}
	if n, e := w.count(addr, loader.Failed); n != 1 || !errors.Is(e.Err, nodes.ErrUnreachable) {
		t.Errorf("%d times, %s", n, e.Text)
	}
	_, port := hostPort(addr)
	startRedis(t, "--port", port)
	clock.round(t, time.Millisecond)
	if n, _ := w.count(addr, loader.Repaired); n != 2 {
		t.Errorf("%d repairs", n)
	}
}

// Of libraries without a header, the newer version counts, and a higher contract before that.
func TestWatchOfLibrariesLoadedByHand(t *testing.T) {
	f := startThree(t, redis.Options{})
	put(t, f.addrs[0], string(version("0.9.0", "000000000005")))
	put(t, f.addrs[1], strings.Replace(string(version("0.0.1", "000000000006")), "local CONTRACT = 1", "local CONTRACT = 2", 1))
	require(t, newLoader(t, f.ring).Repair(t.Context(), version("0.1.0", "000000000001")))
	for addr, got := range builds(t, f.addrs) {
		if got != "000000000006" {
			t.Errorf("%s runs %s", addr, got)
		}
	}
}

// A failed repair of a node is reported once. Meanwhile the watch repairs other nodes, and it
// repairs the node as soon as that is possible.
func TestWatchGoesOnAfterFailures(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	b := build(t)
	l := newLoader(t, f.ring, every(often))
	must[loader.Report](t)(l.Deploy(ctx, b, loader.Options{}))
	w := startWatch(t, l, b)
	w.waitFor(t, f.addrs[2], loader.InStep, 1)
	require(t, at(t, f.addrs[0]).ConfigSet(ctx, "maxmemory", "1").Err())
	onEach(t, f.addrs[:2], "FUNCTION", "FLUSH")
	if e := w.waitFor(t, f.addrs[0], loader.Failed, 1); !errors.Is(e.Err, nodes.ErrNotWritable) {
		t.Error(e.Text)
	}
	w.waitFor(t, f.addrs[1], loader.Repaired, 1)
	require(t, at(t, f.addrs[0]).ConfigSet(ctx, "maxmemory", "0").Err())
	w.waitFor(t, f.addrs[0], loader.Repaired, 1)
	if n, _ := w.count(f.addrs[0], loader.Failed); n != 1 {
		t.Errorf("the failure was said %d times", n)
	}
	f.stop[1]()
	w.waitFor(t, f.addrs[1], loader.Failed, 1)
	mustRun(t, at(t, f.addrs[2]), "FUNCTION", "FLUSH")
	w.waitFor(t, f.addrs[2], loader.Repaired, 1)
}

func TestWatchRefuses(t *testing.T) {
	l := newLoader(t, at(t, "127.0.0.1:1"))
	if err := l.Watch(t.Context(), functions.Build{}, func(loader.Event) {}); !errors.Is(err, loader.ErrBadBuild) {
		t.Error(err)
	}
	if err := l.Watch(t.Context(), build(t), nil); err == nil {
		t.Error(err)
	}
}

// A watch reads all nodes again just before it loads a library, and so notices a deployment that
// ended after the first reading.
func TestWatchLooksAgainBeforeItLoads(t *testing.T) {
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	l := newLoader(t, f.ring, every(often))
	one := version("0.1.0", "000000000001")
	must[loader.Report](t)(l.Deploy(ctx, one, loader.Options{}))
	w := startWatch(t, l, one)
	w.waitFor(t, f.addrs[2], loader.InStep, 1)
	for round := range 6 {
		lost := f.addrs[round%3]
		id := fmt.Sprintf("%012d", 100+round)
		must[loader.Report](t)(l.Deploy(ctx, version("0.1.0", id), loader.Options{Wait: time.Minute}))
		mustRun(t, at(t, lost), "FUNCTION", "FLUSH")
		if e := w.waitFor(t, lost, loader.Repaired, round/3+1); e.Node.Running.BuildID != id {
			t.Errorf("%+v", e)
		}
	}
}
