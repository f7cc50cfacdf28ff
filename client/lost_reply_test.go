package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

const perDay = client.Limit("10/d")

// lossy lists ways to lose a reply, each with its own kind of connection.
var lossy = []struct {
	name string
	opt  redis.Options
}{
	{"connection cut", redis.Options{}},
	{"read timeout", redis.Options{Dialer: dialTimingOut}},
	{"RESP2, connection cut", redis.Options{Protocol: 2}},
}

// timingOut is a connection on which a failed read reports a timeout, as if the server were silent.
// So the test needs no real timeout, which a slow machine could exceed.
type timingOut struct{ net.Conn }

func (c timingOut) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	return n, err
}

func dialTimingOut(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	return timingOut{conn}, err
}

func wantOnce(t *testing.T, direct redis.UniversalClient, p *proxy, key string, err error) {
	t.Helper()
	if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("error is %v, want ErrOutcomeUnknown and ErrUnavailable", err)
	}
	if n := p.seen(); n != 1 {
		t.Errorf("sent %d times, want once", n)
	}
	if got := must[client.Result](t)(newClient(t, direct).Peek(t.Context(), client.For(key, perDay))); got.Remaining != 9-1 {
		t.Errorf("after one lost call a further one would leave %d, want 8: it was not executed exactly once", got.Remaining)
	}
}

func TestLostReplyCountsOnce(t *testing.T) {
	server, direct := deployed(t)
	for _, way := range lossy {
		t.Run(way.name, func(t *testing.T) {
			p := startProxy(t, server.Addr)
			way.opt.Addr = p.addr()
			rdb := connect(t, way.opt)
			require(t, direct.FlushAll(t.Context()).Err())
			p.lose(10, false)
			_, err := newClient(t, rdb).Allow(t.Context(), "k", perDay)
			wantOnce(t, direct, p, "k", err)

			// go-redis repeats its own FCall if the replies are lost. This shows that the test
			// detects repeats.
			p.lose(10, false)
			if err := rdb.FCall(t.Context(), "ratelimit_take", []string{"k"}, string(perDay)).Err(); err == nil {
				t.Fatal("no reply came, and no error")
			}
			if n := p.seen(); n != 4 {
				t.Errorf("go-redis sent its own FCall %d times, want 4: this test no longer sees repeats", n)
			}
		})
	}
}

// Each primary of the cluster has half of the slots. lowKey is in the lower half of the slots,
// highKey in the upper half.
const (
	lowKey, lowSlot   = "{b}:once", 3300
	highKey, highSlot = "{a}:once", 15495
)

// proxied returns a cluster client that connects to each node through a proxy.
func proxied(t *testing.T, c *cluster) (*redis.ClusterClient, [2]*proxy) {
	t.Helper()
	proxies, dial := dialThrough(t, c)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, Addrs: []string{c.nodes[0].Addr, c.nodes[1].Addr}, Dialer: dial})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, proxies
}

// dialThrough starts a proxy for each primary of a cluster. dial connects to the primaries through
// the proxies.
func dialThrough(t *testing.T, c *cluster) (proxies [2]*proxy, dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	t.Helper()
	through := map[string]string{}
	for i, node := range c.nodes[:2] {
		proxies[i] = startProxy(t, node.Addr)
		through[node.Addr] = proxies[i].addr()
	}
	return proxies, func(ctx context.Context, network, addr string) (net.Conn, error) {
		if to := through[addr]; to != "" {
			addr = to
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}

func flushCluster(t *testing.T, c *cluster) [2]*redis.Client {
	t.Helper()
	var direct [2]*redis.Client
	for i, node := range c.nodes[:2] {
		direct[i] = connect(t, redis.Options{Addr: node.Addr})
		require(t, direct[i].FlushAll(t.Context()).Err())
	}
	return direct
}

func TestLostReplyInCluster(t *testing.T) {
	c := startCluster(t)
	direct := flushCluster(t, c)
	rdb, proxies := proxied(t, c)
	limiter := newClient(t, rdb)
	for i, key := range []string{lowKey, highKey} {
		proxies[i].lose(10, false)
		_, err := limiter.Allow(t.Context(), key, perDay)
		wantOnce(t, direct[i], proxies[i], key, err)

		proxies[i].lose(10, false)
		if err := rdb.FCall(t.Context(), "ratelimit_take", []string{key}, string(perDay)).Err(); err == nil {
			t.Fatal("no reply came, and no error")
		}
		if n := proxies[i].seen(); n < 2 {
			t.Errorf("go-redis sent its own FCall %d times, want more: this test no longer sees repeats", n)
		}
		proxies[i].lose(0, false)
	}
}

func TestClusterRedirections(t *testing.T) {
	c := startCluster(t)
	direct := flushCluster(t, c)
	ctx := t.Context()
	set := func(node int, args ...any) {
		t.Helper()
		require(t, direct[node].Do(ctx, append([]any{"cluster", "setslot"}, args...)...).Err())
	}

	t.Run("ASK is followed, and its reply lost", func(t *testing.T) {
		set(1, lowSlot, "importing", c.ids[0])
		set(0, lowSlot, "migrating", c.ids[1])
		defer func() { set(0, lowSlot, "stable"); set(1, lowSlot, "stable") }()
		rdb, proxies := proxied(t, c)
		limiter := newClient(t, rdb)

		res := must[client.Result](t)(limiter.Allow(ctx, lowKey, perDay))
		if !res.Allowed || res.Remaining != 9 || proxies[1].seen() != 1 {
			t.Errorf("%+v after %d calls on the node asked, want allowed, 9 remaining, one call", res, proxies[1].seen())
		}
		proxies[1].lose(10, false)
		_, err := limiter.Allow(ctx, lowKey, perDay)
		if !errors.Is(err, client.ErrOutcomeUnknown) || proxies[1].seen() != 1 {
			t.Errorf("sent %d times to the node asked, error %v; want once and ErrOutcomeUnknown", proxies[1].seen(), err)
		}
		proxies[1].lose(0, false)
		if res := must[client.Result](t)(limiter.Allow(ctx, lowKey, perDay)); res.Remaining != 7 {
			t.Errorf("the third call leaves %d, want 7", res.Remaining)
		}
		for _, rdb := range direct {
			require(t, rdb.FlushAll(ctx).Err())
		}
	})

	t.Run("MOVED is followed, and its reply lost", func(t *testing.T) {
		rdb, proxies := proxied(t, c)
		limiter := newClient(t, rdb)
		must[client.Result](t)(limiter.Peek(ctx, client.For(highKey, perDay))) // the client now knows the slots
		set(0, highSlot, "node", c.ids[0])
		set(1, highSlot, "node", c.ids[0])
		defer func() {
			if err := direct[0].FlushAll(ctx).Err(); err != nil { // a node does not give up a slot with keys
				t.Error(err)
			}
			set(0, highSlot, "node", c.ids[1])
			set(1, highSlot, "node", c.ids[1])
		}()

		proxies[0].lose(10, false)
		proxies[1].lose(0, false)
		_, err := limiter.Allow(ctx, highKey, perDay)
		if proxies[1].seen() != 1 {
			t.Errorf("the old node was asked %d times, want once", proxies[1].seen())
		}
		wantOnce(t, direct[0], proxies[0], highKey, err)
		proxies[0].lose(0, false)
		if res := must[client.Result](t)(limiter.Allow(ctx, highKey, perDay)); !res.Allowed || res.Remaining != 8 {
			t.Errorf("%+v, want allowed with 8 remaining", res)
		}
	})
}
