package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// admission is an allowed call. Its times come from the monotonic clock of this process.
type admission struct{ began, ended time.Time }

// admissions holds the allowed calls for one key.
type admissions struct {
	rate, burst int
	node        *backend.Node // the key's primary before the failover

	mu      sync.Mutex
	all     []admission
	batched int
	denied  time.Time // start of the last denied call
}

func (a *admissions) limit() client.Limit {
	return limits.WithBurst(limits.PerSecond(int64(a.rate)), int64(a.burst))
}

func (a *admissions) add(began time.Time, res client.Result) {
	ended := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !res.Allowed {
		a.denied = began
		return
	}
	a.all = append(a.all, admission{began, ended})
	if res.Source == "batch" {
		a.batched++
	}
}

// since returns the number of allowed calls that began after the given time, and whether a denied
// call did.
func (a *admissions) since(at time.Time) (n int, denied bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.all {
		if one.began.After(at) {
			n++
		}
	}
	return n, a.denied.After(at)
}

// TestBatchesThroughAFailover checks that batching clients stay within their bound during a
// failover. 8 clients with 64 goroutines each try to take far more units of six keys than the
// limits allow. Then a primary is killed. Three of the limits refill fast, so that callers compete
// for new units. The other three refill slowly, so that their bursts are spent in large batches. In
// every time span of length L, at most burst + rate * (L + ttl) calls may be allowed. For keys of
// the killed primary, a span that contains the failover may have one more burst, because the new
// primary may have an older state of the key or none.
func TestBatchesThroughAFailover(t *testing.T) {
	const (
		ttl         = 100 * time.Millisecond
		nodeTimeout = 2 * time.Second
	)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		setNodeTimeout(ctx, t, b, nodeTimeout)
		loadLibrary(ctx, t, b)
		cluster := clusterClient(t, b)
		keys := map[string]*admissions{}
		for i := range 6 {
			key := fmt.Sprintf("hot:%d", i)
			keys[key] = &admissions{rate: 200, burst: 100, node: nodeOf(ctx, t, b, cluster, key)}
			if i >= 3 {
				keys[key].rate, keys[key].burst = 5, 2000
			}
		}
		calling, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		stopAll := sync.OnceFunc(func() { stop(); group.Wait() })
		defer stopAll()
		for range 8 {
			c := must[*client.Client](t)(client.New(newClient(t, b), client.WithBatches(32, ttl), client.WithTimeout(2*time.Second)))
			for g := range 64 {
				key := fmt.Sprintf("hot:%d", g%len(keys))
				group.Go(func() { askFor(calling, t, c, key, keys[key]) })
			}
		}
		// busy waits until every key has denied a call after the time from, and each fast key has
		// allowed at least two bursts plus the refill of one second.
		busy := func(from time.Time) {
			t.Helper()
			waitFor(ctx, t, "every key to be let through", func() error {
				for key, a := range keys {
					if n, denied := a.since(from); !denied || a.rate > a.burst && n < 2*a.burst+a.rate {
						return fmt.Errorf("%s: %d times; denied: %v", key, n, denied)
					}
				}
				return nil
			})
		}
		busy(time.Time{})
		dead := keys["hot:0"].node
		killed := time.Now()
		require(t, dead.Kill(ctx))
		over := time.Now().Add(ttl) // batches taken from the killed primary have expired by then
		busy(over)
		stopAll()
		for key, a := range keys {
			bursts := func(from, to time.Time) int {
				if a.node == dead && from.Before(over) && to.After(killed) {
					return 2
				}
				return 1
			}
			most := math.Inf(-1)
			eachSpan(a.all, func(n int, from, to time.Time) {
				// The server counts in whole milliseconds, so one more call may be allowed.
				due := float64(bursts(from, to)*a.burst) + float64(a.rate)*(to.Sub(from)+ttl).Seconds() + 1
				most = max(most, float64(n)-due)
			})
			t.Logf("%s: %d let through, %d from batches; the fullest span had %.0f units less than its bound", key, len(a.all), a.batched, -most)
			if most > 0 || a.batched == 0 {
				t.Errorf("%s: a span had %.0f units more than it may, and %d came from batches", key, most, a.batched)
			}
		}
	}, ofCluster)
}

// askFor takes units until ctx is done. Errors fail the test, except those caused by an unreachable
// node.
func askFor(ctx context.Context, t *testing.T, c *client.Client, key string, a *admissions) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		res, err := c.Allow(ctx, key, a.limit())
		switch {
		case err == nil:
			a.add(began, res)
		case !errors.Is(err, client.ErrUnavailable):
			t.Errorf("%s: %v", key, err)
			return
		}
	}
}

// eachSpan calls f for every span from the start of one call to the end of another. n is the number
// of calls within the span.
func eachSpan(all []admission, f func(n int, from, to time.Time)) {
	slices.SortFunc(all, func(a, b admission) int { return b.began.Compare(a.began) })
	var ends []time.Time // ends of all calls that began with the current call or later
	for _, one := range all {
		i, _ := slices.BinarySearchFunc(ends, one.ended, time.Time.Compare)
		ends = slices.Insert(ends, i, one.ended)
		for n := i; n < len(ends); n++ { // spans that end earlier do not contain this call
			f(n+1, one.began, ends[n])
		}
	}
}
