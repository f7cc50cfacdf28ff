package integration_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/integration_test/histories"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// historiesOf returns a run on a backend. change is applied to the text of the library; it may be nil.
func historiesOf(ctx context.Context, t *testing.T, b *backend.Backend, seed uint64, change func(string) (string, error)) histories.Config {
	t.Helper()
	fleet := must[*histories.Fleet](t)(histories.NewFleet(ctx, b, change))
	t.Cleanup(func() { require(t, fleet.Close(context.Background())) })
	return histories.Config{
		Seed: seed, Lanes: 8, Actors: 3, Calls: 8, Most: 1, Timeout: 200 * time.Millisecond,
		Servers: fleet.Servers(1_700_000_000_000_123), Every: 150,
		Faults: func(round uint64) []histories.Fault { return fleet.Faults(seed + round) },
	}
}

// TestHistories checks the replies of real servers to many clients during faults; package histories
// describes how. RATELIMIT_SOAK sets the number of calls: with 200000, a million on four backends.
// Without it, the calls and the faults are always the same, but not their interleaving.
func TestHistories(t *testing.T) {
	wanted, seed := generate.Wanted(t, 3000), uint64(1)
	if os.Getenv("RATELIMIT_SOAK") != "" {
		wanted, seed = wanted*5/4, uint64(time.Now().UnixNano())
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		cfg := historiesOf(ctx, t, b, seed, nil)
		if cfg.Ops = wanted; seed != 1 {
			cfg.Every = max(cfg.Every, wanted/100) // a fault of a container takes about a second
		}
		report, err := histories.Execute(ctx, cfg)
		if report != nil {
			t.Logf("seed %d: %s", seed, report)
			for _, text := range report.Impossible {
				t.Error(text)
			}
			for _, text := range report.Undecided {
				t.Errorf("the search took too many steps:\n%s", text)
			}
		}
		require(t, err)
	}, withClock)
}

// TestHistoriesFindDefects checks that runs find defects of the library on real servers, during
// faults. Each backend gets some of the defects; the tests of package histories try all of them.
func TestHistoriesFindDefects(t *testing.T) {
	all := backends(t)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		for i := slices.Index(all, b); i < len(histories.Defects); i += len(all) {
			defect := histories.Defects[i]
			t.Run(defect.Name, func(t *testing.T) {
				restore(t, b)
				ctx := testContext(t)
				cfg := historiesOf(ctx, t, b, 1, defect.Apply)
				cfg.Ops = 1_000_000
				report := must[*histories.Report](t)(histories.Execute(ctx, cfg))
				if len(report.Impossible) == 0 {
					t.Fatalf("not found: %s", report)
				}
				t.Logf("found after %d calls in %.1f s", report.Calls, report.Elapsed.Seconds())
			})
		}
	}, withClock)
}
