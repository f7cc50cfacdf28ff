package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// modes lists ways to take one unit from key. Modes that use an OnceKey add id to it.
var modes = map[string]func(ctx context.Context, c *client.Client, key, id string) (client.Result, error){
	"plain": func(ctx context.Context, c *client.Client, key, _ string) (client.Result, error) {
		return c.Allow(ctx, key, plenty)
	},
	"once": func(ctx context.Context, c *client.Client, key, id string) (client.Result, error) {
		return c.Take(ctx, client.Request{Keys: []string{key}, Limits: []client.Limit{plenty}, OnceKey: key + ":" + id, OnceTTL: time.Minute})
	},
	"open": func(ctx context.Context, c *client.Client, key, _ string) (client.Result, error) {
		return c.Take(ctx, client.Request{Keys: []string{key}, Limits: []client.Limit{plenty}, Fallback: client.FailOpen})
	},
	"local": func(ctx context.Context, c *client.Client, key, _ string) (client.Result, error) {
		return c.Take(ctx, client.Request{Keys: []string{key}, Limits: []client.Limit{plenty}, Fallback: client.LocalFallback(1)})
	},
	"closed, up to": func(ctx context.Context, c *client.Client, key, _ string) (client.Result, error) {
		return c.Take(ctx, client.Request{Keys: []string{key}, Limits: []client.Limit{plenty}, Costs: []int64{1}, UpTo: true, Fallback: client.FailClosed})
	},
}

const (
	plenty   = client.Limit("fixed_window 1000000/d") // does not refill while the test counts
	lots     = 1_000_000
	atATime  = 4
	sharing  = 24 // number of goroutines, for clients whose calls share round trips
	perFault = 5  // calls per goroutine
)

// Whatever the fault and the mode, the server executes each call at most once, and the call returns
// in time. If the call returns the server's decision, the server executed it exactly once.
func TestFaults(t *testing.T) {
	server, direct := wholeCluster(t)
	for _, name := range []string{
		"Open", "Open of a cluster", "Client", "Ring", "ClusterClient", "Open, shared", "Open of a cluster, shared",
	} {
		goroutines := atATime
		if strings.HasSuffix(name, ", shared") {
			goroutines = sharing
		}
		for what, fault := range faults {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				p := startProxy(t, server.Addr)
				c := throughProxy(t, name, server.Addr, p.addr())
				eventually(t, "go-redis knows the nodes", func() bool { _, err := c.Allow(t.Context(), lowKey, plenty); return err == nil })
				if p.seen() == 0 {
					t.Fatal("the calls do not go through the proxy")
				}
				for mode, take := range modes {
					key := "{b}:" + name + what + mode
					p.arm(1_000_000, fault)
					var mu sync.Mutex
					var all sync.WaitGroup
					calls, decided := 0, 0
					for g := range goroutines {
						all.Go(func() {
							for i := range perFault {
								var res client.Result
								err := inTime(t, mode, func() (err error) {
									res, err = take(t.Context(), c, key, fmt.Sprint(g, i))
									return err
								})
								mu.Lock()
								calls++
								if err == nil && res.Source == "server" {
									decided++
								}
								mu.Unlock()
							}
						})
						if g == goroutines/2 {
							p.arm(3, fault) // three more replies fail, and all later ones arrive
						}
					}
					all.Wait()
					p.arm(0, none)
					if executed := lots - int(left(t, newClient(t, direct), key, plenty)); executed > calls || executed < decided {
						t.Errorf("%s: %d executions of %d calls, of which the server decided %d", mode, executed, calls, decided)
					}
				}
				eventually(t, "the server decides again", func() bool {
					res, err := c.Allow(t.Context(), lowKey, plenty)
					return err == nil && res.Source == "server"
				})
			})
		}
	}
}

// throughProxy returns a client of the given kind (see TestFaults) for the server. It connects
// through the proxy. server and proxy are addresses.
func throughProxy(t *testing.T, kind, server, proxy string) *client.Client {
	t.Helper()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == server || addr == server[strings.LastIndex(server, ":"):] { // a cluster of one node reports its address without a host
			addr = proxy
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	opts := []client.Option{client.WithTimeout(bound)}
	kind = strings.TrimSuffix(kind, ", shared")
	switch kind {
	case "Open of a cluster": // the nodes report their own addresses
		return client.OpenWithDialer(t, "redis+cluster://"+server, dial, opts...)
	case "ClusterClient":
		rdb := redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, Addrs: []string{server}, Dialer: dial, ReadTimeout: time.Second, DialTimeout: slow})
		t.Cleanup(func() { _ = rdb.Close() })
		return newClient(t, rdb, opts...)
	}
	return kinds[kind](t, proxy, opts...)
}

