package integration_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestLLM runs the tests of examples/llm on every server. These tests also run offline.
func TestLLM(t *testing.T) {
	dir := t.TempDir()
	command, tests := filepath.Join(dir, "ratelimit"), filepath.Join(dir, "llm.test")
	for _, words := range [][]string{{"build", "-o", command, "./cmd/ratelimit"}, {"test", "-c", "-o", tests, "./examples/llm"}} {
		build := exec.CommandContext(t.Context(), "go", words...)
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		server := "redis://" + strings.Join(b.Addrs(), ",")
		deploy := exec.CommandContext(ctx, command, "deploy", "--timeout", "1m", "--redis", server, "--policies", "../examples/llm/policies.yaml")
		if out, err := deploy.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", deploy, err, out)
		}
		noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) // same time as in examples/llm/trial_test.go
		require(t, b.SetTime(noon.UnixMicro()))
		run := exec.CommandContext(ctx, tests, "-test.v", "-test.skip", "TestCommandsOfTheDocuments", "-redis", server)
		if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestStream") {
			t.Errorf("%v\n%s", err, out)
		}
	}, withClock)
}
