package rls_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var require = redistest.Require

// start is 15 s into a minute.
var start = time.Date(2026, 11, 1, 12, 0, 15, 0, time.UTC)

const config = `
domain: web
descriptors:
  - key: address
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: quick
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: quota
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true, name: free}
  - key: banned
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: general
    rate_limit: {unit: minute, requests_per_unit: 1, name: general}
  - key: special
    rate_limit: {unit: minute, requests_per_unit: 5, name: special, replaces: [{name: general}]}
  - key: two
    rate_limit: {limit: "10/s burst=3, 1000/h"}
`

func TestRules(t *testing.T) {
	b := newTestbed(t, config)
	b.expect(request(0, "address=1.1.1.1"),
		"OK | OK :2/minute 1 45s", "OK | OK :2/minute 0 45s", "OVER_LIMIT | OVER_LIMIT :2/minute 0 45s")
	b.server.Advance(45 * time.Second)
	b.expect(request(0, "address=1.1.1.1"), "OK | OK :2/minute 1 60s")
	b.expect(request(0, "shadow=x"), "OK | OK :1/minute 0 60s", "OK | OK :1/minute 0 60s")
	b.expect(request(0, "quota=x"), "OK | OK :1/minute 0 60s", "OK | OK :1/minute 0 60s")
	b.expect(request(0, "free=x"), "OK | OK 4294967295")
	b.expect(request(0, "banned=x"), "OVER_LIMIT | OVER_LIMIT :0/hour 0 2147483647s")
	b.expect(request(0, "none=x"), "OK | OK 0")
	b.expect(request(0, "two=x"), "OK | OK :3/unknown 2 4s", "OK | OK :3/unknown 1 8s", "OK | OK :3/unknown 0 11s", "OVER_LIMIT | OVER_LIMIT :3/unknown 0 1s")
	b.expect(request(0, "general=x"), "OK | OK general:1/minute 0 60s", "OVER_LIMIT | OVER_LIMIT general:1/minute 0 60s")
	b.expect(request(0, "general=x", "special=x"), "OK | OK 0 | OK special:5/minute 4 60s")
	unknown := request(0, "address=1.1.1.1")
	unknown.Domain = "unknown"
	b.expect(unknown, "OK | OK 0")
}

// TestRulesAreChargedApart checks that descriptors of rules are charged separately: a denied
// descriptor does not prevent others from being charged.
func TestRulesAreChargedApart(t *testing.T) {
	b := newTestbed(t, config)
	b.expect(request(0, "address=a", "general=x"),
		"OK | OK :2/minute 1 45s | OK general:1/minute 0 45s",
		"OVER_LIMIT | OK :2/minute 0 45s | OVER_LIMIT general:1/minute 0 45s")
	b.expect(request(0, "address=a", "address=a"), "OVER_LIMIT | OVER_LIMIT :2/minute 0 45s | OVER_LIMIT :2/minute 0 45s")
}

// TestShadowPolicies checks that a shadow policy never denies, whether its descriptor comes alone
// or with others.
func TestShadowPolicies(t *testing.T) {
	policy := func(name, limit string, shadow bool) functions.Policy {
		return functions.Policy{Name: name, Limits: []functions.PolicyLimit{{Limit: limit}}, Shadow: shadow}
	}
	rules := "domain: rules\ndescriptors:\n  - key: trial\n    rate_limit: {limit: \"@trial\"}\n  - key: api\n    rate_limit: {limit: \"@api\"}\n"
	b := newTestbed(t, rules, policy("trial", "1/m", true), policy("api", "2/m", false))
	b.expect(request(0, "policy=trial a=1"), "OK | OK trial:1/unknown 0 60s", "OK | OK trial:1/unknown 0 60s")
	want := []string{
		"OK | OK %s:1/unknown 0 60s | OK %s:2/unknown 1 30s",
		"OK | OK %s:1/unknown 0 60s | OK %s:2/unknown 0 60s",
		"OVER_LIMIT | OK %s:1/unknown 0 60s | OVER_LIMIT %s:2/unknown 0 30s",
	}
	byRule := request(0, "trial=1", "api=1")
	byRule.Domain = "rules"
	for _, w := range want {
		b.expect(request(0, "policy=trial a=2", "policy=api a=2"), fmt.Sprintf(w, "trial", "api"))
		b.expect(byRule, fmt.Sprintf(w, "", ""))
	}
}

