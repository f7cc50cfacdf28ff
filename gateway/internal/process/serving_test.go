package process

import (
	"log/slog"
	"testing"

	quotaapi "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsapi "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
)

// TestAdmit checks that a request is refused before it gets a goroutine if too many are in progress.
// Otherwise, a client that opens many streams takes memory for all of them.
func TestAdmit(t *testing.T) {
	g := &Gateway{options: Options{Connections: 1, Log: slog.New(slog.DiscardHandler)}, metrics: metrics.New(prometheus.NewRegistry())}
	for _, method := range []string{rlsapi.RateLimitService_ShouldRateLimit_FullMethodName, healthapi.Health_Check_FullMethodName} {
		for open, want := range map[int64]codes.Code{0: codes.OK, streamsPerConnection - 1: codes.OK, streamsPerConnection: codes.ResourceExhausted} {
			g.open.Store(open)
			if _, err := g.admit(t.Context(), &tap.Info{FullMethodName: method}); status.Code(err) != want {
				t.Errorf("%s with %d in progress: %v, want %v", method, open, err, want)
			}
			if want != codes.OK && g.open.Load() != open {
				t.Errorf("%s: %d are in progress, and %d were", method, g.open.Load(), open)
			}
		}
	}
}

// TestQuotaStreamsLast checks that a stream for quotas has no deadline, because it lasts as long as its
// Envoy.
func TestQuotaStreamsLast(t *testing.T) {
	g := &Gateway{options: Options{Connections: 1, Log: slog.New(slog.DiscardHandler)}, metrics: metrics.New(prometheus.NewRegistry())}
	for method, want := range map[string]bool{quotaapi.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName: false, healthapi.Health_Check_FullMethodName: true} {
		ctx, err := g.admit(t.Context(), &tap.Info{FullMethodName: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, limited := ctx.Deadline(); limited != want {
			t.Errorf("%s has a deadline: %v, want %v", method, limited, want)
		}
	}
}
