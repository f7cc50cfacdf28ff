package process_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestFilesOfEnvoy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rule := func(n int) string {
		return fmt.Sprintf("domain: web\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", n)
	}
	write(t, filepath.Join(dir, "web.yaml"), rule(1))
	g := start(t, process.Options{Dev: true, EnvoyConfig: dir})
	g.ready(t)
	ask := func() *rls.RateLimitResponse_DescriptorStatus {
		answer := must[*rls.RateLimitResponse](t)(rls.NewRateLimitServiceClient(g.dial(t, nil)).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: "web", Descriptors: []*entries.RateLimitDescriptor{{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}}},
		}))
		return answer.Statuses[0]
	}
	if got := ask(); got.CurrentLimit.GetRequestsPerUnit() != 1 {
		t.Errorf("%v", got)
	}
	write(t, filepath.Join(dir, "web.yaml"), "domain: [\n")
	g.says(t, "the files were not loaded; the previous ones stay in use")
	if got := ask(); got.CurrentLimit.GetRequestsPerUnit() != 1 {
		t.Errorf("after an invalid file: %v", got)
	}
	write(t, filepath.Join(dir, "web.yaml"), rule(1000))
	redistest.Eventually(t, "the new file is used", func() bool { return ask().CurrentLimit.GetRequestsPerUnit() == 1000 })
	_, text := g.get(t, "/metrics")
	for _, want := range []string{`config_reloads_total{result="ok"} 2`, `config_reloads_total{result="error"} 1`} {
		if !strings.Contains(text, "ratelimit_gateway_"+want+"\n") {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
}

// TestWrongLimits checks that a limit or a policy that the library rejects is found when the gateway
// starts, with its position, and that it does not replace the files in use.
func TestWrongLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rule := func(limit string) string {
		return "domain: web\ndescriptors:\n  - key: user\n    rate_limit: {limit: \"" + limit + "\"}\n"
	}
	file := write(t, filepath.Join(dir, "web.yaml"), rule("10/sx"))
	wrong := write(t, "policies.yaml", "policies:\n  api: 10/sx\n")
	team := write(t, "team.yaml", "namespace: payments\npolicies:\n  api: 10/s\n")
	for _, tt := range []struct {
		options process.Options
		want    string
	}{
		{process.Options{Dev: true, EnvoyConfig: dir}, file + `:4:25: limit: "10/sx": the unit of the period "sx" is none of`},
		{process.Options{Dev: true, Policies: []string{wrong}}, "--policies: " + wrong + `:2:8: policy api: "10/sx": the unit`},
		{process.Options{Redis: "redis://127.0.0.1:1", Deploy: true, Policies: []string{team}}, "--policies " + team + " belongs to the namespace payments, and --deploy deploys policies without one; deploy it with: ratelimit deploy --policies " + team},
		{process.Options{Redis: "redis://127.0.0.1:1", Deploy: true, Policies: []string{wrong}}, "--policies: " + wrong + `:2:8: policy api: "10/sx": the unit`},
	} {
		fails(t, tt.options, tt.want)
	}

	write(t, file, rule("2/h"))
	g := start(t, process.Options{Dev: true, EnvoyConfig: dir, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	ask := func() int64 {
		answer := must[*rls.RateLimitResponse](t)(rls.NewRateLimitServiceClient(g.dial(t, nil)).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: "web", Descriptors: []*entries.RateLimitDescriptor{{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}}},
		}))
		return int64(answer.Statuses[0].CurrentLimit.GetRequestsPerUnit())
	}
	write(t, file, rule("100/sx"))
	g.says(t, `the files were not loaded; the previous ones stay in use" error="`+file+`:4:25: limit: `)
	if n := ask(); n != 2 {
		t.Errorf("after a wrong limit, the limit is %d", n)
	}
	write(t, file, rule("@api"))
	redistest.Eventually(t, "the new file is used", func() bool { return ask() == 3 })
	write(t, file, rule("@missing")+"  - key: other\n    rate_limit: {limit: \"@api\"}\n")
	g.says(t, `level=ERROR msg="a rule in the files gets no decision" limit=@missing`)
	require(t, g.stop())
	if strings.Contains(g.log.String(), "limit=@api") {
		t.Error("a policy that exists is reported")
	}
}

// TestRulesThatCannotBeChecked checks that the gateway says so if it cannot look up a rule's policy.
func TestRulesThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	dir, srv := t.TempDir(), server(t)
	must[any](t)(srv.Do("SET", "|", "not ours"))
	write(t, filepath.Join(dir, "web.yaml"), "domain: web\ndescriptors:\n  - {key: user, rate_limit: {limit: \"@api\"}}\n")
	g := start(t, process.Options{Redis: "redis://" + srv.Addr(), EnvoyConfig: dir})
	g.says(t, `level=WARN msg="a rule in the files was not checked" limit=@api error="`)
}

// TestFilesAreFollowedWithoutRedis checks that changes to the Envoy configuration files take effect
// even while the gateway is not ready.
func TestFilesAreFollowedWithoutRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), "domain: web\n")
	g := start(t, process.Options{Redis: "redis://127.0.0.1:1", EnvoyConfig: dir})
	write(t, filepath.Join(dir, "web.yaml"), "domain: [\n")
	g.says(t, "the files were not loaded")
}
