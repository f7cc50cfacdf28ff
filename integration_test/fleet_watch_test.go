package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/sharing"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// traffic makes calls at a steady rate to keys on every primary. The keys' limit does not refill
// during a test, so the number of allowed calls can be compared with the limit.
type traffic struct {
	keys     []string
	capacity int64
	allowed  []atomic.Int64 // by key
	answered atomic.Int64
	stop     func()

	mu     sync.Mutex
	errors map[string]int              // errors other than a missing library, by text
	lost   map[string]int              // number of calls that failed because the library was missing, by key
	seen   func(key string, err error) // if not nil, called after each call, concurrently
}

const (
	trafficKeys = 60
	perSecond   = 500
)

// startTraffic starts making calls with the given timeout, using its own clients. capacity is the
// limit of each key. Calls for even-numbered keys share round trips.
func startTraffic(t *testing.T, b *backend.Backend, capacity int64, timeout time.Duration) *traffic {
	t.Helper()
	tr := &traffic{capacity: capacity, allowed: make([]atomic.Int64, trafficKeys), errors: map[string]int{}, lost: map[string]int{}}
	for i := range trafficKeys {
		tr.keys = append(tr.keys, fmt.Sprintf("traffic:%d", i))
	}
	limit := client.Limit(fmt.Sprintf("fixed_window %d/d", capacity))
	ctx, cancel := context.WithCancel(testContext(t))
	var group sync.WaitGroup
	const workers = 10
	for w := range workers {
		opts := []client.Option{client.WithTimeout(timeout)}
		if w%2 == 1 {
			sharing.Above.Store(math.MaxInt64)
		}
		c := must[*client.Client](t)(client.New(newClient(t, b, func(o *redis.UniversalOptions) {
			o.ReadTimeout, o.DialTimeout, o.ContextTimeoutEnabled = time.Minute, time.Minute, true
			// High, because after PoolSize failed dials go-redis dials in the background, even
			// shortly after Close.
			o.PoolSize = 1000
		}), opts...))
		sharing.Above.Store(0)
		group.Go(func() {
			tick := time.NewTicker(workers * time.Second / perSecond)
			defer tick.Stop()
			for i := w; ; i += workers {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				tr.call(ctx, c, i%trafficKeys, limit)
			}
		})
	}
	tr.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(tr.stop)
	return tr
}

func (tr *traffic) call(ctx context.Context, c *client.Client, key int, limit client.Limit) {
	tr.mu.Lock()
	seen := tr.seen
	tr.mu.Unlock()
	result, err := c.Allow(ctx, tr.keys[key], limit)
	if ctx.Err() != nil {
		return
	}
	if seen != nil {
		seen(tr.keys[key], err)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case errors.Is(err, client.ErrNotDeployed):
		tr.lost[tr.keys[key]]++
	case err != nil:
		tr.errors[err.Error()]++
	default:
		tr.answered.Add(1)
		if result.Allowed {
			tr.allowed[key].Add(1)
		}
	}
}