// TestAllOrNone checks that, with AllOrNone, no descriptor of a request is charged if one of them is
// denied.
func TestAllOrNone(t *testing.T) {
	b := newTestbed(t, config)
	b.service.AllOrNone = true
	b.expect(request(0, "address=a", "general=x"),
		"OK | OK :2/minute 1 45s | OK general:1/minute 0 45s",
		"OVER_LIMIT | OK :2/minute 1 45s | OVER_LIMIT general:1/minute 0 45s")
}

// TestHits checks that a request is charged for all its hits even if fewer units are left, that 0
// hits charge nothing, and that negative hits are given back.
func TestHits(t *testing.T) {
	b := newTestbed(t, config)
	with := func(hits uint64) *api.RateLimitRequest {
		r := request(0, "quick=x")
		r.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		return r
	}
	b.expect(with(0), "OK | OK :10/second 10 0s")
	b.expect(with(4), "OK | OK :10/second 6 1s")
	b.expect(request(3, "quick=x"), "OK | OK :10/second 3 1s")
	back := with(5)
	back.Descriptors[0].IsNegativeHits = true
	b.expect(back, "OK | OK :10/second 8 1s")
	b.expect(with(9), "OVER_LIMIT | OVER_LIMIT :10/second 0 1s")
	b.expect(with(1), "OVER_LIMIT | OVER_LIMIT :10/second 0 1s")
	b.expect(with(0), "OVER_LIMIT | OVER_LIMIT :10/second 0 1s")
	b.server.Advance(time.Second)
	b.expect(with(0), "OK | OK :10/second 10 0s")
	if got := b.ask(with(1<<53 + 1)); got != "InvalidArgument: descriptor 1: hits_addend is above 2^53, the most" {
		t.Error(got)
	}
}

func TestOverride(t *testing.T) {
	b := newTestbed(t, config)
	with := func(count uint32, unit types.RateLimitUnit, multiplier uint32) *api.RateLimitRequest {
		r := request(0, "address=a")
		r.Descriptors[0].Limit = &entries.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: count, Unit: unit}
		if multiplier > 0 {
			r.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
		return r
	}
	b.expect(with(1, types.RateLimitUnit_HOUR, 0), "OK | OK :1/hour 0 3585s", "OVER_LIMIT | OVER_LIMIT :1/hour 0 3585s")
	b.expect(with(1, types.RateLimitUnit_MINUTE, 5), "OK | OK :1/minute*5 0 285s", "OVER_LIMIT | OVER_LIMIT :1/minute*5 0 285s")
	b.expect(request(0, "address=a"), "OK | OK :2/minute 1 45s")
	if got := b.ask(with(1, types.RateLimitUnit_UNKNOWN, 0)); !strings.HasPrefix(got, "InvalidArgument: descriptor 1: the unit") {
		t.Error(got)
	}
	if got := b.ask(with(1, types.RateLimitUnit_YEAR, math.MaxUint32)); !strings.HasPrefix(got, "InvalidArgument: ") || !strings.Contains(got, "BADLIMIT") {
		t.Error(got)
	}
	if got := b.ask(with(1, 99, 0)); got != "InvalidArgument: descriptor 1: the unit of its limit is 99; use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR" {
		t.Error(got)
	}
	unknown := with(1, types.RateLimitUnit_HOUR, 0)
	unknown.Domain = "unknown"
	b.expect(unknown, "OK | OK 0", "OK | OK 0")
}

// TestOverridesShareAMetric checks that, without a configuration, overrides have the same label in
// all domains.
func TestOverridesShareAMetric(t *testing.T) {
	b := newTestbed(t, "")
	for i := range 100 {
		r := request(0, "address=a")
		r.Domain = fmt.Sprint("domain", i)
		r.Descriptors[0].Limit = &entries.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: types.RateLimitUnit_HOUR}
		b.expect(r, "OK | OK :1/hour 0 3585s", "OVER_LIMIT | OVER_LIMIT :1/hour 0 3585s")
	}
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.Metric {
			if text := fmt.Sprint(metric.Label); family.GetName() == "ratelimit_gateway_requests_total" && (!strings.Contains(text, `"override"`) || metric.Counter.GetValue() != 100) {
				t.Errorf("%s %v", text, metric.Counter)
			}
		}
	}
}

