package check_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/check"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a handler with its server, metrics and log.
type gate struct {
	http.Handler
	server   *embedded.Server
	registry *prometheus.Registry
	log      bytes.Buffer
}

// newGate returns a handler that uses a server with a stopped clock.
func newGate(t *testing.T, trusted ...string) *gate {
	t.Helper()
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}},
		functions.Policy{Name: "none", Limits: []functions.PolicyLimit{{Limit: "0/m"}}},
		functions.Policy{Name: "pair", Limits: []functions.PolicyLimit{{Key: "a", Limit: "3/m"}, {Key: "b", Limit: "3/m"}}},
		functions.Policy{Name: "leases", Limits: []functions.PolicyLimit{{Limit: "concurrency 3 lease=30s"}}},
		functions.Policy{Name: "tracked", Limits: []functions.PolicyLimit{{Limit: "3/m"}}, Track: true},
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Penalty: &functions.Penalty{First: time.Minute, Max: time.Hour, Forget: time.Hour}},
		functions.Policy{Name: "warns", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Warn: 80},
		functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "0/m"}}, Shadow: true},
		functions.Policy{Name: "shared", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: map[string]int{"critical": 0, "default": 25, "batch": 75}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "6/m"}}, Borrow: true, Floor: 50})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	g := newGateOn(t, "redis://"+server.Addr(), trusted...)
	g.server = server
	return g
}

func newGateOn(t *testing.T, url string, trusted ...string) *gate {
	t.Helper()
	limiter, err := client.Open(url, client.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	g := &gate{registry: prometheus.NewRegistry()}
	g.Handler = redistest.Must[*check.Handler](t)(check.New(check.Options{
		Limiter: limiter, Metrics: metrics.New(g.registry), TrustedProxies: trusted,
		Log: slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))
	return g
}

// ask sends a request from 192.0.2.1. lines contains the names and values of header fields,
// alternately.
func (g *gate) ask(method, target string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader("the body of the client's request"))
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	answer := httptest.NewRecorder()
	g.ServeHTTP(answer, r)
	return answer
}

// keys returns the keys on the server.
func (g *gate) keys(t *testing.T) string {
	t.Helper()
	found := redistest.Must[any](t)(g.server.Do("KEYS", "*"))
	return fmt.Sprint(found)
}

func (g *gate) wantMetric(t *testing.T, want string) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(answer.Body.String(), "ratelimit_gateway_"+want+"\n") {
		t.Errorf("%s is not in\n%s", want, answer.Body)
	}
}

