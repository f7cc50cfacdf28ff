package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
)

// TestFleetDoctor checks that the permissions listed in docs/deploying.md are enough for all checks
// of doctor. Before a deployment, doctor must report that each primary lacks the library. After the
// deployment, it must report nothing that prevents decisions.
func TestFleetDoctor(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		rules := append(accessRules(t, newBuild(t), acl.Deployer, "", b.Cluster), "+info", "+config|get", "+fcall_ro|ratelimit_info", "+cluster|info")
		setUser(t, b, "fleet-doctor", rules)
		rdb := newClient(t, b, asUser("fleet-doctor"))
		primaries := primariesOf(ctx, t, b)
		// found waits until doctor reports that the given number of nodes lack the library and that
		// nothing else prevents decisions.
		found := func(lacking int) {
			t.Helper()
			waitFor(ctx, t, "the diagnosis", func() error {
				d, err := doctor.Examine(ctx, rdb, time.Minute, nil)
				lack := 0
				for _, f := range d.Findings {
					switch f.Check {
					case "library":
						lack += max(1, len(f.Addrs)) // a finding that the builds differ has no addresses
					case "persistence", "eviction", "clock":
					default:
						err = fmt.Errorf("%s, %s: %s", f.Check, f.Addrs, f.Found)
					}
				}
				if err == nil && (lack != lacking || len(d.Unchecked) > 0 || len(d.Nodes) != len(b.Nodes)) {
					err = fmt.Errorf("%d of %d nodes lack the library, want %d; unchecked: %v", lack, len(d.Nodes), lacking, d.Unchecked)
				}
				return err
			})
		}
		found(len(primaries))
		deploy(ctx, t, newLoader(t, rdb), policyBuild(t, "doctor"))
		found(0)
	})
}
