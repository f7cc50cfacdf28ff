package metrics_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
)

// check compares the series whose names contain substring with want.
func check(t *testing.T, registry *prometheus.Registry, substring string, want ...string) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(answer.Body.String()) {
		if name, ok := strings.CutPrefix(line, "ratelimit_gateway_"); ok && strings.Contains(name, substring) {
			got = append(got, strings.TrimSpace(name))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNamesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	for _, name := range []string{"@a", "@b", "@c"} { // names from a flood of requests
		m.Decided("check", name, "error", time.Now())
	}
	m.Decided("check", "@api", "allowed", time.Now())
	m.Decided("check", "@api", "error", time.Now()) // the policy is known by now
	m.Decided("grpc", "web.key", "error", time.Now())
	check(t, registry, "requests_total",
		`requests_total{decision="allowed",name="@api",source="check"} 1`,
		`requests_total{decision="error",name="@api",source="check"} 1`,
		`requests_total{decision="error",name="unknown",source="check"} 3`,
		`requests_total{decision="error",name="web.key",source="grpc"} 1`)
	check(t, registry, "request_seconds_count", `request_seconds_count{source="check"} 5`, `request_seconds_count{source="grpc"} 1`)
}

func TestClassesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	m.Class("grpc", "@api", "made-up", "error")
	m.Class("grpc", "@api", "", "allowed")
	for i := range 300 { // classes from a flood of requests, under a policy that accepts any
		m.Class("check", "@any", fmt.Sprint("c", i), "allowed")
	}
	m.Class("check", "@any", "c0", "denied")
	text := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(text, httptest.NewRequest("GET", "/metrics", nil))
	if n := strings.Count(text.Body.String(), "ratelimit_gateway_class_requests_total{"); n != 256+1+1 {
		t.Errorf("%d series", n)
	}
	check(t, registry, `class="c0"`, `class_requests_total{class="c0",decision="allowed",name="@any",source="check"} 1`,
		`class_requests_total{class="c0",decision="denied",name="@any",source="check"} 1`)
	check(t, registry, `class="other"`, `class_requests_total{class="other",decision="allowed",name="@any",source="check"} 44`)
}

// TestText compares what Prometheus gets with a file. The test of examples/monitoring reads the file,
// to check the alerts.
func TestText(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	m.Count("check", "@api", "allowed")
	m.Count("check", "@api", "denied")
	m.Count("check", "unknown", "error")
	m.Class("check", "@api", "batch", "denied")
	m.Reloaded(nil)
	m.Breaker("10.0.0.1:6379", true)
	m.Reservation("given_back")
	x := metrics.NewXDS(registry)
	x.Connected(true)
	x.Answered(true)
	x.Answered(false)
	x.Answered(true)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Body.String(); got != string(want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestReloadsAndBreakers(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	m.Reloaded(nil)
	m.Reloaded(errors.New("invalid"))
	m.Reloaded(errors.New("invalid"))
	m.Breaker("10.0.0.1:6379", true)
	m.Breaker("10.0.0.2:6379", true)
	m.Breaker("10.0.0.2:6379", false)
	check(t, registry, "", `breaker_open{node="10.0.0.1:6379"} 1`, `breaker_open{node="10.0.0.2:6379"} 0`,
		`config_reloads_total{result="error"} 2`, `config_reloads_total{result="ok"} 1`)
}
