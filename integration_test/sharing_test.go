package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

const endless = client.Limit("fixed_window 1000000/d")

// crowd is a set of goroutines that each call for one key.
type crowd struct {
	client           *client.Client
	keys             []string
	calls, decisions atomic.Int64
	since            atomic.Pointer[time.Time] // decisions on keys of the dead node count from this time on
	first            atomic.Int64              // ns from since to the first of these decisions
	stop             chan struct{}
	stopOnce         sync.Once
	all              sync.WaitGroup
}

func startCrowd(t *testing.T, c *client.Client, name string, dead func(key string) bool) *crowd {
	t.Helper()
	w := &crowd{client: c, stop: make(chan struct{})}
	t.Cleanup(w.end)
	for i := range 90 {
		key := fmt.Sprint(name, i)
		w.keys = append(w.keys, key)
		ofDead := dead(key)
		w.all.Go(func() {
			for {
				select {
				case <-w.stop:
					return
				default:
				}
				began := time.Now()
				_, err := c.Allow(t.Context(), key, endless)
				w.calls.Add(1)
				since := w.since.Load()
				switch {
				case err != nil: // do not call a dead server in a tight loop
					time.Sleep(5 * time.Millisecond)
				case since != nil && ofDead && began.After(*since):
					w.first.CompareAndSwap(0, int64(time.Since(*since)))
				default:
					w.decisions.Add(1)
				}
			}
		})
	}
	return w
}

func (w *crowd) end() {
	w.stopOnce.Do(func() { close(w.stop) })
	w.all.Wait()
}

// When a primary is killed, calls that share round trips reach its successor about as soon as calls
// that do not. Meanwhile the other primaries keep making decisions, and no call is executed more
// than once.
func TestSharedRoundTripsFailover(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		for _, n := range b.Nodes {
			if err := n.Client().ConfigSet(ctx, "cluster-node-timeout", "2000").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := newLoader(t, newClient(t, b)).Deploy(ctx, policyBuild(t, "sharing")); err != nil {
			t.Fatal(err)
		}
		cluster := newClient(t, b).(*redis.ClusterClient)
		dead := nodeOf(ctx, t, b, cluster, "plain0")
		ofDead := func(key string) bool { return nodeOf(ctx, t, b, cluster, key) == dead }
		crowds := map[string]*crowd{}
		for name, opts := range map[string][]client.Option{"plain": {client.WithoutSharedRoundTrips()}, "shared": nil} {
			c, err := client.Open(strings.Join(b.Addrs(), ","), opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			crowds[name] = startCrowd(t, c, name, ofDead)
		}
		decided := func(n int64) func() error {
			return func() error {
				for name, w := range crowds {
					if got := w.decisions.Load(); got < n {
						return fmt.Errorf("%s: %d decisions", name, got)
					}
				}
				return nil
			}
		}
		waitFor(ctx, t, "calls to be decided", decided(1000))
		if err := dead.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		for _, w := range crowds {
			w.since.Store(&killed)
			w.decisions.Store(0)
		}
		waitFor(ctx, t, "the other primaries to go on", decided(1000))
		waitFor(ctx, t, "the keys of the dead primary to be decided", func() error {
			for name, w := range crowds {
				if w.first.Load() == 0 {
					return errors.New(name + " is not yet")
				}
			}
			return nil
		})
		plain, shared := time.Duration(crowds["plain"].first.Load()), time.Duration(crowds["shared"].first.Load())
		t.Logf("the first decision on keys of the dead primary came %v after kill -9, and %v with shared round trips",
			plain.Round(time.Millisecond), shared.Round(time.Millisecond))
		if shared > plain+30*time.Second {
			t.Errorf("with shared round trips the first decision came %v later", shared-plain)
		}
		limiter := newLimiter(t, newClient(t, b))
		for name, w := range crowds {
			w.end()
			executed := int64(0)
			for _, key := range w.keys {
				res, err := limiter.PeekN(ctx, key, endless, 0)
				if err != nil {
					t.Fatal(err)
				}
				executed += 1_000_000 - res.Remaining
			}
			if calls := w.calls.Load(); executed > calls {
				t.Errorf("%s: %d executions of %d calls", name, executed, calls)
			}
		}
	}, ofCluster, startedHere)
}