// waitForMore waits until n more calls have returned a decision.
func (tr *traffic) waitForMore(ctx context.Context, t *testing.T, n int64) {
	t.Helper()
	before := tr.answered.Load()
	waitFor(ctx, t, "calls to be answered", func() error {
		if got := tr.answered.Load() - before; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

// watchCalls sets the function to run after each call from now on.
func (tr *traffic) watchCalls(f func(key string, err error)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.seen = f
}

// check stops the calls. It checks that some calls were answered, and that the number of allowed
// calls for each key is at most the key's capacity multiplied by times.
func (tr *traffic) check(t *testing.T, times int64) {
	t.Helper()
	tr.stop()
	for i, key := range tr.keys {
		if n := tr.allowed[i].Load(); n > times*tr.capacity {
			t.Errorf("%s: %d let through, at most %d times %d were due", key, n, times, tr.capacity)
		}
	}
	if tr.answered.Load() == 0 {
		t.Error("no call was answered")
	}
}

// watchFleet starts a watch with default options. It returns a function that waits for the n-th
// event of a given kind on a node.
func watchFleet(t *testing.T, b *backend.Backend, build loader.Build) func(ctx context.Context, addr string, kind loader.EventKind, n int) loader.Event {
	t.Helper()
	l := newLoader(t, newClient(t, b))
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var events []loader.Event
	ended := make(chan error, 1)
	go func() {
		ended <- l.Watch(ctx, build, func(e loader.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return func(ctx context.Context, addr string, kind loader.EventKind, n int) (found loader.Event) {
		t.Helper()
		waitFor(ctx, t, fmt.Sprintf("event %d %q on %s", n, kind, addr), func() error {
			mu.Lock()
			defer mu.Unlock()
			count := 0
			for _, e := range events {
				if e.Node.Addr == addr && e.Kind == kind {
					if count++; count == n {
						found = e
						return nil
					}
				}
			}
			return fmt.Errorf("%d events of %d", count, len(events))
		})
		return found
	}
}

// TestFleetHealsAfterFunctionFlush runs FUNCTION FLUSH on each primary in turn, while clients make
// 500 calls per second. The watch must load the library again, and no decision may be wrong.
func TestFleetHealsAfterFunctionFlush(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build := policyBuild(t, "watched")
		deploy(ctx, t, newLoader(t, newClient(t, b)), build)
		primaries := primariesOf(ctx, t, b)
		event := watchFleet(t, b, build)
		for _, n := range primaries {
			event(ctx, n.Addr, loader.InStep, 1)
		}
		tr := startTraffic(t, b, 20, time.Minute)
		tr.waitForMore(ctx, t, 100)
		for _, n := range primaries {
			flushed := time.Now()
			require(t, n.Client().FunctionFlush(ctx).Err())
			e := event(ctx, n.Addr, loader.Repaired, 1)
			t.Logf("%s: loaded again %v after FUNCTION FLUSH", n, e.Time.Sub(flushed).Round(time.Millisecond))
		}
		tr.waitForMore(ctx, t, 100)
		tr.check(t, 1)
		lost := 0
		for _, n := range tr.lost {
			lost += n
		}
		t.Logf("%d calls answered, %d got the error that the library is missing", tr.answered.Load(), lost)
		for text, n := range tr.errors {
			t.Errorf("%d times: %s", n, text)
		}
	})
}

// TestFleetHealsAShardThatJoins adds a shard with CLUSTER MEET under load. Status must report that
// the shard lacks the library, and the watch must load it there.
func TestFleetHealsAShardThatJoins(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		build := newBuild(t)
		l := newLoader(t, newClient(t, b))
		deploy(ctx, t, l, build)
		tr := startTraffic(t, b, 20, time.Minute)
		spare := must[*backend.Node](t)(b.StartSpare(ctx))
		require(t, b.Nodes[0].Meet(ctx, spare))
		waitFor(ctx, t, "status to see the shard without the library", func() error {
			report, err := l.Status(ctx, build)
			if err != nil {
				return err
			}
			for _, n := range report.Nodes {
				if n.Addr == spare.Addr && n.State == loader.Absent && !report.InStep() {
					return nil
				}
			}
			return fmt.Errorf("%d nodes", len(report.Nodes))
		})
		event := watchFleet(t, b, build)
		event(ctx, spare.Addr, loader.Repaired, 1)
		report, err := l.Status(ctx, build)
		if err != nil || !report.InStep() || len(report.Nodes) != 4 {
			t.Errorf("%v: %+v", err, report)
		}
		tr.waitForMore(ctx, t, 100)
		tr.check(t, 1)
		if len(tr.errors) > 0 || len(tr.lost) > 0 {
			t.Errorf("errors %v, missing %v", tr.errors, tr.lost)
		}
	}, ofCluster)
}

// TestFleetFailover kills a primary under load. Its replica takes over, has the library and makes
// decisions. If the last writes did not reach the replica, it may allow some calls again, but at
// most one burst per key.
func TestFleetFailover(t *testing.T) {
	const nodeTimeout = 2 * time.Second
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		setNodeTimeout(ctx, t, b, nodeTimeout)
		build := policyBuild(t, "failover")
		report := deploy(ctx, t, newLoader(t, newClient(t, b)), build)
		for _, n := range report.Nodes {
			if n.Replicas != 1 || n.Acked != 1 {
				t.Errorf("%s: %d of %d replicas have the library", n.Addr, n.Acked, n.Replicas)
			}
		}
		cluster := clusterClient(t, b)
		tr := startTraffic(t, b, 50, nodeTimeout)
		tr.waitForMore(ctx, t, 200)
		dead := nodeOf(ctx, t, b, cluster, tr.keys[0])
		served := map[string]int{} // the killed node's keys, with their indexes in tr.keys
		for i, key := range tr.keys {
			if nodeOf(ctx, t, b, cluster, key) == dead {
				served[key] = i
			}
		}
		killed := time.Now()
		require(t, dead.Kill(ctx))
		// The time in ns until the first decision for one of these keys: with shared round trips,
		// and without.
		var decided [2]atomic.Int64
		tr.watchCalls(func(key string, err error) {
			if i, ok := served[key]; ok && err == nil {
				decided[i%2].CompareAndSwap(0, int64(time.Since(killed)))
			}
		})
		waitFor(ctx, t, "decisions after the failover", func() error {
			if decided[0].Load() == 0 || decided[1].Load() == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		t.Logf("the first decision on the dead node's keys came %v after kill -9 with shared round trips and %v without, with a node timeout of %v",
			time.Duration(decided[0].Load()).Round(time.Millisecond), time.Duration(decided[1].Load()).Round(time.Millisecond), nodeTimeout)
		tr.waitForMore(ctx, t, 200)
		tr.check(t, 2)
		if len(tr.lost) > 0 {
			t.Errorf("after the promotion, calls got the error that the library is missing: %v", tr.lost)
		}
		waitFor(ctx, t, "the cluster to have three primaries that run the build", func() error {
			report, err := newLoader(t, newClient(t, b)).Status(ctx, build)
			if err == nil && (!report.InStep() || len(report.Nodes) != 3) {
				err = fmt.Errorf("%+v", report)
			}
			return err
		})
	}, ofCluster)
}

// nodeOf returns the node that serves a key.
func nodeOf(ctx context.Context, t *testing.T, b *backend.Backend, cluster *redis.ClusterClient, key string) *backend.Node {
	t.Helper()
	serving := must[*redis.Client](t)(cluster.MasterForKey(ctx, key))
	for _, n := range b.Nodes {
		if n.Addr == serving.Options().Addr {
			return n
		}
	}
	t.Fatalf("no node of the backend is %s", serving.Options().Addr)
	return nil
}
