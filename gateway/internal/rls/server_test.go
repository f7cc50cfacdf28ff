package rls_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
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
