package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Must returns a function that returns its first argument, and ends the test if there is an error.
func Must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Require ends the test if there is an error.
func Require(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Output holds what a program has written. It can be read while the program writes.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (o *Output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// ClusterOf returns a cluster client that uses the servers at addrs as primaries, although they may
// not be in cluster mode. It does not retry. It is closed at the end of the test.
func ClusterOf(t testing.TB, addrs ...string) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) (slots []redis.ClusterSlot, _ error) {
		for i, addr := range addrs {
			slots = append(slots, redis.ClusterSlot{Start: i * 5000, End: i*5000 + 4999, Nodes: []redis.ClusterNode{{Addr: addr}}})
		}
		return slots, nil
	}, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Join makes a cluster of nodes. The first nodes get equal shares of the slots; primaries is their
// number. The other nodes get no slots.
func Join(t testing.TB, nodes []*redis.Client, primaries int) {
	t.Helper()
	ctx := t.Context()
	for i, node := range nodes {
		if i < primaries {
			if err := node.ClusterAddSlotsRange(ctx, i*16384/primaries, (i+1)*16384/primaries-1).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, other := range nodes[:i] { // introduce every pair, because gossip takes seconds
			host, port, _ := net.SplitHostPort(other.Options().Addr)
			if err := node.ClusterMeet(ctx, host, port).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, node := range nodes {
		Eventually(t, "every node sees the whole cluster", func() bool {
			info := node.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", primaries)) &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(nodes))) && !strings.Contains(node.ClusterNodes(ctx).Val(), "handshake")
		})
	}
}