var policies = []functions.Policy{
	{Name: "api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}},
	{Name: "tenant", Limits: []functions.PolicyLimit{{Limit: "1/m"}}},
}

// TestMissingPolicy checks that a descriptor whose policy the servers do not have does not hide a denial
// by another descriptor. The others are charged; if none denies, there is no decision.
func TestMissingPolicy(t *testing.T) {
	for name, config := range map[string]string{
		"policies": "",
		"rules":    "domain: web\ndescriptors:\n  - {key: address, rate_limit: {limit: \"@tenant\"}}\n  - {key: user, rate_limit: {limit: \"@missing\"}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestbed(t, config, policies...)
			missing, tenant, denied, errors := "policy=missing address=x", "policy=tenant id=t", "@tenant", `name="unknown",source="grpc"} 7` // @tenant has not decided before
			if config != "" {
				missing, tenant, denied, errors = "user=x", "address=t", "web.address", `name="web.user",source="grpc"} 6`
			}
			if got := b.ask(request(0, missing, tenant)); !strings.HasPrefix(got, "Unavailable: ") || !strings.Contains(got, "NOPOLICY") {
				t.Error(got)
			}
			for _, descriptors := range [][]string{{missing, tenant}, {tenant, missing}, {missing, missing, tenant}, {missing, tenant, tenant}} {
				if got := b.ask(request(0, descriptors...)); !strings.HasPrefix(got, "OVER_LIMIT | ") || !strings.Contains(got, "UNKNOWN") || !strings.Contains(got, ":1/unknown 0 60s") {
					t.Errorf("%q: %s", descriptors, got)
				}
			}
			b.wantMetric(`requests_total{decision="error",` + errors)
			b.wantMetric(fmt.Sprintf(`requests_total{decision="denied",name=%q,source="grpc"} 5`, denied))
			if log := b.log.String(); !strings.Contains(log, `level=ERROR msg="no decision" source=grpc domain=web error="`) {
				t.Errorf("the log has\n%s", log)
			}
		})
	}
}

// TestPolicies checks that descriptors of policies are decided together: if one is denied, none is
// charged.
func TestPolicies(t *testing.T) {
	b := newTestbed(t, "", policies...)
	b.expect(request(0, "policy=api address=a"), "OK | OK api:3/unknown 2 20s")
	b.expect(request(0, "policy=api address=a", "policy=tenant id=t"), "OK | OK api:3/unknown 1 40s | OK tenant:1/unknown 0 60s")
	b.expect(request(0, "policy=api address=a", "policy=tenant id=t"), "OVER_LIMIT | OK api:3/unknown 1 40s | OVER_LIMIT tenant:1/unknown 0 60s")
	b.expect(request(2, "policy=api address=a"), "OVER_LIMIT | OVER_LIMIT api:3/unknown 1 20s")
	b.expect(request(0, "policy=api address=b", "policy=api address=b"), "OK | OK api:3/unknown 2 20s | OK api:3/unknown 1 40s")
	if got := b.ask(request(0, "policy=missing address=a")); !strings.HasPrefix(got, "Unavailable: ") || !strings.Contains(got, "NOPOLICY") {
		t.Error(got)
	}
	long := strings.Repeat("n", 1<<14)
	if got := b.ask(request(0, "policy="+long+" "+long+"=a")); !strings.HasPrefix(got, "InvalidArgument: ratelimit: take \""+strings.Repeat("n", 60)+"...\": ") || len(got) > 500 {
		t.Errorf("%d bytes: %.500s", len(got), got)
	}
	if got := fmt.Sprint(b.server.Do("FCALL", "ratelimit_peek", "1", "api|address=a", "@api")); !strings.HasPrefix(got, "[1 3 0 ") {
		t.Errorf("the key on the server: %s", got)
	}
}

