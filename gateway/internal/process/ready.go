package process

import (
	quotaapi "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsapi "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
)

// Values of Gateway.ready.
const (
	notReady int32 = iota
	ready
	ending // the shutdown has begun; the gateway never becomes ready again
)

// setReady makes the gateway ready, unless the shutdown has begun.
func (g *Gateway) setReady() {
	if g.ready.CompareAndSwap(notReady, ready) {
		g.setHealth(healthapi.HealthCheckResponse_SERVING)
	}
}

// setEnding makes the gateway unready for ever. A health server that is shut down ignores a setReady that
// is under way.
func (g *Gateway) setEnding() {
	g.ready.Store(ending)
	g.health.Shutdown()
}

func (g *Gateway) setHealth(state healthapi.HealthCheckResponse_ServingStatus) {
	g.health.SetServingStatus("", state)
	g.health.SetServingStatus("ratelimit", state) // the name in envoyproxy/ratelimit, for probes that give it
	g.health.SetServingStatus(rlsapi.RateLimitService_ServiceDesc.ServiceName, state)
	g.health.SetServingStatus(kuadrant.RateLimitService_ServiceDesc.ServiceName, state)
	g.health.SetServingStatus(quotaapi.RateLimitQuotaService_ServiceDesc.ServiceName, state)
}
