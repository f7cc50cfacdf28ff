package check_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

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
