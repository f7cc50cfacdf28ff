package process_test

import (
	"bytes"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
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

// TestQuotasOverXDS checks that a domain from an xDS server has quotas: none before the first rules, units
// of a rule, and all requests when the domain is gone.
func TestQuotasOverXDS(t *testing.T) {
	t.Parallel()
	server, at, _ := control(t, "127.0.0.1:0")
	g := start(t, process.Options{Dev: true, XDS: xds.Options{Server: at, Node: "me"}})
	service := quota.NewRateLimitQuotaServiceClient(g.dial(t, nil))
	open := func() quota.RateLimitQuotaService_StreamRateLimitQuotasClient {
		return must[quota.RateLimitQuotaService_StreamRateLimitQuotasClient](t)(service.StreamRateLimitQuotas(t.Context()))
	}
	if _, err := open().Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "there are no rules yet") {
		t.Errorf("before the first set: %v", err)
	}

	rules := users("web", 100)
	rules.Descriptors[0].RateLimit.Unit = rlsconf.RateLimitUnit_YEAR // which ends only once in a while
	server.Set("1", rules)
	g.ready(t)
	stream := open()
	assigned := func() *envoytype.RateLimitStrategy {
		t.Helper()
		require(t, stream.Send(&quota.RateLimitQuotaUsageReports{Domain: "web", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: &quota.BucketId{Bucket: map[string]string{"user": "42"}}, NumRequestsDenied: 1},
		}}))
		return must[*quota.RateLimitQuotaResponse](t)(stream.Recv()).BucketAction[0].GetQuotaAssignmentAction().GetRateLimitStrategy()
	}
	first := assigned()
	if n := first.GetTokenBucket().GetMaxTokens(); n < 1 || n > 100 {
		t.Errorf("a rule of 100 a year: %v", first)
	}
	look := &entries.RateLimitDescriptor{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: "42"}}, HitsAddend: wrapperspb.UInt64(0)}
	answer := must[*rls.RateLimitResponse](t)(rls.NewRateLimitServiceClient(g.dial(t, nil)).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "web", Descriptors: []*entries.RateLimitDescriptor{look}}))
	if left := answer.Statuses[0].LimitRemaining; left+first.GetTokenBucket().GetMaxTokens() != 100 {
		t.Errorf("%d units are left after %v", left, first)
	}

	server.Set("2", users("other", 1))
	g.hasLimit(t, "other", 1)
	if got := assigned(); got.GetBlanketRule() != envoytype.RateLimitStrategy_ALLOW_ALL || got.GetStrategy() == nil {
		t.Errorf("without the domain: %v", got)
	}
}

// TestQuotasOfBytes checks that a bucket whose ID is not UTF-8 gets no assignment, which is counted and logged.
// The stream stays open, and the other buckets of the report get theirs.
func TestQuotasOfBytes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, folder+"/web.yaml", "domain: web\ndescriptors: [{key: user, rate_limit: {limit: 100/m}}]\n")
	g := start(t, process.Options{Redis: "redis://" + server(t).Addr(), EnvoyConfig: folder})
	g.ready(t)
	stream := must[grpc.ClientStream](t)(g.dial(t, nil).NewStream(t.Context(), &quota.RateLimitQuotaService_ServiceDesc.Streams[0],
		quota.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)})))
	got := map[string]bool{}
	for _, good := range []string{"42", "43"} { // the second report is sent in the same stream
		report := &quota.RateLimitQuotaUsageReports{Domain: "web"}
		for _, user := range []string{"a?b", good} {
			report.BucketQuotaUsages = append(report.BucketQuotaUsages, &quota.RateLimitQuotaUsageReports_BucketQuotaUsage{
				BucketId: &quota.BucketId{Bucket: map[string]string{"user": user}}, NumRequestsDenied: 1})
		}
		require(t, stream.SendMsg(bytes.ReplaceAll(must[[]byte](t)(pb.Marshal(report)), []byte("a?b"), []byte("a\xffb"))))
		for !got[good] {
			response := new(quota.RateLimitQuotaResponse)
			require(t, stream.RecvMsg(response))
			for _, action := range response.BucketAction {
				got[action.BucketId.Bucket["user"]] = true
			}
		}
	}
	if len(got) != 2 {
		t.Errorf("assignments for %v", got)
	}
	if _, text := g.get(t, "/metrics"); !strings.Contains(text, `ratelimit_gateway_rlqs_refused_total{what="bucket"} 2`) {
		t.Errorf("the metrics are\n%s", text)
	}
	g.says(t, `level=ERROR msg="a bucket gets no assignment" source=rlqs domain=web bucket_id="not UTF-8" buckets=1`)
}