// With Open, a reply that announces too many elements is an error before go-redis allocates them.
func TestRepliesAreLimited(t *testing.T) {
	server, _ := deployed(t)
	p := startProxy(t, server.Addr)
	c := open(t, "redis://"+p.addr())
	p.arm(1, announces)
	_, err := c.Allow(t.Context(), "k", perDay)
	wantClasses(t, "announces", err, typed("bad_reply"), client.ErrOutcomeUnknown)
	if err == nil || !strings.Contains(err.Error(), "(the server announces a reply of more than 524288 elements or 67108864 bytes)") {
		t.Error(err)
	}
}

// The client stops calling a server that does not reply, and calls it again when it is back.
func TestBreakerSparesADeadServer(t *testing.T) {
	server, _ := deployed(t)
	p := startProxy(t, server.Addr)
	c := open(t, "redis://"+p.addr(), client.WithTimeout(slow))
	p.arm(1_000_000, closes)
	last := error(nil)
	for range 1000 {
		_, last = c.Allow(t.Context(), "k", perDay)
		if !errors.Is(last, client.ErrUnavailable) {
			t.Fatal(last)
		}
		if !errors.Is(last, client.ErrOutcomeUnknown) {
			break
		}
	}
	const want = `ratelimit: take "k": not sent, since the server did not reply to the last 5 calls; it is asked again within 750ms (EOF)`
	if last.Error() != want || p.seen() < 5 { // more than 5 if the machine stalls until the next probe
		t.Errorf("%v, after %d calls\nwant %s, after 5", last, p.seen(), want)
	}
	p.arm(0, none)
	eventually(t, "the server is found again", func() bool {
		_, err := c.Allow(t.Context(), "k", perDay)
		return err == nil
	})
	must[client.Result](t)(c.Allow(t.Context(), "k", perDay)) // calls are sent again
}

// The breaker opens only for missing replies, not for error replies or for callers that stop
// waiting.
func TestBreakerIsForServersThatDoNotReply(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	for name, f := range map[string]*fake{
		"replies":        {err: answered("OOM no"), sent: true},
		"no connections": {err: redis.ErrPoolTimeout},
		"cancelled":      {err: context.Canceled, sent: true, after: func(int) { cancel() }},
		"impatient":      {err: context.DeadlineExceeded, sent: true},
	} {
		c := newClient(t, f, client.WithTimeout(time.Millisecond))
		ctx := t.Context()
		if name == "cancelled" {
			ctx = ended
		}
		for range 20 {
			if name == "cancelled" {
				ctx, cancel = context.WithCancel(t.Context())
			}
			if _, err := c.Allow(ctx, "k", perDay); err == nil || strings.Contains(err.Error(), "not sent, since the server") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	cancel()
}

// One unreachable shard does not block calls to other shards.
func TestBreakerOfEachNode(t *testing.T) {
	nodes := startCluster(t)
	flushCluster(t, nodes)
	for name, ring := range map[string]bool{"cluster": false, "Ring": true} {
		t.Run(name, func(t *testing.T) {
			rdb, proxies := proxied(t, nodes)
			c := newClient(t, rdb, client.WithTimeout(slow))
			deadKey, liveKey := lowKey, highKey
			if ring {
				c, proxies, deadKey, liveKey = ofRing(t)
			}
			for _, key := range []string{deadKey, liveKey} {
				must[client.Result](t)(c.Allow(t.Context(), key, plenty))
			}
			proxies[0].arm(1_000_000, closes)
			sent := 0
			for range 20 {
				if _, err := c.Allow(t.Context(), deadKey, plenty); errors.Is(err, client.ErrOutcomeUnknown) {
					sent++
				}
				must[client.Result](t)(c.Allow(t.Context(), liveKey, plenty))
			}
			if sent == 20 {
				t.Error("the dead shard was not left alone")
			}
			proxies[0].arm(0, none)
			eventually(t, "the dead shard is found again", func() bool {
				_, err := c.Allow(t.Context(), deadKey, plenty)
				return err == nil
			})
		})
	}
}

// ofRing returns a client for a ring of two servers, each behind a proxy, and a key for each
// server.
func ofRing(t *testing.T) (c *client.Client, proxies [2]*proxy, first, second string) {
	t.Helper()
	addrs := map[string]string{}
	for i := range proxies {
		server, _ := deployed(t)
		proxies[i] = startProxy(t, server.Addr)
		addrs[fmt.Sprint(i)] = proxies[i].addr()
	}
	ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: addrs})
	t.Cleanup(func() { _ = ring.Close() })
	for i := 0; first == "" || second == ""; i++ {
		key := fmt.Sprint("k", i)
		if must[*redis.Client](t)(ring.GetShardClientForKey(key)).Options().Addr == proxies[0].addr() {
			first = key
		} else {
			second = key
		}
	}
	return newClient(t, ring, client.WithTimeout(slow)), proxies, first, second
}
