package integration_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestAServerThatEndedRunsAgain checks that Restore restarts a server that has exited.
func TestAServerThatEndedRunsAgain(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		n := b.Nodes[0]
		_ = n.Client().ShutdownNoSave(ctx).Err() // SHUTDOWN has no reply
		waitFor(ctx, t, "the server to end", func() error {
			if ended, _ := n.Ended(ctx); !ended {
				return fmt.Errorf("%s still runs", n)
			}
			return nil
		})
		require(t, b.Restore(ctx))
		if err := n.Client().Ping(ctx).Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestANodeRestartsEmpty checks that a killed primary restarts without functions, even if it was a
// replica before. A replica writes its primary's data to a file, which must not be loaded.
func TestANodeRestartsEmpty(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		primaries := primariesOf(ctx, t, b)
		n := b.Nodes[slices.IndexFunc(b.Nodes, func(n *backend.Node) bool { return !slices.Contains(primaries, n) })]
		waitForReplicas(ctx, t, primaries)
		require(t, n.Kill(ctx))
		for _, primary := range primaries { // forces a full resynchronization of the replica
			require(t, primary.Client().Do(ctx, "DEBUG", "CHANGE-REPL-ID").Err())
		}
		require(t, n.Restart(ctx))
		waitForReplicas(ctx, t, primaries)
		require(t, n.Client().Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err())
		waitFor(ctx, t, "the replica to take over", func() error {
			if now := primariesOf(ctx, t, b); len(now) != len(primaries) || !slices.Contains(now, n) {
				return fmt.Errorf("the primaries are %v", now)
			}
			return nil
		})
		require(t, n.Kill(ctx))
		require(t, n.Restart(ctx))
		if digest := deployed(ctx, t, []*backend.Node{n})[n]; digest != "" {
			t.Errorf("%s restarted with the library %.12s", n, digest)
		}
	}, ofCluster)
}
