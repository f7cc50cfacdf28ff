package process_test

import (
	"strings"
	"testing"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
)

// TestQuotas gets an assignment by a rule of a file, and ends with the gateway.
func TestQuotas(t *testing.T) {
	folder := t.TempDir()
	write(t, folder+"/web.yaml", "domain: web\ndescriptors: [{key: user, rate_limit: {limit: 100/m}}]\n")
	g := start(t, process.Options{Redis: "redis://" + server(t).Addr(), EnvoyConfig: folder, Reflection: true})
	g.ready(t)
	stream := must[quota.RateLimitQuotaService_StreamRateLimitQuotasClient](t)(quota.NewRateLimitQuotaServiceClient(g.dial(t, nil)).StreamRateLimitQuotas(t.Context()))
	require(t, stream.Send(&quota.RateLimitQuotaUsageReports{Domain: "web", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &quota.BucketId{Bucket: map[string]string{"user": "42"}}, NumRequestsDenied: 1},
	}}))
	response := must[*quota.RateLimitQuotaResponse](t)(stream.Recv())
	if n := response.BucketAction[0].GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens(); n < 1 || n > 100 {
		t.Errorf("%v", response)
	}
	if _, text := g.get(t, "/metrics"); !strings.Contains(text, `ratelimit_gateway_rlqs_assignments_total{kind="tokens"} 1`) || !strings.Contains(text, "ratelimit_gateway_rlqs_streams 1") {
		t.Errorf("the metrics are\n%s", text)
	}
	require(t, g.stop())
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end of the gateway: %v", err)
	}
}
