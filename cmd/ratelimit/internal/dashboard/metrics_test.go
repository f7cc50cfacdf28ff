package dashboard

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/policycalls"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

var update = flag.Bool("update", false, "rewrite the files of testdata")

// Every server and every canary has its own series, and names are escaped. The test of
// examples/monitoring reads the same file.
func TestMetricsText(t *testing.T) {
	d := New(Source{NodeName: func(addr string) string { return addr }})
	got := d.metricsText([]policycalls.Node{
		{Addr: "10.0.0.1:6379", Info: client.Info{Policies: []string{"api", "export", "idle", "tenant"}, PolicyCalls: map[string]client.PolicyCalls{
			"api":    {Allowed: 1 << 53, Denied: 12, CanaryShare: 50, CanaryAllowed: 480, CanaryDenied: 9},
			"export": {Allowed: 7, Classes: map[string]struct{ Allowed, Denied int64 }{"critical": {Allowed: 4}, "batch": {3, 2}}},
			"idle":   {Pool: &struct{ Guaranteed, Borrowed int64 }{}},
			"tenant": {Allowed: 9, Denied: 1, Pool: &struct{ Guaranteed, Borrowed int64 }{6, 3}},
		}}},
		{Addr: "10.0.0.2:6379", Err: errors.New("dead")},
		{Addr: "10.0.0.3:6379", Info: client.Info{Policies: []string{"api"}}}, // its library is too old to count calls
		{Addr: `\"` + "\n\xff", Info: client.Info{Policies: []string{`a"}\` + "\n\u2028"}, PolicyCalls: map[string]client.PolicyCalls{`a"}\` + "\n\u2028": {Denied: 1}}}},
	})
	file := filepath.Join("testdata", "metrics.txt")
	if *update {
		require(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

// A request for /metrics reads all primaries. It may carry the dashboard's token. It fails only if no
// primary is known.
func TestMetrics(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true})))
	one, two := embedded.Run(t, embedded.WithLibrary(build.Text())), embedded.Run(t, embedded.WithLibrary(build.Text()))
	exports(t, one, 3)
	exports(t, two, 1)
	_ = two.Close()
	d := board(t, one.Addr(), two.Addr())
	const token = "sixteen letters!"
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	got := get(d.Handler(token, false), "/metrics", bearer, host("prometheus.example"))
	port := func(srv *embedded.Server) string { return strings.TrimPrefix(srv.Addr(), "127.0.0.1") }
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatalf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	for _, want := range []string{
		`ratelimit_server_up{server="server` + port(one) + `"} 1`, `ratelimit_server_up{server="server` + port(two) + `"} 0`,
		`ratelimit_policy_calls_total{server="server` + port(one) + `",policy="export",variant="rest",decision="allowed"} 1`,
		`ratelimit_policy_calls_total{server="server` + port(one) + `",policy="export",variant="rest",decision="denied"} 2`,
	} {
		if !strings.Contains(got.Body.String(), "\n"+want+"\n") {
			t.Errorf("no line %s in\n%s", want, got.Body)
		}
	}
	if n := strings.Count(got.Body.String(), "\n"); n != 12 {
		t.Errorf("%d lines, want 12:\n%s", n, got.Body)
	}
	if got := get(board(t).Handler("", false), "/metrics"); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "the cluster lists no primary") {
		t.Errorf("without primaries: %d %s", got.Code, got.Body)
	}
	d.from.Connect, d.rdb = func(context.Context) (redis.UniversalClient, error) { return nil, errors.New("no way") }, nil
	if got := get(d.Handler(token, false), "/metrics", bearer); got.Code != http.StatusServiceUnavailable || got.Body.String() != "call: no way\n" {
		t.Errorf("without a connection: %d %s", got.Code, got.Body)
	}
}
