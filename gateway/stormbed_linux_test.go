package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/xdstest"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// newStorm starts a gateway with a Redis server, an xDS server, and room for streams.
func newStorm(t *testing.T, streams int) (*storm, *freezer, *xdstest.Server, *redistest.Server, *redistest.Output) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(path, []byte("policies:\n  tokens: {limit: fixed_window "+strconv.Itoa(perTenant)+"/d}\n  quota: {limit: "+strconv.Itoa(quotaRate)+"/s burst="+strconv.Itoa(quotaBurst)+"}\n  door: {limit: fixed_window "+strconv.Itoa(perUser)+"/300d}\n"), 0o600))
	redis, server := redistest.Run(t), xdstest.New()
	port := &freezer{Listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))}
	xds := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(xds, server)
	go func() { _ = xds.Serve(port) }()
	t.Cleanup(xds.Stop)
	server.Set("first", rules(0)...)

	cmd := exec.Command(os.Args[0], "--redis", "redis://"+redis.Addr, "--deploy", "--policies", path, "--xds", port.Addr().String(), "--xds-node", "me",
		"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--timeout", "250ms", "--max-connections", strconv.Itoa(streams+100))
	cmd.Env = append(os.Environ(), runMain+"=yes")
	log := &redistest.Output{}
	cmd.Stderr = log
	require(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	redistest.Eventually(t, "the gateway is ready", func() bool { return strings.Contains(log.String(), "msg=ready") })
	found := addresses.FindStringSubmatch(log.String())
	s := &storm{T: t, http: found[2], pid: cmd.Process.Pid, web: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	for range 1 + streams/100 {
		conn := must[*grpc.ClientConn](t)(grpc.NewClient(found[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
		t.Cleanup(func() { _ = conn.Close() })
		s.conns = append(s.conns, conn)
	}
	return s, port, server, redis, log
}

// settled waits until the sum of all reservations is what was committed. It fails if it was less, because
// units were then given back that were used.
func (s *storm) settled() {
	redistest.Eventually(s.T, "what nobody committed was given back", func() bool {
		descriptors := describe("policy", "tokens", "tenant", "a")
		descriptors[0].HitsAddend = wrapperspb.UInt64(0) // only look
		var answer *rls.RateLimitResponse
		err := s.call(func(ctx context.Context) (err error) {
			answer, err = rls.NewRateLimitServiceClient(s.conn(0)).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "llm", Descriptors: descriptors})
			return err
		})
		if err != nil {
			return false
		}
		used, want := perTenant-int64(answer.Statuses[0].LimitRemaining), s.committed.Load()
		if used < want {
			s.Fatalf("%d units are charged, and %d were committed", used, want)
		}
		return used == want
	})
	s.Logf("%d units were committed, and %d reservations were not", s.committed.Load(), s.left.Load())
}

// bounded checks that in no span of time, the Envoys let pass more than the bound in docs/envoy.md.
func (s *storm) bounded() {
	const more = 16 // seconds: an interval, the time of an assignment, and a second for late messages
	sums := make([]int64, len(s.passed)+1)
	for i := range s.passed {
		sums[i+1] = sums[i] + int64(s.passed[i].Load())
	}
	for from := range sums {
		for to := from + 1; to < len(sums); to++ {
			seconds := float64(to-from+1)*quotaStep.Seconds() + more
			if most := quotaBurst + quotaRate*seconds; float64(sums[to]-sums[from]) > most {
				s.Fatalf("%d requests passed in steps %d to %d; the bound is %.0f", sums[to]-sums[from], from, to, most)
			}
		}
	}
	s.Logf("%d requests passed at the Envoys", sums[len(s.passed)])
}

// passing reports whether requests have passed at the Envoys with one bucket.
func (s *storm) passing() bool {
	for i := range s.passed {
		if s.passed[i].Load() > 0 {
			return true
		}
	}
	return false
}

// metric returns a number of /metrics.
func (s *storm) metric(name string) int {
	response, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		s.Fatalf("no metric %s", name)
	}
	return int(must[float64](s.T)(strconv.ParseFloat(string(found[1]), 64)))
}
