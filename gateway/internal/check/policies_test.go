package check_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestPenalty checks that a policy with a penalty blocks the address that it denies, for longer each time.
func TestPenalty(t *testing.T) {
	g := newGate(t)
	for _, minutes := range []int{1, 2, 4} {
		for i := range 5 {
			answer := g.ask("GET", "/check/login/address")
			want, after := http.StatusOK, ""
			if i >= 2 {
				want, after = http.StatusTooManyRequests, fmt.Sprint(60*minutes)
			}
			if got := answer.Header().Get("Retry-After"); answer.Code != want || got != after {
				t.Errorf("request %d before %d min: status %d, Retry-After %q; want %d, %q", i+1, minutes, answer.Code, got, want, after)
			}
		}
		g.server.Advance(time.Duration(minutes) * time.Minute)
	}
}

// TestWarning checks that allowed requests have a warning from the percentage of the policy on.
func TestWarning(t *testing.T) {
	g := newGate(t)
	for i, want := range []string{"", "", "", "80", "100", ""} {
		if got := g.ask("GET", "/check/warns/address").Header().Get("X-RateLimit-Warning"); got != want {
			t.Errorf("request %d: %q, want %q", i+1, got, want)
		}
	}
}

// TestPenaltyFails checks that a denial stays one if its block fails.
func TestPenaltyFails(t *testing.T) {
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "1/m"}},
		Penalty: &functions.Penalty{First: time.Hour, Max: time.Hour, Forget: time.Hour}})))
	library := strings.Replace(build.Text(), "'ratelimit_block'", "'ratelimit_block_lost'", 1)
	server := embedded.Run(t, embedded.WithLibrary(library), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	g := newGateOn(t, "redis://"+server.Addr())
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		if answer := g.ask("GET", "/check/login/address"); answer.Code != want || want != http.StatusOK && answer.Header().Get("Retry-After") != "60" {
			t.Errorf("status %d, Retry-After %q; want %d and 60", answer.Code, answer.Header().Get("Retry-After"), want)
		}
	}
	g.wantMetric(t, `requests_total{decision="denied",name="@login",source="check"} 2`)
}

// TestNamespaces checks that %2F in a path stands for the slash in the name of a policy, and that the
// longest name is accepted.
func TestNamespaces(t *testing.T) {
	long := strings.Repeat("n", 64) + "/" + strings.Repeat("p", 64)
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "payments/api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}},
		functions.Policy{Name: long, Limits: []functions.PolicyLimit{{Limit: "3/m"}}})))
	g := newGateOn(t, "redis://"+embedded.Run(t, embedded.WithLibrary(build.Text())).Addr())
	for _, name := range []string{"payments/api", long} {
		answer := g.ask("GET", "/check/"+url.PathEscape(name)+"/address")
		if answer.Code != http.StatusOK || answer.Header().Get("RateLimit-Policy") != `"`+name+`";q=3` {
			t.Errorf("%s: %d %v %s", name, answer.Code, answer.Header(), answer.Body)
		}
	}
}

// TestShares checks that the path chooses the class and the pool, and that a client cannot.
func TestShares(t *testing.T) {
	g := newGate(t)
	type answer struct {
		status int
		limit  string // RateLimit, or the detail of the problem
	}
	for i, tt := range []struct {
		target string
		want   answer
	}{
		{"/check/shared/class:batch", answer{200, `"shared";r=0;t=15`}},
		{"/check/shared/address/class:batch", answer{429, "try again in 15 s"}},
		{"/check/shared?class=critical", answer{200, `"shared";r=1;t=30`}},
		{"/check/shared/-/class:critical", answer{200, `"shared";r=0;t=45`}},
		{"/check/shared", answer{429, "try again in 15 s"}},
		{"/check/shared/class:critical", answer{200, `"shared";r=0;t=60`}},
		{"/check/shared/class:bulk", answer{400, `"bulk": no such class of @shared; its classes are batch, critical, default`}},
		{"/deny403/check/shared/class:bulk", answer{400, `"bulk": no such class of @shared; its classes are batch, critical, default`}},
		{"/check/api/class:batch", answer{400, `"batch": @api has no classes; give it some, or classes: any`}},
		{"/check/shared/class:batch/class:critical", answer{400, "the path has class:batch and class:critical; give it once"}},
		{"/check/shared/class:", answer{400, `"class:" is not a key; write address, header:NAME, cookie:NAME or path/N, class:NAME or pool:NAME, and /- before a path that is the client's`}},
		{"/check/shared/class:batch,address", answer{400, `"batch,address": no such class of @shared; its classes are batch, critical, default`}},

		{"/check/tenant/pool:p", answer{200, `"tenant";r=2;t=30`}},
		{"/check/tenant/pool:p", answer{200, `"tenant";r=1;t=60`}},
		{"/check/tenant/pool:p", answer{200, `"tenant";r=0;t=60`}},
		{"/check/tenant/pool:p", answer{429, "try again in 10 s"}},
		{"/check/tenant/path/1/pool:p/-/7", answer{200, `"tenant";r=1;t=40`}},
		{"/check/tenant", answer{400, "the policy tenant takes several keys, and /check/tenant gives one; name a policy that takes one, or add pool:NAME if it has a guarantee and a pool"}},
		{"/check/api/pool:p", answer{400, "the policy api has no guarantee and pool, and /check/api/pool:p names a pool; name a policy that has them, or leave the pool out"}},
		{"/check/api/pool%3Ap", answer{400, "the policy api has no guarantee and pool, and /check/api/pool%3Ap names a pool; name a policy that has them, or leave the pool out"}},
		{"/check/pair/pool:p", answer{400, "the policy pair has no guarantee and pool, and /check/pair/pool:p names a pool; name a policy that has them, or leave the pool out"}},
		{"/check/tracked/pool:p", answer{400, "the policy tracked has no guarantee and pool, and /check/tracked/pool:p names a pool; name a policy that has them, or leave the pool out"}},
		{"/check/pair/path/1/-/pool:p", answer{400, "the policy pair takes several keys, and /check/pair/path/1/-/pool:p gives one; name a policy that takes one, or add pool:NAME if it has a guarantee and a pool"}},
		{"/check/tenant/pool:p/class:batch", answer{400, "the path has class:batch and pool:p; a guarantee and a pool have no classes, so leave one out"}},
	} {
		got := g.ask("GET", tt.target, "Class", "critical", "X-Class", "critical")
		var problem struct{ Detail string }
		_ = json.Unmarshal(got.Body.Bytes(), &problem) // allowed requests have no body
		if limit := cmp.Or(problem.Detail, got.Header().Get("RateLimit")); got.Code != tt.want.status || limit != tt.want.limit {
			t.Errorf("%d: %s: %d %s, want %+v", i, tt.target, got.Code, limit, tt.want)
		}
	}
	if keys := g.keys(t); strings.Contains(keys, "pair") || strings.Contains(keys, "tracked") {
		t.Errorf("a request that was refused is charged: %s", keys)
	}
	g.wantMetric(t, `class_requests_total{class="batch",decision="denied",name="@shared",source="check"} 1`)
	for _, want := range []string{"shared|address=192.0.2.1", "{tenant|pool=p}", "{tenant|pool=p}|address=192.0.2.1", "{tenant|pool=p}|path/1=7"} {
		if keys := g.keys(t); !strings.Contains(strings.Trim(keys, "[]")+" ", want+" ") {
			t.Errorf("keys %s, want %s", keys, want)
		}
	}
}
