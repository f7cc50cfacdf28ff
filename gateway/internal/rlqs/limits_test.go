package rlqs

import (
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestClass checks that units for a class leave what the policy keeps for other classes, and that they share the key.
func TestClass(t *testing.T) {
	shared := functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "20/d"}}, Classes: map[string]int{"critical": 0, "default": 0, "batch": 50}}
	w := newWorld(t, 1, "", shared)
	e := w.connect(0)
	batch, critical := map[string]string{"policy": "api", "class": "batch"}, map[string]string{"policy": "api", "class": "critical"}
	for _, id := range []map[string]string{batch, critical} {
		e.request(1, id) // its report brings the assignment
		for range 30 {
			w.run(interval/10, func() {})
			e.request(1, id)
		}
	}
	if b, c := int(w.total(batch)), int(w.total(critical)); b != 10 || b+c != 20 {
		t.Errorf("%d of the class batch passed, and %d of critical; want 10 and 10", b, c)
	}
}

// TestLimits checks what a bucket gets without a limit, with one of 0, with a wrong one, and in a shadow.
func TestLimits(t *testing.T) {
	const config = `
domain: web
descriptors:
  - key: a
    value: free
    rate_limit: {unlimited: true}
  - key: a
    value: none
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: a
    value: missing
    rate_limit: {limit: "@missing"}
  - key: a
    value: shadow
    shadow_mode: true
    rate_limit: {limit: "3/d"}
  - key: a
    value: x
    descriptors:
      - key: b
        rate_limit: {limit: "5/d"}
`
	for _, test := range []struct {
		id     string // of bucket a
		second string // entry b
		want   int    // how many of 20 requests pass, after the first
		log    string
	}{
		{"free", "", 20, ""}, {"other", "", 20, ""}, {"none", "", 0, ""}, {"missing", "", 0, "NOPOLICY"}, {"shadow", "", 20, ""}, {"x", "y", 5, ""},
	} {
		t.Run(test.id, func(t *testing.T) {
			w := newWorld(t, 1, config)
			e := w.connect(0)
			id := map[string]string{"a": test.id}
			if test.second != "" {
				id["b"] = test.second
			}
			e.request(1, id) // its report brings the assignment
			for range 20 {
				w.run(interval/10, func() {})
				e.request(1, id)
			}
			if got := int(w.total(id)); got != test.want {
				t.Errorf("%d passed, want %d", got, test.want)
			}
			if text := w.log.String(); (text == "") != (test.log == "") || !strings.Contains(text, test.log) {
				t.Errorf("the log is %q, want %q", text, test.log)
			}
			if test.id == "shadow" {
				result := redistest.Must[client.Result](t)(w.limiter.Client.Peek(t.Context(), client.For("web|a=shadow", "3/d", 0)))
				if result.Remaining != 0 {
					t.Errorf("%d units are left of a limit in shadow mode, want 0", result.Remaining)
				}
			}
		})
	}
}

// TestNewRules checks that a bucket uses new rules from the next report on.
func TestNewRules(t *testing.T) {
	w := newWorld(t, 1, "domain: web\ndescriptors: [{key: a, rate_limit: {limit: 1000/d}}]\n")
	e, id := w.connect(0), map[string]string{"a": "b"}
	w.run(interval, func() { e.request(1, id) })
	w.servers[0].Use(newWorld(t, 1, "domain: web\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 0}}]\n").servers[0].config.Load())
	w.run(interval, func() { e.request(1, id) })
	before := w.total(id)
	w.run(interval, func() { e.request(1, id) })
	if passed := w.total(id) - before; passed != 0 || before == 0 {
		t.Errorf("%d passed under the old rule, and %d under the new one, want 0", before, passed)
	}
}
