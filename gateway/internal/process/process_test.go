package process_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// question requests one unit under the policy api.
var question = &rls.RateLimitRequest{Domain: "web", Descriptors: []*entries.RateLimitDescriptor{
	{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "policy", Value: "api"}, {Key: "user", Value: "ann"}}},
}}

// TestStartsWithoutRedis checks that the gateway starts without Redis, and is unready until a check
// passes.
func TestStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	addr := port.Addr().String()
	_ = port.Close()
	g := start(t, process.Options{Redis: "redis://" + addr})
	g.says(t, "not ready")
	if status, body := g.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "not ready; see the log") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _ := g.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	if status, _ := g.get(t, "/check/api"); status != http.StatusServiceUnavailable {
		t.Errorf("/check: %d", status)
	}
	conn := g.dial(t, nil)
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question); status.Code(err) != codes.Unavailable {
		t.Errorf("ShouldRateLimit: %v", err)
	}
	if state, err := healthapi.NewHealthClient(conn).Check(t.Context(), &healthapi.HealthCheckRequest{}); err != nil || state.Status != healthapi.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: %v, %v", state, err)
	}
	server(t, embedded.WithAddr(addr))
	g.ready(t)
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
	answer, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question)
	if err != nil || answer.OverallCode != rls.RateLimitResponse_OK || answer.Statuses[0].LimitRemaining != 2 {
		t.Errorf("ShouldRateLimit: %v, %v", answer, err)
	}
}

// TestAnswersWhileRedisHangs checks that, if a server accepts connections but never replies, each
// request fails, and the breaker opens.
func TestAnswersWhileRedisHangs(t *testing.T) {
	t.Parallel()
	r := newRelay(t, server(t).Addr())
	g := start(t, process.Options{Redis: "redis://" + r.addr, Timeout: 50 * time.Millisecond})
	g.ready(t)
	r.hold(true)
	service := rls.NewRateLimitServiceClient(g.dial(t, nil))
	for range 10 {
		if status, body := g.get(t, "/check/api"); status != http.StatusServiceUnavailable {
			t.Errorf("/check: %d %s", status, body)
		}
		if status, body := g.send(t, "POST", "/v1/take", `{"keys":["a"],"limits":["3/m"]}`); status != http.StatusServiceUnavailable {
			t.Errorf("/v1/take: %d %s", status, body)
		}
		if answer, err := service.ShouldRateLimit(t.Context(), question); status.Code(err) != codes.Unavailable {
			t.Errorf("ShouldRateLimit: %v, %v", answer, err)
		}
	}
	breaker := func() string {
		_, text := g.get(t, "/metrics")
		_, value, _ := strings.Cut(text, "ratelimit_gateway_breaker_open{node=\""+r.addr+"\"} ")
		value, _, _ = strings.Cut(value, "\n")
		return value
	}
	if got := breaker(); got != "1" {
		t.Errorf("the breaker is %q, want 1", got)
	}
	if status, _ := g.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d; an outage must not take away the gateway, because proxies would wait for another", status)
	}
	r.hold(false)
	redistest.Eventually(t, "decisions again", func() bool { status, _ := g.get(t, "/check/api"); return status == http.StatusOK })
	redistest.Eventually(t, "the breaker is closed", func() bool { return breaker() == "0" })
}

// TestDeploys checks that Deploy loads the library before the first request, and again after the
// server has lost it.
func TestDeploys(t *testing.T) {
	t.Parallel()
	redis := redistest.Run(t)
	g := start(t, process.Options{Redis: "redis://" + redis.Addr, Deploy: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
	conn := must[net.Conn](t)(net.Dial("tcp", redis.Addr))
	defer conn.Close()
	must[int](t)(fmt.Fprint(conn, "FUNCTION FLUSH\r\n"))
	if n, err := conn.Read(make([]byte, 100)); n != len("+OK\r\n") || err != nil {
		t.Fatal(n, err)
	}
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check after a loss: %d %s", status, body)
	}
}

// TestDoesNotDeploy checks that, without Deploy, the log says what to do.
func TestDoesNotDeploy(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Redis: "redis://" + embedded.Run(t).Addr()})
	g.says(t, "deploy it with ratelimit deploy, or start the gateway with --deploy")
	if status, _ := g.get(t, "/check/api"); status != http.StatusServiceUnavailable {
		t.Errorf("/check: %d", status)
	}
}

func TestDev(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Redis: "redis://ignored:1", Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	for i, want := range []int{200, 200, 200, 429} {
		if status, body := g.get(t, "/check/api"); status != want {
			t.Errorf("request %d: %d %s, want %d", i, status, body, want)
		}
	}
	if _, body := g.get(t, "/v1/info"); !strings.Contains(body, `"policies":["api"]`) {
		t.Error(body)
	}
	if status, _ := g.get(t, "/v1/openapi.yaml"); status != http.StatusOK {
		t.Errorf("openapi.yaml: %d", status)
	}
	if _, text := g.get(t, "/metrics"); !strings.Contains(text, `ratelimit_gateway_requests_total{decision="denied",name="@api",source="check"} 1`) || !strings.Contains(text, "go_goroutines ") {
		t.Error(text)
	}
	if status, _ := g.get(t, "/"); status != http.StatusNotFound {
		t.Errorf("/: %d", status)
	}
}

// TestBatches checks that, with batches, a hot key needs fewer calls than requests.
func TestBatches(t *testing.T) {
	t.Parallel()
	for batches, fewer := range map[string]bool{"": false, "50,1m": true} {
		r := newRelay(t, embedded.Run(t, embedded.WithLibrary(library(t))).Addr())
		g := start(t, process.Options{Redis: "redis://" + r.addr, Batches: batches})
		g.ready(t)
		const requests = 200
		for range requests {
			if status, body := g.send(t, "POST", "/v1/take", `{"keys":["hot"],"limits":["1000000/h"]}`); status != http.StatusOK {
				t.Fatal(status, body)
			}
		}
		if got := r.calls(); (got < requests/2) != fewer {
			t.Errorf("--batches %q: %d calls for %d requests", batches, got, requests)
		}
	}
}
