package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestARealServerIsReached fails if there is no server to test on.
func TestARealServerIsReached(t *testing.T) {
	all := backends(t)
	if len(all) == 0 {
		t.Fatal(backend.HowToGetAServer)
	}
	for _, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			if err := newClient(t, b).Ping(testContext(t)).Err(); err != nil {
				t.Fatal(err)
			}
			t.Log(b.About())
		})
	}
}

// A server that has exited runs again for the next test.
func TestAServerThatEndedRunsAgain(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		n := b.Nodes[0]
		_ = n.Client().ShutdownNoSave(ctx).Err() // there is no reply
		waitFor(ctx, t, "the server to end", func() error {
			if ended, _ := n.Ended(ctx); !ended {
				return fmt.Errorf("%s still runs", n)
			}
			return nil
		})
		if err := b.Restore(ctx); err != nil {
			t.Fatal(err)
		}
		if err := n.Client().Ping(ctx).Err(); err != nil {
			t.Error(err)
		}
	}, startedHere)
}

// Every server's time, and so the expiry of every key, follows the clock's file, forward and
// backward by years.
func TestClockMovesTimeAndExpiry(t *testing.T) {
	const start = int64(1_700_000_000_000_000)
	ctx := testContext(t)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		c := newClient(t, b)
		set := func(us int64) {
			t.Helper()
			if err := b.SetTime(us); err != nil {
				t.Fatal(err)
			}
		}
		set(start)
		if err := c.Set(ctx, "{c}:key", 1, 400*24*time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			at  time.Duration
			ttl time.Duration // -2 ns: no such key
		}{
			{0, 400 * 24 * time.Hour},
			{time.Microsecond, 400 * 24 * time.Hour}, // in the same millisecond
			{time.Millisecond, 400*24*time.Hour - time.Millisecond},
			{399 * 24 * time.Hour, 24 * time.Hour},
			{-1000 * 24 * time.Hour, 1400 * 24 * time.Hour},
			{400 * 24 * time.Hour, 0}, // still there in the same millisecond
			{400*24*time.Hour + time.Millisecond, -2},
		} {
			set(start + row.at.Microseconds())
			ttl, err := c.PTTL(ctx, "{c}:key").Result()
			if err != nil {
				t.Fatal(err)
			}
			if ttl != row.ttl {
				t.Errorf("%v after the start the key lives for %v, want %v", row.at, ttl, row.ttl)
			}
		}
		b.RealTime()
		now, err := b.Nodes[0].Client().Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(now).Abs(); d > time.Minute {
			t.Errorf("in real time the server's clock differs by %v", d)
		}
	}, withClock)
}

// A cluster with a clock that jumps by years stays complete: no node is considered failed, no
// replica loses its primary or has to copy it again, and calls in progress get a reply.
func TestClusterStaysWholeWhileItsClockJumps(t *testing.T) {
	const day = int64(24 * time.Hour / time.Microsecond)
	ctx := testContext(t)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		c := newClient(t, b)
		calling, stop := context.WithCancel(ctx)
		calls := make(chan error, 1)
		go func() { calls <- keepWriting(calling, c) }()
		before := troubles(ctx, t, b)
		sent := messagesSent(ctx, t, b)
		// The nodes send messages to one another about once a second of their monotonic clock. Jump
		// all the time, so that many jumps happen while messages are in transit.
		now, jumps := time.Now().UnixMicro(), []int64{400, -400, 1, 4000, -1, -4000, 0}
		waitFor(ctx, t, "every node to send three messages", func() error {
			for _, days := range jumps {
				if err := b.SetTime(now + days*day); err != nil {
					return err
				}
				if err := c.Set(ctx, "a", days, 0).Err(); err != nil {
					return err
				}
			}
			for n, count := range messagesSent(ctx, t, b) {
				if count < sent[n]+3 {
					return fmt.Errorf("%s has sent %d", n, count-sent[n])
				}
			}
			return nil
		})
		stop()
		if err := <-calls; err != nil {
			t.Errorf("a call failed while the clock jumped: %v", err)
		}
		restore(t, b) // fails unless the cluster is complete
		for what, count := range troubles(ctx, t, b) {
			if count != before[what] {
				t.Errorf("%s went from %s to %s", what, before[what], count)
			}
		}
	}, ofCluster, withClock)
}

// messagesSent returns how many messages each node of a cluster has sent to the others.
func messagesSent(ctx context.Context, t *testing.T, b *backend.Backend) map[*backend.Node]int64 {
	t.Helper()
	all := map[*backend.Node]int64{}
	for _, n := range b.Nodes {
		count, err := n.MessagesSent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = count
	}
	return all
}

// troubles returns signs that a cluster's nodes lost contact for a while, by node and name: its
// role, how often replicas had to copy it, and its messages about failures and votes.
func troubles(ctx context.Context, t *testing.T, b *backend.Backend) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, n := range b.Nodes {
		info, err := n.Client().InfoMap(ctx, "replication", "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		all[n.Name+" role"] = info["Replication"]["role"]
		for _, field := range []string{"sync_full", "sync_partial_ok", "sync_partial_err"} {
			all[n.Name+" "+field] = info["Stats"][field]
		}
		cluster, err := n.Client().ClusterInfo(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(cluster) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.HasPrefix(name, "cluster_stats_messages_fail") || strings.HasPrefix(name, "cluster_stats_messages_auth") ||
				strings.HasSuffix(name, "epoch") || strings.HasPrefix(name, "cluster_slots_") {
				all[n.Name+" "+name] = value
			}
		}
	}
	return all
}

// keepWriting writes to nodes of all slots in turn until ctx ends, and returns the first error
// before that.
func keepWriting(ctx context.Context, c redis.UniversalClient) error {
	for i := 0; ctx.Err() == nil; i++ {
		err := c.Set(ctx, fmt.Sprintf("key:%d", i%1000), i, time.Hour).Err()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
