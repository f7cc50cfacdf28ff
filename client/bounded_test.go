package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// bound is the timeout of calls in these tests. slow is a timeout of go-redis that only an
// unbounded call reaches. late is longer than any delay on a busy machine, and shorter than slow.
const (
	bound = 200 * time.Millisecond
	late  = slow / 2
	slow  = time.Minute
)

// kinds are ways to make a client for the server at addr, by name.
var kinds = map[string]func(t *testing.T, addr string, opts ...client.Option) *client.Client{
	"Open": func(t *testing.T, addr string, opts ...client.Option) *client.Client {
		return open(t, "redis://"+addr+"?dial_timeout=1m", opts...)
	},
	"Open, one connection": func(t *testing.T, addr string, opts ...client.Option) *client.Client {
		return open(t, "redis://"+addr+"?dial_timeout=1m&pool_size=1&read_timeout=1m&pool_timeout=1m", opts...)
	},
	"Open of a cluster": func(t *testing.T, addr string, opts ...client.Option) *client.Client {
		return open(t, "redis+cluster://"+addr+"?dial_timeout=1m&read_timeout=1m", opts...)
	},
	"Client": over(func(t *testing.T, addr string) redis.UniversalClient {
		return connect(t, redis.Options{Addr: addr, ReadTimeout: slow, DialTimeout: slow, PoolTimeout: slow})
	}),
	"Ring": over(func(t *testing.T, addr string) redis.UniversalClient {
		ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{"one": addr}, ReadTimeout: slow, DialTimeout: slow})
		t.Cleanup(func() { _ = ring.Close() })
		return ring
	}),
	"ClusterClient": over(func(t *testing.T, addr string) redis.UniversalClient { return ofOneNode(t, addr) }),
}

// over returns a function that makes a Client for an address. The Client uses the go-redis client
// that newRedis makes.
func over(newRedis func(*testing.T, string) redis.UniversalClient) func(*testing.T, string, ...client.Option) *client.Client {
	return func(t *testing.T, addr string, opts ...client.Option) *client.Client {
		return newClient(t, newRedis(t, addr), opts...)
	}
}

func open(t testing.TB, url string, opts ...client.Option) *client.Client {
	t.Helper()
	c := must[*client.Client](t)(client.Open(url, opts...))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ofOneNode returns a cluster client that treats a single server as its whole cluster.
func ofOneNode(t *testing.T, addr string) redis.UniversalClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true, Addrs: []string{addr}, ReadTimeout: slow, DialTimeout: slow, PoolTimeout: slow,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// inTime runs call. It fails the test if call takes longer than the constant late.
func inTime(t *testing.T, name string, call func() error) error {
	t.Helper()
	began := time.Now()
	err := call()
	if took := time.Since(began); took > late {
		t.Errorf("%s returned after %v, with a bound of %v: %v", name, took, bound, err)
	}
	return err
}

// allInTime is inTime for concurrent calls.
func allInTime(t *testing.T, calls map[string]func() error) map[string]error {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	errs := map[string]error{}
	for name, call := range calls {
		all.Go(func() {
			err := inTime(t, name, call)
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	all.Wait()
	return errs
}

// wholeCluster starts a cluster of one node, so that clients for single servers and for clusters
// can use it.
func wholeCluster(t *testing.T) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Run(t, "--cluster-enabled", "yes")
	direct := connect(t, redis.Options{Addr: server.Addr})
	require(t, direct.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	eventually(t, "the cluster serves", func() bool {
		info, err := direct.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	deploy(t, direct)
	return server, direct
}

// Every call to a server that hangs is ended by the
// client's timeout or by the deadline of its context.
func TestEveryCallIsBounded(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, direct := wholeCluster(t)
			c, patient := kind(t, server.Addr, client.WithTimeout(bound)), kind(t, server.Addr, client.WithTimeout(slow))
			must[client.Result](t)(patient.Allow(t.Context(), lowKey, perDay))
			eventually(t, "the server decides within the bound", func() bool {
				_, err := c.Allow(t.Context(), lowKey, perDay)
				return err == nil
			})
			require(t, direct.FlushAll(t.Context()).Err())
			require(t, server.Pause())
			defer func() { _ = server.Resume() }()
			wantEnd := func(verb string, err error) {
				t.Helper()
				if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v, want ErrUnavailable by a deadline", verb, err)
				}
			}
			for verb, err := range allInTime(t, everyCall(t.Context(), c, lowKey)) {
				wantEnd(verb, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			wantEnd("a context", inTime(t, "a context", func() error { return second(patient.Allow(ctx, lowKey, perDay)) }))
			require(t, server.Resume())
			eventually(t, "the server decides again", func() bool {
				_, err := c.Allow(t.Context(), lowKey+":again", perDay)
				return err == nil
			})
		})
	}
}

// A call that never gets a connection fails with ErrUnavailable within the client's timeout.
func TestConnectingIsBounded(t *testing.T) {
	hole := blackHole(t)
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kind(t, hole, client.WithTimeout(bound))
			for verb, err := range allInTime(t, everyCall(t.Context(), c, lowKey)) {
				if !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("%s: %v", verb, err)
				}
			}
		})
	}
}

// blackHole returns an address that accepts connections and never replies.
func blackHole(t *testing.T) string {
	t.Helper()
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}