// TestAnswers checks that method, body and query do not affect the decision. The status of an
// allowed request is always 200, because Envoy accepts no other status.
func TestAnswers(t *testing.T) {
	g := newGate(t)
	for i, tt := range []struct {
		method, target string
		status         int
		fields         [4]string // RateLimit-Policy, RateLimit, Retry-After, Content-Type
	}{
		{"GET", "/check/api", 200, [4]string{`"api";q=3`, `"api";r=2;t=20`, "", ""}},
		{"POST", "/check/api/address?limit=1000/s", 200, [4]string{`"api";q=3`, `"api";r=1;t=40`, "", ""}},
		{"DELETE", "/check/api/address/-/any/../path?x", 200, [4]string{`"api";q=3`, `"api";r=0;t=60`, "", ""}},
		{"HEAD", "/check/api/", 429, [4]string{`"api";q=3`, `"api";r=0;t=20`, "20", "application/problem+json"}},
		{"PURGE", "/check//api//address//", 429, [4]string{`"api";q=3`, `"api";r=0;t=20`, "20", "application/problem+json"}},
		{"GET", "/deny403/check/api/address", 403, [4]string{`"api";q=3`, `"api";r=0;t=20`, "20", "application/problem+json"}},
		{"GET", "/deny403/check/trial/address", 200, [4]string{`"trial";q=0`, `"trial";r=0;t=0`, "", ""}},
		{"GET", "/check/none/address", 429, [4]string{`"none";q=0`, `"none";r=0`, "", "application/problem+json"}},
	} {
		answer := g.ask(tt.method, strings.Replace(tt.target, "//api//", "/api//", 1))
		h := answer.Header()
		if got := [4]string{h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After"), h.Get("Content-Type")}; answer.Code != tt.status || got != tt.fields {
			t.Errorf("%d: %s %s: %d %q %s, want %d %q", i, tt.method, tt.target, answer.Code, got, answer.Body, tt.status, tt.fields)
		}
	}
	if got, want := g.keys(t), "[api|address=192.0.2.1]"; got != want {
		t.Errorf("keys %s, want %s", got, want)
	}
	var problem struct {
		Status   int
		Detail   string
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(g.ask("GET", "/check/api").Body.Bytes(), &problem); err != nil || problem.Status != 429 || problem.Detail != "try again in 20 s" || fmt.Sprint(problem.Violated) != "[api]" {
		t.Errorf("%+v, %v", problem, err)
	}
	g.wantMetric(t, `requests_total{decision="allowed",name="@api",source="check"} 3`)
	g.wantMetric(t, `requests_total{decision="denied",name="@api",source="check"} 4`)
	g.wantMetric(t, `requests_total{decision="allowed",name="@trial",source="check"} 1`)
	g.wantMetric(t, `requests_total{decision="denied",name="@none",source="check"} 1`)
	if n := strings.Count(g.log.String(), "level=DEBUG msg=denied policy="); n != 5 {
		t.Errorf("%d denials in the log\n%s", n, g.log.String())
	}
}

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

// TestIPv6 checks that the addresses of an IPv6 /64 count as one.
func TestIPv6(t *testing.T) {
	g := newGate(t, "192.0.2.0/24")
	for _, from := range []string{"2001:db8:1:2::1", "2001:db8:1:2:ffff::1"} {
		if answer := g.ask("GET", "/check/api/address", "X-Forwarded-For", from); answer.Code != 200 {
			t.Errorf("%s: %d %s", from, answer.Code, answer.Body)
		}
	}
	if got, want := g.keys(t), "[api|address=2001:db8:1:2::/64]"; got != want {
		t.Errorf("keys %s, want %s", got, want)
	}
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
		{"/check/tenant/pool:p/class:batch", answer{400, `Borrow is set and Class is "batch"; a guarantee and a pool have no classes`}},
	} {
		got := g.ask("GET", tt.target, "Class", "critical", "X-Class", "critical")
		var problem struct{ Detail string }
		_ = json.Unmarshal(got.Body.Bytes(), &problem) // allowed requests have no body
		if limit := cmp.Or(problem.Detail, got.Header().Get("RateLimit")); got.Code != tt.want.status || limit != tt.want.limit {
			t.Errorf("%d: %s: %d %s, want %+v", i, tt.target, got.Code, limit, tt.want)
		}
	}
	g.wantMetric(t, `class_requests_total{class="batch",decision="denied",name="@shared",source="check"} 1`)
	for _, want := range []string{"shared|address=192.0.2.1", "{tenant|pool=p}", "{tenant|pool=p}|address=192.0.2.1", "{tenant|pool=p}|path/1=7"} {
		if keys := g.keys(t); !strings.Contains(strings.Trim(keys, "[]")+" ", want+" ") {
			t.Errorf("keys %s, want %s", keys, want)
		}
	}
}

