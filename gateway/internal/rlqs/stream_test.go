package rlqs_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rlqs"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial starts the service, and returns a client.
func dial(t *testing.T) quota.RateLimitQuotaServiceClient {
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "100/d"}}})))
	redis := embedded.Run(t, embedded.WithLibrary(build.Text()))
	limiter := redistest.Must[*client.Client](t)(client.Open("redis://"+redis.Addr(), client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = limiter.Close() })
	service := rlqs.New(rlqs.Options{Limiter: limiter, Metrics: metrics.NewQuotas(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan bool)
	go func() { service.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	server := grpc.NewServer(grpc.ForceServerCodecV2(rls.Codec()))
	rlqs.Register(server, service)
	reflection.Register(server)
	port := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = server.Serve(port) }()
	t.Cleanup(server.Stop)
	conn := redistest.Must[*grpc.ClientConn](t)(grpc.NewClient(port.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))
	t.Cleanup(func() { _ = conn.Close() })
	return quota.NewRateLimitQuotaServiceClient(conn)
}

func report(domain string, id map[string]string) *quota.RateLimitQuotaUsageReports {
	return &quota.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: &quota.BucketId{Bucket: id}, NumRequestsDenied: 1}}}
}

// TestStream reports over gRPC, as an Envoy does, and gets an assignment that Envoy accepts.
func TestStream(t *testing.T) {
	service := dial(t)
	stream := redistest.Must[quota.RateLimitQuotaService_StreamRateLimitQuotasClient](t)(service.StreamRateLimitQuotas(t.Context()))
	redistest.Require(t, stream.Send(report("web", map[string]string{"policy": "api"})))
	response := redistest.Must[*quota.RateLimitQuotaResponse](t)(stream.Recv())
	redistest.Require(t, response.ValidateAll())
	assignment := response.BucketAction[0].GetQuotaAssignmentAction()
	bucket := assignment.GetRateLimitStrategy().GetTokenBucket()
	if bucket.GetMaxTokens() == 0 || assignment.AssignmentTimeToLive.AsDuration() != 10*time.Second || response.BucketAction[0].BucketId.Bucket["policy"] != "api" {
		t.Errorf("%v", response)
	}
	redistest.Require(t, stream.CloseSend())
	if _, err := stream.Recv(); err == nil || status.Code(err) != codes.Unknown { // io.EOF
		t.Errorf("after the end of the stream: %v", err)
	}
}

func TestStreamWithoutDomain(t *testing.T) {
	stream := redistest.Must[quota.RateLimitQuotaService_StreamRateLimitQuotasClient](t)(dial(t).StreamRateLimitQuotas(t.Context()))
	redistest.Require(t, stream.Send(report("", map[string]string{"policy": "api"})))
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "has no domain") {
		t.Error(err)
	}
}