// TestClasses checks that the entry class is the class of the request, and no part of the key, and that
// descriptors of one class are decided together.
func TestClasses(t *testing.T) {
	classes := map[string]int{"critical": 0, "default": 25, "batch": 75}
	b := newTestbed(t, "", append([]functions.Policy{{Name: "shared", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: classes},
		{Name: "other", Limits: []functions.PolicyLimit{{Limit: "8/m"}}, Classes: classes}}, policies...)...)
	b.expect(request(0, "policy=shared class=batch"), "OK | OK shared:4/unknown 0 15s", "OVER_LIMIT | OVER_LIMIT shared:4/unknown 0 15s")
	b.expect(request(0, "class=critical policy=shared"), "OK | OK shared:4/unknown 2 30s")
	b.expect(request(0, "policy=shared class=batch", "policy=other class=batch"), "OVER_LIMIT | OVER_LIMIT shared:4/unknown 0 30s | OK other:8/unknown 2 0s")
	b.expect(request(0, "policy=shared", "policy=other class=batch"), "OK | OK shared:4/unknown 0 45s | OK other:8/unknown 1 8s")
	b.expect(request(0, "policy=shared", "policy=api x=1", "policy=other class=batch"),
		"OVER_LIMIT | OVER_LIMIT shared:4/unknown 0 15s | OK api:3/unknown 3 0s | OK other:8/unknown 0 15s")
	const names = `BADARGS "bulk": no such class of @shared; its classes are batch, critical, default`
	if got := b.ask(request(0, "policy=shared class=bulk")); !strings.HasPrefix(got, "InvalidArgument: ") || !strings.Contains(got, names) {
		t.Error(got)
	}
	b.expect(request(0, "policy=shared class=bulk", "policy=shared class=batch"), "OVER_LIMIT | UNKNOWN 0 | OVER_LIMIT shared:4/unknown 0 45s")
	for _, entries := range []string{"policy=shared class=", "policy=shared class=batch class=critical"} {
		if got := b.ask(request(0, entries)); got != "InvalidArgument: descriptor 1: the entry class is repeated or empty; give it once, or leave it out" {
			t.Error(got)
		}
	}
	b.wantMetric(`requests_total{decision="denied",name="@shared",source="grpc"} 4`)
	b.wantMetric(`class_requests_total{class="batch",decision="denied",name="@shared",source="grpc"} 3`)
	b.wantMetric(`class_requests_total{class="batch",decision="allowed",name="@other",source="grpc"} 3`)
	if strings.Contains(b.metrics(), "bulk") {
		t.Error("the metrics have a class that the policy does not have")
	}
	if got := must[any](t)(b.server.Do("KEYS", "*")); fmt.Sprint(got) != "[other shared]" && fmt.Sprint(got) != "[shared other]" {
		t.Errorf("keys %s", got)
	}
}

