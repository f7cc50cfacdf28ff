package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// build builds a program and returns its path.
func build(t *testing.T, dir, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", source, err, out)
	}
	return program
}

// TestGRPCurl checks that grpcurl finds the services by reflection, and gets decisions without a
// .proto file.
func TestGRPCurl(t *testing.T) {
	gateway, grpcurl := build(t, "..", "."), build(t, ".", "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte("policies:\n  api:\n    limit: 1/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), gateway, "--dev", "--policies", policies, "--timeout", "1m", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	addr := ""
	listening := regexp.MustCompile(`msg=listening grpc=(\S+) `)
	for lines := bufio.NewScanner(log); addr == "" && lines.Scan(); {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			addr = found[1]
		}
	}
	ask := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), grpcurl, append([]string{"-plaintext"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("grpcurl %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	const service = "envoy.service.ratelimit.v3.RateLimitService"
	if got := ask(addr, "list"); !strings.Contains(got, service+"\n") || !strings.Contains(got, "grpc.health.v1.Health\n") {
		t.Errorf("the services are\n%s", got)
	}
	question := `{"domain":"web","descriptors":[{"entries":[{"key":"policy","value":"api"},{"key":"user","value":"ann"}]}]}`
	for _, want := range []string{"OK", "OVER_LIMIT"} {
		var got struct {
			OverallCode string
			Statuses    []struct {
				Code         string
				CurrentLimit struct {
					Name            string
					RequestsPerUnit int
				}
				DurationUntilReset string
			}
		}
		text := ask("-d", question, addr, service+"/ShouldRateLimit")
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.OverallCode != want || len(got.Statuses) != 1 || got.Statuses[0].Code != want ||
			got.Statuses[0].CurrentLimit.Name != "api" || got.Statuses[0].CurrentLimit.RequestsPerUnit != 1 || !strings.HasSuffix(got.Statuses[0].DurationUntilReset, "s") {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
