package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// startSentinel starts a Sentinel that monitors the primary "main" at addr, and returns its
// address.
func startSentinel(t *testing.T, addr string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	require(t, os.WriteFile(config, []byte(fmt.Sprintf("sentinel monitor main %s %s 1\n", host, port)), 0o600))
	return redistest.Run(t, config, "--sentinel").Addr
}

// behindSentinel returns a failover client that finds the primary at addr through a Sentinel.
func behindSentinel(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{ContextTimeoutEnabled: true, MasterName: "main", SentinelAddrs: []string{startSentinel(t, addr)}})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// A call whose context has already ended sends nothing and returns the context's error. This holds
// for every type of Redis client.
func TestAnEndedContextSendsNothing(t *testing.T) {
	server, _ := deployed(t)
	nodes := startCluster(t)
	flushCluster(t, nodes)
	for name, through := range map[string]func(t *testing.T) (redis.UniversalClient, *proxy){
		"Client": func(t *testing.T) (redis.UniversalClient, *proxy) {
			p := startProxy(t, server.Addr)
			return connect(t, redis.Options{Addr: p.addr()}), p
		},
		"failover": func(t *testing.T) (redis.UniversalClient, *proxy) {
			p := startProxy(t, server.Addr)
			return behindSentinel(t, p.addr()), p
		},
		"ClusterClient": func(t *testing.T) (redis.UniversalClient, *proxy) {
			rdb, proxies := proxied(t, nodes)
			return rdb, proxies[0]
		},
		"Ring": func(t *testing.T) (redis.UniversalClient, *proxy) {
			p := startProxy(t, server.Addr)
			ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{"one": p.addr()}})
			t.Cleanup(func() { _ = ring.Close() })
			return ring, p
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb, p := through(t)
			c := newClient(t, rdb)
			key := "{b}:" + name // in a slot of the first node
			must[client.Result](t)(c.Allow(t.Context(), key, perDay))
			p.lose(0, false)
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
			defer cancel()
			for ctx, want := range map[context.Context]error{cancelled: context.Canceled, expired: context.DeadlineExceeded} {
				for verb, call := range everyCall(ctx, c, key) {
					err := call()
					var e *client.Error
					if !errors.As(err, &e) || !errors.Is(err, want) || e.Code != "" {
						t.Errorf("%s: %v, want %v", verb, err, want)
					}
					wantClasses(t, verb, err, client.ErrUnavailable)
				}
				if used := c.Warning(ctx, client.For(key, "@none"), client.Result{Allowed: true, Limit: 10, Index: 1}); used != 0 { // it has no error
					t.Errorf("Warning: %d %%", used)
				}
			}
			for kind, prefix := range map[reflect.Type]string{reflect.TypeFor[*client.Client](): "", reflect.TypeFor[*client.Lease](): "Lease."} {
				for method := range kind.Methods() {
					asks := method.Name != "Warning" && method.Type.NumIn() > 1 && method.Type.In(1) == reflect.TypeFor[context.Context]()
					if asks && everyCall(cancelled, c, key)[prefix+method.Name] == nil {
						t.Errorf("%s%s is not among the calls of this test", prefix, method.Name)
					}
				}
			}
			// If any of the calls above was sent after all, it has arrived before this one.
			if left := must[client.Result](t)(c.Allow(t.Context(), key, perDay)).Remaining; left != 8 || p.seen() != 1 {
				t.Errorf("%d are left, and %d calls were sent; want 8, and the last one only", left, p.seen())
			}
		})
	}
}

// everyCall returns a map of functions by name. Each calls one of the methods of Client and Lease
// that send commands.
func everyCall(ctx context.Context, c *client.Client, key string) map[string]func() error {
	req := client.Request{Keys: []string{key}, Limits: []client.Limit{perDay}}
	once := req
	once.OnceKey, once.OnceTTL, once.UsageKey = key+":once", time.Minute, key+":usage"
	lease := c.Lease(key+":lease", limits.Concurrency(1, time.Minute), "id")
	return map[string]func() error{
		"Allow":  func() error { return second(c.Allow(ctx, key, perDay)) },
		"AllowN": func() error { return second(c.AllowN(ctx, key, perDay, 2)) },
		"Penalize": func() error {
			return second(c.Penalize(ctx, minuteToHour, req, client.Result{Source: "server", Index: 1, RetryAfter: time.Second}))
		},
		"Wait":            func() error { return c.Wait(ctx, client.For(key, perDay)) },
		"TakeEstimate":    func() error { return second(c.TakeEstimate(ctx, req)) },
		"Take":            func() error { return second(c.Take(ctx, req)) },
		"TakeAll":         func() error { return second(c.TakeAll(ctx, req)) },
		"Take with a key": func() error { return second(c.Take(ctx, once)) },
		"Peek":            func() error { return second(c.Peek(ctx, client.For(key, perDay))) },
		"Refund":          func() error { return second(c.Refund(ctx, req)) },
		"Reset":           func() error { return second(c.Reset(ctx, key)) },
		"Block":           func() error { return c.Block(ctx, client.Block{For: time.Minute}, key) },
		"Unblock":         func() error { return second(c.Unblock(ctx, key)) },
		"Override":        func() error { return c.Override(ctx, perDay, time.Minute, key) },
		"EndOverride":     func() error { return second(c.EndOverride(ctx, key)) },
		"Usage":           func() error { return second(c.Usage(ctx, key+":usage")) },
		"Check":           func() error { return c.Check(ctx) },
		"Info":            func() error { return second(c.Info(ctx)) },
		"Lease.Acquire":   func() error { return second(lease.Acquire(ctx)) },
		"Lease.Wait":      func() error { return lease.Wait(ctx) },
		"Lease.Run":       func() error { return lease.Run(ctx, func(context.Context) error { return errors.New("held") }) },
		"Lease.Renew":     func() error { return second(lease.Renew(ctx)) },
		"Lease.Release":   func() error { return second(lease.Release(ctx)) },
	}
}