func TestKeys(t *testing.T) {
	const uri = "X-Forwarded-Uri"
	for _, tt := range []struct {
		path  string
		lines []string
		want  string // the key after "api|", or part of the error
	}{
		{"/header:X-Api-Key", []string{"X-Api-Key", "secret"}, "header:X-Api-Key~2bb80d537b1da3e38bd30361aa855686"},
		{"/header:x-api-key", []string{"X-Api-Key", "secret"}, "header:X-Api-Key~2bb80d537b1da3e38bd30361aa855686"},
		{"/cookie:session", []string{"Cookie", "a=b; session=secret"}, "cookie:session~2bb80d537b1da3e38bd30361aa855686"},
		{"/header:X-Api-Key,address", []string{"X-Api-Key", "secret"}, "header:X-Api-Key~2bb80d537b1da3e38bd30361aa855686"},
		{"/header:X-Api-Key,cookie:session,address", nil, "address=192.0.2.1"},
		{"/path/1", []string{uri, "/items/42?page=2"}, "path/1=items"},
		{"/path/2", []string{uri, "/items/42?page=2"}, "path/2=42"},
		{"/path/2", []string{uri, "//items///42/"}, "path/2=42"},
		{"/path/3", []string{uri, "/items/42"}, "path/3=-"},
		{"/path/1", []string{uri, "/%69tems"}, "path/1=items"},
		{"/path/1", []string{uri, "/%zz|{a}"}, "path/1=%25zz%7C%7Ba%7D"},
		{"/path/1", []string{uri, "/a/../b"}, "path/1=b"},
		{"/path/1", []string{uri, "/./a/%2e%2E/b?c/../d"}, "path/1=b"},
		{"/path/1", []string{uri, "/x%2F..%2Fb"}, "path/1=b"},
		{"/path/2", []string{uri, "/a%2Fb/c"}, "path/2=b"},
		{"/path/1", []string{uri, "/../../%62"}, "path/1=b"},
		{"/path/1", []string{uri, "/a/.."}, "path/1=-"},
		{"/path/1/-/a/../%62", nil, "path/1=b"},
		{"/path/1/-/items/42", []string{uri, "/forged"}, "path/1=items"},
		{"/path/1/-/", []string{uri, "/forged"}, "path/1=-"},
		{"/path/1/-", []string{uri, "/forged"}, "path/1=-"},
		{"/address/path/1", []string{uri, "/items"}, "address=192.0.2.1|path/1=items"},
		{"/%61ddress", nil, "address=192.0.2.1"},
		{"/address/-/a%2Fb", nil, "address=192.0.2.1"},

		{"/header:X-Api-Key", nil, "no header X-Api-Key"},
		{"/header:X-Api-Key/address", nil, "no header X-Api-Key"},
		{"/cookie:session", nil, "no cookie session"},
		{"/cookie:session,address", []string{"Cookie", "session=junk; session=REAL"}, "several different values for the cookie session; send one"},
		{"/header:X-Api-Key", []string{"X-Api-Key", "one", "X-Api-Key", "two"}, "several different values for the header X-Api-Key; send one"},
		{"/path/1", nil, "no header X-Forwarded-Uri"},
		{"/path/0", nil, "the key path/0 has no number; write path/1"},
		{"/path/x", nil, "the key path/x has no number"},
		{"/path", nil, `"path" is not a key; write address, header:NAME, cookie:NAME or path/N`},
		{"/header:", nil, `"header:" is not a key`},
		{"/header:Host", nil, "Host"},
		{"/header:X,", nil, `"" is not a key`},
		{"/ip", nil, `"ip" is not a key`},
	} {
		g := newGate(t)
		answer := g.ask("GET", "/check/api"+tt.path, tt.lines...)
		if answer.Code == http.StatusBadRequest {
			var problem struct{ Detail string }
			if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || !strings.Contains(problem.Detail, tt.want) {
				t.Errorf("%s %q: %v, %s; want %s", tt.path, tt.lines, err, answer.Body, tt.want)
			}
		} else if got := g.keys(t); answer.Code != http.StatusOK || got != "[api|"+tt.want+"]" {
			t.Errorf("%s %q: %d, keys %s; want %s", tt.path, tt.lines, answer.Code, got, tt.want)
		}
	}
}

