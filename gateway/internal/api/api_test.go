package api

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestReplies checks replies. Each call depends on the calls before it.
func TestReplies(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	for _, tt := range []struct{ name, body, want string }{
		{"take", `{"keys":["a"],"limits":["3/m"]}`, `{"allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000,"index":1,"key":"a"}`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":3}`, `{"allowed":false,"limit":3,"remaining":2,"retry_after_ms":20000,"reset_after_ms":20000,"index":1,"key":"a"}`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":4}`, `{"allowed":false,"limit":3,"remaining":2,"retry_after_ms":-1,"reset_after_ms":20000,"index":1,"key":"a"}`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":9,"upto":true}`, `{"allowed":true,"taken":2,"limit":3,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"peek", `{"keys":["a"],"limits":["3/m"]}`, `{"allowed":false,"limit":3,"remaining":0,"retry_after_ms":20000,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"peek", `{"keys":["a"],"limits":["3/m"],"upto":true}`, `{"allowed":false,"taken":0,"limit":3,"remaining":0,"retry_after_ms":20000,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"refund", `{"keys":["a"],"limits":["3/m"],"cost":[3]}`, `{"allowed":true,"limit":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"a"}`},
		{"take", `{"keys":["a","<b>"],"limits":["3/m","@api"],"cost":[1,2],"each":true}`, `{"allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":40000,"index":2,"key":"<b>","each":[{"key":"a","allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000},{"key":"<b>","allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":40000}]}`},
		{"take", `{"keys":["t"],"limits":["@trial"],"cost":2}`, `{"allowed":true,"limit":1,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"t","shadow":{"allowed":false,"retry_after_ms":-1,"index":1}}`},
		{"take", `{"keys":["f"],"limits":["3/m"],"cost":5,"force":true}`, `{"allowed":true,"limit":3,"remaining":0,"retry_after_ms":60000,"reset_after_ms":100000,"index":1,"key":"f"}`},
		{"take", `{"keys":["s"],"limits":["@shared"],"class":"batch"}`, `{"allowed":true,"limit":4,"remaining":0,"retry_after_ms":0,"reset_after_ms":15000,"index":1,"key":"s"}`},
		{"peek", `{"keys":["s"],"limits":["@shared"],"class":"batch"}`, `{"allowed":false,"limit":4,"remaining":0,"retry_after_ms":15000,"reset_after_ms":15000,"index":1,"key":"s"}`},
		{"take", `{"keys":["s"],"limits":["@shared"]}`, `{"allowed":true,"limit":4,"remaining":1,"retry_after_ms":0,"reset_after_ms":30000,"index":1,"key":"s"}`},
		{"take", `{"keys":["s"],"limits":["4/m"],"floor":50}`, `{"allowed":false,"limit":4,"remaining":0,"retry_after_ms":15000,"reset_after_ms":30000,"index":1,"key":"s"}`},
		{"take", `{"keys":["{p}t","{p}"],"limits":["2/m","6/m"],"borrow":true,"floor":50,"cost":2}`, `{"allowed":true,"limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":60000,"index":1,"key":"{p}t"}`},
		{"take", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"borrow":true}`, `{"allowed":true,"limit":6,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"index":2,"key":"{p}"}`},
		{"peek", `{"keys":["{p}t","{p}"],"limits":["@tenant"]}`, `{"allowed":false,"limit":2,"remaining":0,"retry_after_ms":10000,"reset_after_ms":60000,"index":1,"key":"{p}t"}`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"paid":2}`, `{"allowed":true,"limit":6,"remaining":1,"retry_after_ms":0,"reset_after_ms":60000,"index":2,"key":"{p}"}`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["2/m","6/m"],"paid":1,"cost":2}`, `{"allowed":true,"limit":2,"remaining":6,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"{p}t"}`},
		{"acquire", `{"key":"lf","limit":"concurrency 2 lease=30s","lease_id":"w","floor":50}`, `{"allowed":true,"limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":30000,"index":1,"key":"lf","lease_id":"w","lease_ms":30000}`},
		{"take", `{"keys":["o"],"limits":["3/m"],"once":{"key":"o:1","ttl_ms":1000},"track":"o:usage"}`, `{"allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000,"index":1,"key":"o"}`},
		{"take", `{"keys":["o"],"limits":["3/m"],"once":{"key":"o:1","ttl_ms":1000},"track":"o:usage"}`, `{"allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000,"index":1,"key":"o"}`},
		{"usage", `{"key":"o:usage"}`, `{"allowed":1,"denied":0,"cost":1,"first_ms":1800000000000,"last_ms":1800000000000,"interval_ms":60000,"series":[{"start_ms":1800000000000,"allowed":1,"denied":0}]}`},
		{"refund", `{"keys":["o"],"limits":["3/m"],"each":true,"once":{"key":"o:2","ttl_ms":1000}}`, `{"allowed":true,"limit":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"o","each":[{"key":"o","allowed":true,"limit":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":0}]}`},
		{"acquire", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"w"}`, `{"allowed":true,"limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":30000,"index":1,"key":"l","lease_id":"w","lease_ms":30000}`},
		{"renew", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"x"}`, `{"allowed":false,"limit":2,"remaining":1,"retry_after_ms":-1,"reset_after_ms":30000,"index":1,"key":"l","lease_id":"x","lease_ms":0}`},
		{"release", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"w"}`, `{"released":true,"lease_id":"w"}`},
		{"release", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"w"}`, `{"released":false,"lease_id":"w"}`},
		{"block", `{"keys":["a","z"],"ms":60000}`, `{"blocked":2,"for_ms":60000}`},
		{"block", `{"keys":["a"],"ms":1000,"extend":true}`, `{"blocked":1,"for_ms":1000}`},
		{"peek", `{"keys":["a"],"limits":["3/m"]}`, `{"allowed":false,"limit":3,"remaining":0,"retry_after_ms":60000,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"unblock", `{"keys":["a","z","none"]}`, `{"unblocked":2,"keys":3}`},
		{"reset", `{"keys":["a","none"]}`, `{"reset":1,"keys":2}`},
		{"override", `{"keys":["v","w"],"limit":"9/m","ms":60000}`, `{"overridden":2,"limit":"9/m","for_ms":60000}`},
		{"take", `{"keys":["v"],"limits":["3/m"]}`, `{"allowed":true,"limit":9,"remaining":8,"retry_after_ms":0,"reset_after_ms":6667,"index":1,"key":"v"}`},
		{"override_end", `{"keys":["v","none"]}`, `{"ended":1,"keys":2}`},
		{"peek", `{"keys":["v"],"limits":["3/m"]}`, `{"allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":26667,"index":1,"key":"v"}`},
	} {
		answer := send(t, h, "POST", tt.name, tt.body)
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != http.StatusOK || got != tt.want || answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s\nis %d %s, want\n%s", tt.name, tt.body, answer.Code, got, tt.want)
		}
	}
	var lease struct {
		Allowed bool
		LeaseID string `json:"lease_id"`
	}
	if err := json.Unmarshal(send(t, h, "POST", "acquire", `{"key":"r","limit":"concurrency 2 lease=30s"}`).Body.Bytes(), &lease); err != nil || !lease.Allowed || len(lease.LeaseID) < 20 {
		t.Errorf("without lease_id: %+v, %v", lease, err)
	}
	byGet, byPost := send(t, h, "GET", "info", "ignored"), send(t, h, "POST", "info", "")
	if want := `"policies":["api","login","shared","tenant","trial","warns"],"shadow_denied":{"trial":1}}`; !strings.Contains(byGet.Body.String(), want) || byGet.Body.String() != byPost.Body.String() {
		t.Errorf("info: %s and %s, want %s", byGet.Body, byPost.Body, want)
	}
}

// TestPenalty checks that a take with a policy that has a penalty blocks the key that it denies, and that peeks and
// refunds do not.
func TestPenalty(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	for _, step := range []struct{ name, cost, want string }{
		{"take", "5", `"allowed":true`},
		{"peek", "1", `"retry_after_ms":12000`},
		{"peek", "1", `"retry_after_ms":12000`},
		{"take", "1", `"retry_after_ms":60000`},
		{"refund", "1", `"retry_after_ms":60000`},
		{"peek", "1", `"retry_after_ms":60000`},
	} {
		if got := send(t, h, "POST", step.name, `{"keys":["ip"],"limits":["@login"],"cost":`+step.cost+`}`); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), step.want) {
			t.Errorf("%s: %d %s, want %s", step.name, got.Code, got.Body, step.want)
		}
	}
}

// TestWarning checks that an allowed take with a policy that warns says how many percent of the limit are used, and
// that peeks do not.
func TestWarning(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	for _, step := range []struct{ name, cost, want string }{
		{"take", "3", ""},
		{"take", "1", `,"warning":80}`},
		{"peek", "1", ""},
		{"take", "1", `,"warning":100}`},
		{"take", "1", ""},
	} {
		got := send(t, h, "POST", step.name, `{"keys":["ip"],"limits":["@warns"],"cost":`+step.cost+`}`)
		if text := strings.TrimSpace(got.Body.String()); got.Code != http.StatusOK || !strings.HasSuffix(text, step.want) || step.want == "" && strings.Contains(text, "warning") {
			t.Errorf("%s %s: %d %s, want %s", step.name, step.cost, got.Code, text, step.want)
		}
	}
}

// TestNoDecision checks that without a decision the status is 503, and that the log has at most one
// line a second.
func TestNoDecision(t *testing.T) {
	bare := embedded.Run(t)
	hungUp := listen(t, func(conn net.Conn) { // reads the first call and closes the connection
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil || bytes.Contains(buffer[:n], []byte("ratelimit_take")) {
				return
			}
			if _, err := io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", bytes.Count(buffer[:n], []byte("*")))); err != nil {
				return
			}
		}
	})
	for _, tt := range []struct {
		name           string
		limiter        *client.Client
		reason, detail string
		lost           bool
	}{
		{"nothing listens", stopped(t), "UNAVAILABLE", "no connection, nothing was counted", false},
		{"no library", open(t, "redis://"+bare.Addr()), "NOTDEPLOYED", "deploy it with ratelimit deploy, or start the gateway with --deploy", false},
		{"lost reply", open(t, "redis://"+hungUp), "UNAVAILABLE", "it was counted once or not at all", true},
	} {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		h := New(Options{Limiter: tt.limiter, Metrics: metrics.New(registry), Log: slog.New(slog.NewTextHandler(&log, nil)), AnyHost: true})
		var got struct {
			Detail, Reason string
			Lost           bool `json:"outcome_unknown"`
		}
		for range 3 {
			answer := send(t, h, "POST", "take", `{"keys":["a"],"limits":["@api"]}`)
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != http.StatusServiceUnavailable ||
				got.Reason != tt.reason || !strings.Contains(got.Detail, tt.detail) || got.Lost != tt.lost {
				t.Errorf("%s: %d %s, want %s %s, %v", tt.name, answer.Code, answer.Body, tt.reason, tt.detail, tt.lost)
			}
		}
		if n := strings.Count(log.String(), "no decision"); n != 1 {
			t.Errorf("%s: %d lines:\n%s", tt.name, n, log.String())
		}
		wantMetric(t, registry, `requests_total{decision="error",name="unknown",source="api"} 3`)
	}
}

// listen serves connections until the end of the test.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	port := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = port.Close() })
	go func() {
		for {
			conn, err := port.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	return port.Addr().String()
}

func wantMetric(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(answer.Body.String(), "ratelimit_gateway_"+want+"\n") {
		t.Errorf("%s is not in\n%s", want, answer.Body)
	}
}

func TestMetricsAndLog(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	h := both{Limiter: newLimiter(t), Metrics: metrics.New(registry), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), AnyHost: true}
	for _, call := range []struct{ name, body string }{
		{"take", `{"keys":["a"],"limits":["@api"],"cost":2}`},
		{"take", `{"keys":["a"],"limits":["@api"],"cost":2}`},
		{"take", `{"keys":["a"],"limits":["@none"]}`},
		{"take", `{"keys":["b"],"limits":["3/m"]}`},
		{"take", `{"keys":["b"],"limits":["3/q"]}`},
		{"acquire", `{"key":"c","limit":"concurrency 1 lease=1s"}`},
		{"reset", `{"keys":["b"]}`},
		{"reset", `{}`},
	} {
		send(t, h, "POST", call.name, call.body)
	}
	for _, want := range []string{
		`decision="allowed",name="@api"`, `decision="denied",name="@api"`, `decision="error",name="unknown"`, `decision="allowed",name="take"`,
		`decision="error",name="take"`, `decision="allowed",name="acquire"`, `decision="done",name="reset"`, `decision="error",name="reset"`,
	} {
		wantMetric(t, registry, `requests_total{`+want+`,source="api"} 1`)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=DEBUG msg=denied source=api name=@api") {
		t.Errorf("the log has\n%s", text)
	}
}
