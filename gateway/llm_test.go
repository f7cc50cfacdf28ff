package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	policyfile "github.com/ratelimit-functions/ratelimit/policies"
)

// TestProxyForTokens runs the test of examples/llm that reserves tokens, against a gateway.
func TestProxyForTokens(t *testing.T) {
	const folder = "../examples/llm"
	program := filepath.Join(t.TempDir(), "llm")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := must[*policyfile.File](t)(policyfile.Read(folder + "/policies.yaml"))
	library := must[functions.Build](t)(file.Build())
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) // the time in examples/llm/trial_test.go
	redis := "redis://" + embedded.Run(t, embedded.WithLibrary(library.Text()), embedded.WithTime(noon)).Addr()
	addr, _ := startGateway(t, "--redis", redis)
	run := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^TestGateway$", "-redis", redis, "-gateway", "http://"+addr)
	run.Dir = folder
	if out, err := run.CombinedOutput(); err != nil || strings.Count(string(out), "--- PASS: TestGateway/") != 8 {
		t.Errorf("%v\n%s", err, out)
	}
}
