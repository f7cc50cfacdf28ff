package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// Tests of faults rely on this: a paused server does not reply, a killed one loses its data, both
// come back at their address, and Restore repairs everything.
func TestServersPauseDieAndComeBack(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		n := b.Nodes[0]
		loadLibrary(ctx, t, b)
		if err := n.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		// A new connection without retries, so that only the read timeout ends the call.
		c := redis.NewClient(&redis.Options{Addr: n.Addr, MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
		defer c.Close()
		if err := c.Ping(ctx).Err(); err == nil {
			t.Error("a paused server answers")
		}
		if err := n.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		if libraries := countLibraries(ctx, t, n); libraries != 1 {
			t.Errorf("after a pause the server holds %d libraries, want 1", libraries)
		}
		if err := n.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(ctx).Err(); err == nil {
			t.Error("a killed server answers")
		}
		if err := n.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		if libraries := countLibraries(ctx, t, n); libraries != 0 && !b.Cluster {
			t.Errorf("after a restart without persistence the server holds %d libraries", libraries)
		}
		if err := n.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		restore(t, b)
		if err := newClient(t, b).Set(ctx, "key", "value", 0).Err(); err != nil {
			t.Errorf("after Restore: %v", err)
		}
	}, startedHere)
}

func countLibraries(ctx context.Context, t *testing.T, n *backend.Node) int {
	t.Helper()
	libraries, err := n.Client().FunctionList(ctx, redis.FunctionListQuery{}).Result()
	if err != nil {
		t.Fatalf("%s: %v", n, err)
	}
	return len(libraries)
}

// A spare node joins the cluster by CLUSTER MEET, without the library, and is removed by Restore.
func TestASpareNodeJoinsAndLeavesTheCluster(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		spare, err := b.StartSpare(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Nodes[0].Meet(ctx, spare); err != nil {
			t.Fatal(err)
		}
		waitFor(ctx, t, "all nodes to know the spare one", func() error {
			for _, n := range b.Nodes {
				if err := knows(ctx, n, spare.Addr, true); err != nil {
					return err
				}
			}
			return nil
		})
		if libraries := countLibraries(ctx, t, spare); libraries != 0 {
			t.Errorf("the node that joined holds %d libraries: CLUSTER MEET is not known to copy any", libraries)
		}
		restore(t, b)
		for _, n := range b.Nodes {
			if err := knows(ctx, n, spare.Addr, false); err != nil {
				t.Error(err)
			}
		}
	}, ofCluster, startedHere)
}

// knows returns an error unless the node lists the address, or does not list it, as wanted.
func knows(ctx context.Context, n *backend.Node, addr string, want bool) error {
	nodes, err := n.Client().ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(nodes) {
		if strings.Contains(line, " "+addr+"@") && !strings.Contains(line, "handshake") {
			if want {
				return nil
			}
			return fmt.Errorf("%s still lists %s", n, addr)
		}
	}
	if want {
		return errors.New(n.String() + " does not list " + addr)
	}
	return nil
}
