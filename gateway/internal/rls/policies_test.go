package rls_test

import (
	"fmt"
	"strings"
	"testing"

	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimit-functions/ratelimit/functions"
)

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
	two := functions.Policy{Name: "two", Limits: []functions.PolicyLimit{{Key: "a", Limit: "2/m"}, {Key: "b", Limit: "6/m"}}}
	counted := functions.Policy{Name: "counted", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Track: true}
	b := newTestbed(t, "", append([]functions.Policy{tenant, two, counted}, policies...)...)
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
		{request(0, "policy=two tenant=7 pool=p"), "InvalidArgument: ratelimit: take "},
		{request(0, "policy=counted tenant=7 pool=p"), "InvalidArgument: ratelimit: take "},
	} {
		if got := b.ask(tt.request); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}