func TestAddressBehindProxies(t *testing.T) {
	forwarded := []string{"X-Forwarded-For", "203.0.113.7, 198.51.100.1"}
	for _, tt := range []struct {
		trusted []string
		want    string
	}{
		{nil, "[api|address=192.0.2.1]"},
		{[]string{"10.0.0.0/8"}, "[api|address=192.0.2.1]"},
		{[]string{"192.0.2.0/24"}, "[api|address=198.51.100.1]"},
		{[]string{"192.0.2.0/24", "198.51.100.1"}, "[api|address=203.0.113.7]"},
	} {
		g := newGate(t, tt.trusted...)
		if answer := g.ask("GET", "/check/api", forwarded...); answer.Code != http.StatusOK || g.keys(t) != tt.want {
			t.Errorf("%q: %d, keys %s, want %s", tt.trusted, answer.Code, g.keys(t), tt.want)
		}
	}
	if _, err := check.New(check.Options{TrustedProxies: []string{"ten"}}); err == nil {
		t.Error("no error for a network that is none")
	}
}

// TestNoDecision checks that a request without a valid policy gets 400, and a request without a
// decision gets 503. It also checks that names from a flood of requests are not kept in the
// metrics.
func TestNoDecision(t *testing.T) {
	g := newGate(t)
	for target, want := range map[string]int{
		"/check/": 400, "/check//address": 400, "/deny403/check/": 400, "/check%2Fapi": 400,
		"/check/unknown": 400, "/check/Api": 400, "/check/pair": 400, "/deny403/check/unknown": 400,
		"/check/" + strings.Repeat("a", 65): 400, "/check/a%20b": 400, "/check/a%7Cb": 400,
	} {
		answer := g.ask("GET", target)
		if answer.Code != want || answer.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want %d", target, answer.Code, answer.Body, want)
		}
	}
	for target, want := range map[string]string{
		"/check/unknown":         "NOPOLICY there is no policy unknown on the server; deploy it, or correct the path /check/unknown in the proxy",
		"/check/pair":            "BADKEYS the policy pair takes several keys, and /check/pair gives one; name a policy that takes one, or add pool:NAME if it has a guarantee and a pool",
		"/check/leases":          "BADLIMIT the policy leases has leases (concurrency), which /check/leases could never give back; name a policy that limits a rate, or call acquire and release",
		"/check/tracked/address": "BADKEYS the policy tracked has track, and /check/tracked/address gives no usage key; name a policy without track",
	} {
		answer := g.ask("GET", target)
		var problem struct{ Reason, Detail string }
		if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || problem.Reason+" "+problem.Detail != want || answer.Header().Get("Retry-After") != "" {
			t.Errorf("%s: %v, %s, want %s", target, err, answer.Body, want)
		}
	}
	if n := strings.Count(g.log.String(), "no decision"); n != 1 {
		t.Errorf("%d lines in the log\n%s", n, g.log.String())
	}

	port := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	_ = port.Close() // nothing listens
	down := newGateOn(t, "redis://"+port.Addr().String())
	for i := range 2000 { // more policies than a Handler caches
		if answer := down.ask("GET", fmt.Sprintf("/check/p%d/address", i)); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") != "1" {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
	}
	down.wantMetric(t, `requests_total{decision="error",name="unknown",source="check"} 2000`)
	if !strings.Contains(down.log.String(), "level=ERROR msg=\"no decision\" source=check") {
		t.Errorf("the log has\n%s", down.log.String())
	}
}

func TestMatches(t *testing.T) {
	for path, want := range map[string]bool{
		"/check/api": true, "/deny403/check/api": true, "/check/../v1/reset": true,
		"/check": false, "/checks/api": false, "/deny403/v1/take": false, "/v1/check/": false, "/": false,
	} {
		if got := check.Matches(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// TestConcurrentRequests checks that concurrent requests for a new path are counted exactly, and
// cause no data race.
func TestConcurrentRequests(t *testing.T) {
	g := newGate(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	for range 20 {
		wait.Go(func() {
			status := g.ask("GET", "/check/api/address").Code
			mu.Lock()
			defer mu.Unlock()
			counts[status]++
		})
	}
	wait.Wait()
	if counts[200] != 3 || counts[429] != 17 {
		t.Errorf("%v", counts)
	}
}
