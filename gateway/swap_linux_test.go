package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestSwap starts the gateway with the environment in docs/swap.md, and sends the requests that the
// README of envoyproxy/ratelimit sends through Envoy. The rules are those of its example, by the year.
func TestSwap(t *testing.T) {
	redis, root := redistest.Run(t), t.TempDir()
	block := blocks(t, "../docs/swap.md", "In a compose file", "yaml")[0]
	_, variables, found := strings.Cut(block, "environment:\n")
	if !found {
		t.Fatal("docs/swap.md has no environment")
	}
	for line := range strings.Lines(variables) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), "=")
		switch name {
		case "REDIS_URL":
			value = redis.Addr
		case "RUNTIME_ROOT":
			value = root
		}
		t.Setenv(name, value)
	}
	folder := filepath.Join(root, "ratelimit", "config")
	require(t, os.MkdirAll(folder, 0o755))
	rule := func(key, value string, n int, more string) string {
		return fmt.Sprintf("{key: %s, value: %s, rate_limit: {unit: year, requests_per_unit: %d}%s}", key, value, n, more)
	}
	require(t, os.WriteFile(filepath.Join(folder, "example.yaml"), []byte("domain: rl\ndescriptors:\n"+
		"  - {key: source_cluster, value: proxy, descriptors: ["+rule("destination_cluster", "mock", 1, "")+"]}\n"+
		"  - "+rule("foo", "", 2, ", descriptors: ["+strings.Join([]string{
		rule("bar", "", 3, ""), rule("bar", "banned", 0, ""), rule("baz", "", 1, ""), rule("baz", "shady", 1, ", shadow_mode: true"),
	}, ", ")+"]")+"\n"), 0o600))

	var log redistest.Output
	startGatewayLogging(t, &log, "/bin/ratelimit")
	redistest.Eventually(t, "the gateway is ready", func() bool { return strings.Contains(log.String(), "msg=ready") })
	conn := must[*grpc.ClientConn](t)(grpc.NewClient(addresses.FindStringSubmatch(log.String())[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer func() { _ = conn.Close() }()
	for _, tt := range []struct {
		descriptor string
		allowed    int // of five requests
	}{
		{"source_cluster proxy destination_cluster mock", 1},
		{"foo foo", 2},
		{"foo foo bar bar", 3},
		{"foo foo baz baz", 1},
		{"foo foo bar banned", 0},
		{"foo foo baz shady", 5},
		{"foo foo baz not-so-shady", 1},
	} {
		allowed := 0
		for range 5 {
			answer := must[*rls.RateLimitResponse](t)(rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "rl", Descriptors: describe(strings.Fields(tt.descriptor)...)}))
			if answer.OverallCode == rls.RateLimitResponse_OK {
				allowed++
			}
		}
		if allowed != tt.allowed {
			t.Errorf("%s: %d of 5 requests were allowed, want %d", tt.descriptor, allowed, tt.allowed)
		}
	}
}
