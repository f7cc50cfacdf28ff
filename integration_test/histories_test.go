package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/integration_test/histories"
)

// TestHistories checks the replies of real servers to many clients during faults; package histories
// describes how.
func TestHistories(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		fleet := must[*histories.Fleet](t)(histories.NewFleet(ctx, b, nil))
		t.Cleanup(func() { require(t, fleet.Close(context.Background())) })
		report, err := histories.Execute(ctx, histories.Config{
			Seed: 1, Ops: 4000, Lanes: 8, Actors: 3, Calls: 8, Most: 1, Timeout: 200 * time.Millisecond,
			Servers: fleet.Servers(1_700_000_000_000_123), Faults: fleet.Faults, Every: 200,
		})
		if report != nil {
			t.Logf("%s", report)
			for _, text := range report.Impossible {
				t.Error(text)
			}
		}
		require(t, err)
	}, withClock)
}
