package integration_test

import (
	"fmt"
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
