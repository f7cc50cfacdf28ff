package process_test

import (
	"errors"
	"net"
	"net/http"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestDrains checks that, during a shutdown, a request in progress finishes, and the port refuses
// new connections.
func TestDrains(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(g *gateway) error{
		"http": func(g *gateway) error {
			status, body, err := g.request(t.Context(), "GET", "/check/api", "")
			if err == nil && status != http.StatusOK {
				err = errors.New(body)
			}
			return err
		},
		"grpc": func(g *gateway) error {
			_, err := rls.NewRateLimitServiceClient(g.dial(t, nil)).ShouldRateLimit(t.Context(), question)
			return err
		},
	} {
		r := newRelay(t, server(t).Addr())
		g := start(t, process.Options{Redis: "redis://" + r.addr})
		g.ready(t)
		r.hold(true)
		ended := make(chan error, 1)
		go func() { ended <- request(g) }()
		redistest.Eventually(t, "the request is in progress", func() bool { return r.calls() == 1 })
		g.cancel()
		for _, addr := range []net.Addr{g.grpc, g.http} {
			redistest.Eventually(t, "the port is closed", func() bool {
				conn, err := net.Dial(addr.Network(), addr.String())
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
		}
		r.hold(false)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStreamsEnd checks that the gateway ends streams when the drain begins, because their clients
// never end them.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true})
	g.ready(t)
	watch, err := healthapi.NewHealthClient(g.dial(t, nil)).Watch(t.Context(), &healthapi.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := watch.Recv(); state.GetStatus() != healthapi.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", state, err)
	}
	g.cancel()
	for err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Canceled { // Unavailable would mean that the connection was cut off
		t.Errorf("the stream ends with %v", err)
	}
}