// TestPool checks that the entry pool names the pool of a policy with a guarantee, and that such a
// descriptor is decided by itself.
func TestPool(t *testing.T) {
	tenant := functions.Policy{Name: "share", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "6/m"}}, Borrow: true, Floor: 50}
	b := newTestbed(t, "", append([]functions.Policy{tenant}, policies...)...)
	b.expect(request(0, "policy=share tenant=7 pool=p"), "OK | OK share:2/unknown 2 30s", "OK | OK share:2/unknown 1 60s",
		"OK | OK share:6/unknown 0 60s", "OVER_LIMIT | OVER_LIMIT share:2/unknown 0 10s")
	b.expect(request(0, "pool=p policy=share tenant=8", "policy=api a=1"), "OK | OK share:2/unknown 1 40s | OK api:3/unknown 2 20s")
	b.expect(request(0, "policy=share tenant=7 pool=p", "policy=share tenant=8 pool=p"), "OVER_LIMIT | OVER_LIMIT share:2/unknown 0 20s | OK share:2/unknown 0 60s")
	for _, key := range []string{"{share|pool=p}", "{share|pool=p}|tenant=7", "{share|pool=p}|tenant=8"} {
		if got := must[any](t)(b.server.Do("EXISTS", key)); fmt.Sprint(got) != "1" {
			t.Errorf("%s: %s", key, got)
		}
	}
	back := request(0, "policy=share tenant=7 pool=p")
	back.Descriptors[0].IsNegativeHits = true
	for _, tt := range []struct {
		request *api.RateLimitRequest
		want    string
	}{
		{back, "InvalidArgument: descriptor 1: is_negative_hits beside the entry pool; the gateway does not know whether the guarantee or the pool paid"},
		{request(0, "policy=share pool=p"), "InvalidArgument: descriptor 1: no entry says whose guarantee it is; add one beside policy and pool, such as tenant"},
		{request(0, "policy=share tenant=7 pool="), "InvalidArgument: descriptor 1: the entry pool is repeated or empty"},
		{request(0, "policy=share tenant=7 pool=p class=batch"), "InvalidArgument: ratelimit: take "},
		{request(0, "policy=share tenant=7"), "InvalidArgument: ratelimit: take "},
		{request(0, "policy=api tenant=7 pool=p"), "InvalidArgument: ratelimit: take "},
	} {
		if got := b.ask(tt.request); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

func TestHeaders(t *testing.T) {
	b := newTestbed(t, config)
	response := must[*api.RateLimitResponse](t)(b.client.ShouldRateLimit(t.Context(), request(0, "quick=x", "general=x", "free=x")))
	got := ""
	for _, h := range response.ResponseHeadersToAdd {
		got += h.Key + "=" + h.Value + " "
	}
	if got != "X-RateLimit-Limit=1 X-RateLimit-Remaining=0 X-RateLimit-Reset=45 " {
		t.Error(got)
	}
}

func TestBadRequests(t *testing.T) {
	b := newTestbed(t, config)
	many := request(0)
	for range 10_000 {
		many.Descriptors = append(many.Descriptors, descriptor("address=a"))
	}
	for _, tt := range []struct {
		request *api.RateLimitRequest
		want    string
	}{
		{&api.RateLimitRequest{Descriptors: many.Descriptors[:1]}, "InvalidArgument: the domain is empty"},
		{request(0), "InvalidArgument: the request has no descriptor"},
		{many, "InvalidArgument: the request has 10000 descriptors; the most is 50"},
		{&api.RateLimitRequest{Domain: "web", Descriptors: []*entries.RateLimitDescriptor{{}}}, "OK | OK 0"},
		{request(0, "address="+strings.Repeat("x", 1<<20)), "OK | OK :2/minute 1 45s"},
	} {
		if got := b.ask(tt.request); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

// TestDeadline checks that, if a server does not reply, the error is UNAVAILABLE, never UNKNOWN,
// and comes before the deadline of the request.
func TestDeadline(t *testing.T) {
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // the kernel accepts connections, but nothing replies
	defer func() { _ = port.Close() }()
	b := connect(t, "redis://"+port.Addr().String(), config)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := b.client.ShouldRateLimit(ctx, request(0, "address=a"))
		if code := status.Code(err); code != codes.Unavailable || ctx.Err() != nil {
			t.Errorf("%v", err)
		}
		cancel()
	}
}

// TestLog checks that failed decisions are logged with the reason, at most once a second.
func TestLog(t *testing.T) {
	b := newTestbed(t, "")
	began := time.Now()
	for range 50 {
		if got := b.ask(request(0, "policy=missing address=a")); !strings.HasPrefix(got, "Unavailable: ") {
			t.Error(got)
		}
	}
	lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
	if most := 1 + int(time.Since(began)/time.Second); len(lines) > most {
		t.Errorf("%d lines, want at most %d:\n%s", len(lines), most, b.log)
	}
	for _, part := range []string{`level=ERROR msg="no decision" source=grpc domain=web error="`, "NOPOLICY"} {
		if !strings.Contains(lines[0], part) {
			t.Errorf("%s; want %s", lines[0], part)
		}
	}
}

func TestReload(t *testing.T) {
	b := newTestbed(t, config)
	b.expect(request(0, "address=a"), "OK | OK :2/minute 1 45s")
	dir := t.TempDir()
	require(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("domain: web\ndescriptors: [{key: address, rate_limit: {unit: minute, requests_per_unit: 9}}]\n"), 0o600))
	loaded := must[*envoyconfig.Config](t)(envoyconfig.Load(dir, false))
	b.service.Use(loaded)
	b.expect(request(0, "address=a"), "OK | OK :9/minute 7 45s")
}
