package process_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// steps stops the shutdown of a gateway before each step.
type steps struct {
	t     *testing.T
	begin chan string
	goOn  chan bool
}

// wait is called before each step.
func (s *steps) wait(step string) {
	select {
	case s.begin <- step:
		<-s.goOn
	case <-s.t.Context().Done(): // the test has failed
	}
}

// next waits until a step is about to begin, checks that it is the right one, and calls before.
// It then lets the step begin.
func (s *steps) next(want string, before func()) {
	s.t.Helper()
	if got := <-s.begin; got != want {
		s.t.Errorf("the step is %q, want %q", got, want)
	}
	before()
	s.goOn <- true
}

// TestShutdown stops a gateway while requests, a penalty and reports of an Envoy are in progress,
// and looks at it before each step. All replies to takes are held back until the ports are closed.
func TestShutdown(t *testing.T) {
	t.Parallel()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "100/d"}}},
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Penalty: &functions.Penalty{First: 48 * time.Hour, Max: 48 * time.Hour, Forget: 480 * time.Hour}},
	)))
	redis := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	r := newRelay(t, redis.Addr())
	s := &steps{t, make(chan string), make(chan bool)}
	g := start(t, process.Options{Redis: "redis://" + r.addr, Admin: "127.0.0.1:0"}.WithSteps(s.wait))
	g.ready(t)
	conn := g.dial(t, nil)
	health := healthapi.NewHealthClient(conn)
	watch := must[healthapi.Health_WatchClient](t)(health.Watch(t.Context(), &healthapi.HealthCheckRequest{}))
	must[*healthapi.HealthCheckResponse](t)(watch.Recv())
	stream := must[quota.RateLimitQuotaService_StreamRateLimitQuotasClient](t)(quota.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context()))
	if status, body := g.get(t, "/check/login"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}

	r.holdTakes(true)
	r.forget()
	report := func(units uint64) {
		t.Helper()
		require(t, stream.Send(&quota.RateLimitQuotaUsageReports{Domain: "web", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: &quota.BucketId{Bucket: map[string]string{"policy": "api", "user": "envoy"}}, NumRequestsAllowed: units},
		}}))
	}
	report(7)
	answers := make(chan error, 2)
	go func() {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question)
		answers <- err
	}()
	go func() { // denied, and so it gets a penalty, which is sent after the reply to the take
		status, body, err := g.request(t.Context(), "GET", "/check/login", "")
		if err == nil && status != http.StatusTooManyRequests {
			err = errors.New(body)
		}
		answers <- err
	}()
	redistest.Eventually(t, "two requests and a charge are in progress", func() bool { return r.saw("api|user=envoy", "api|user=ann", "login|address=") })
	report(5) // while the charge of the first report is in progress
	metric := func(line string) {
		t.Helper()
		redistest.Eventually(t, line, func() bool { _, text := g.get(t, "/metrics"); return strings.Contains(text, line+"\n") })
	}
	metric(`ratelimit_gateway_rlqs_units_total{kind="used"} 12`)

	readyz := func(want int, state healthapi.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if status, body := g.get(t, "/readyz"); status != want {
			t.Errorf("/readyz: %d %s, want %d", status, body, want)
		}
		if got, err := health.Check(t.Context(), &healthapi.HealthCheckRequest{}); err != nil || got.Status != state {
			t.Errorf("health: %v, %v, want %v", got, err, state)
		}
	}
	g.cancel()
	s.next(process.StepUnready, func() {
		readyz(http.StatusOK, healthapi.HealthCheckResponse_SERVING)
		if !strings.Contains(g.log.String(), `level=INFO msg="shutting down: the ports close, and requests in progress may finish" within=10s`) {
			t.Error("the log does not say that the shutdown begins")
		}
	})
	s.next(process.StepStreams, func() {
		readyz(http.StatusServiceUnavailable, healthapi.HealthCheckResponse_NOT_SERVING)
		if state, err := watch.Recv(); state.GetStatus() != healthapi.HealthCheckResponse_NOT_SERVING {
			t.Errorf("the stream of the health service got %v, %v", state, err)
		}
		metric("ratelimit_gateway_rlqs_streams 1")
	})
	s.next(process.StepDrain, func() {
		readyz(http.StatusServiceUnavailable, healthapi.HealthCheckResponse_NOT_SERVING)
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream for quotas ends with %v", err)
		}
		metric("ratelimit_gateway_rlqs_streams 0")
	})
	for _, addr := range []net.Addr{g.grpc, g.http, g.admin} {
		redistest.Eventually(t, "the port is closed", func() bool {
			conn, err := net.Dial(addr.Network(), addr.String())
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
	select {
	case err := <-answers:
		t.Errorf("a request was answered without Redis: %v", err)
	case step := <-s.begin:
		s.goOn <- true
		t.Fatalf("%q begins while requests are in progress", step)
	default:
	}
	r.holdTakes(false)

	direct := must[*client.Client](t)(client.Open("redis://"+redis.Addr(), client.WithTimeout(time.Minute)))
	defer func() { _ = direct.Close() }()
	left := func(want int64) {
		t.Helper()
		if got := must[client.Result](t)(direct.Peek(t.Context(), client.For("api|user=envoy", "@api", 0))); got.Remaining != want {
			t.Errorf("%d units are left, want %d", got.Remaining, want)
		}
	}
	s.next(process.StepBackground, func() {
		for range 2 {
			if err := <-answers; err != nil {
				t.Errorf("a request that had begun: %v", err)
			}
		}
		if got := must[client.Result](t)(direct.Peek(t.Context(), client.For("login|address=127.0.0.1", "@login", 0))); got.RetryAfter != 48*time.Hour {
			t.Errorf("the denied key has to wait for %v, want its penalty", got.RetryAfter)
		}
	})
	s.next(process.StepSettle, func() { left(100 - 7) })
	s.next(process.StepClose, func() { left(100 - 7 - 5) })
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"level=ERROR", "the client is closed", "redis: client is closed"} {
		if strings.Contains(g.log.String(), wrong) {
			t.Errorf("the log has %q", wrong)
		}
	}
}
