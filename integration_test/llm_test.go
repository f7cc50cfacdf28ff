package integration_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestLLM runs the tests of examples/llm on every server. These tests also run offline.
func TestLLM(t *testing.T) {
	built := goBuild(t, "test", "-c", "./examples/llm")
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		deployPolicies(ctx, t, b, "../examples/llm/policies.yaml")
		noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) // same time as in examples/llm/trial_test.go
		require(t, b.SetTime(noon.UnixMicro()))
		run := exec.CommandContext(ctx, must[string](t)(built()), "-test.v", "-test.skip", "TestCommandsOfTheDocuments", "-redis", "redis://"+strings.Join(b.Addrs(), ","))
		if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestStream") {
			t.Errorf("%v\n%s", err, out)
		}
	}, withClock, prepared(built))
}
