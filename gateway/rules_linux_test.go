//go:build soak

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/xdstest"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestManyRules loads 100,000 rules from a file, and the same rules from an xDS server. It logs the time
// and the memory, and fails if they are much more than docs/numbers.md says.
func TestManyRules(t *testing.T) {
	const many, most = 100_000, 1000 // MB
	value := func(i int) string { return fmt.Sprintf("user-%06d", i) }
	program := filepath.Join(t.TempDir(), "ratelimit-gateway") // the program of the tests takes more memory
	if out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, from := range []string{"a file", "xDS"} {
		t.Run(from, func(t *testing.T) {
			redis := redistest.Run(t)
			args := []string{"--redis", "redis://" + redis.Addr, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"}
			var size int
			var load func(n int)
			if from == "xDS" {
				server, xds := xdstest.New(), grpc.NewServer()
				port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
				discovery.RegisterAggregatedDiscoveryServiceServer(xds, server)
				go func() { _ = xds.Serve(port) }()
				t.Cleanup(xds.Stop)
				args = append(args, "--xds", port.Addr().String(), "--xds-node", "me")
				load = func(n int) {
					config := &rlsconf.RateLimitConfig{Name: "web", Domain: "web"}
					for i := range n {
						config.Descriptors = append(config.Descriptors, &rlsconf.RateLimitDescriptor{Key: "user", Value: value(i), RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_MINUTE, RequestsPerUnit: uint32(1 + i)}})
					}
					size = len(must[[]byte](t)(proto.Marshal(config)))
					server.Set(fmt.Sprint(n), config)
				}
			} else {
				dir := t.TempDir()
				args = append(args, "--envoy-config", dir)
				load = func(n int) {
					var text strings.Builder
					text.WriteString("domain: web\ndescriptors:\n")
					for i := range n {
						fmt.Fprintf(&text, "  - {key: user, value: %s, rate_limit: {unit: minute, requests_per_unit: %d}}\n", value(i), 1+i)
					}
					size = text.Len()
					require(t, os.WriteFile(dir+".new", []byte(text.String()), 0o600))
					require(t, os.Rename(dir+".new", filepath.Join(dir, "web.yaml")))
				}
			}
			load(1)
			cmd := exec.Command(program, args...)
			var log redistest.Output
			cmd.Stderr = &log
			require(t, cmd.Start())
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			loaded := func(n int) {
				redistest.Eventually(t, fmt.Sprint(n, " rules are loaded"), func() bool { return strings.Contains(log.String(), fmt.Sprintf("rules=%d\n", n)) })
			}
			loaded(1)
			redistest.Eventually(t, "the gateway listens", func() bool { return addresses.MatchString(log.String()) })
			idle, used := resident(t, cmd.Process.Pid), processor(t, cmd.Process.Pid)
			load(many)
			began := time.Now()
			loaded(many)
			took := time.Since(began)
			used = processor(t, cmd.Process.Pid) - used
			peak := memory(t, cmd.Process.Pid)
			t.Logf("%d rules, %.1f MB: loaded in %.1f s, with %.1f s of processor time; memory: %d MB before, up to %d MB, %d MB afterwards",
				many, float64(size)/1e6, took.Seconds(), used.Seconds(), idle, peak, resident(t, cmd.Process.Pid))
			if peak > most || used > time.Minute {
				t.Errorf("want at most %d MB and a minute", most)
			}
		})
	}
}

// resident returns the resident memory of a process, in MB.
func resident(t *testing.T, pid int) int { return memoryOf(t, pid, "VmRSS") }
