package rlqs

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// TestIdleWithoutUnits checks that Envoys lose idle buckets also where everything passes, and that the server is
// then asked no more. The buckets would stay as long as their Envoys, and fill the list of all buckets.
func TestIdleWithoutUnits(t *testing.T) {
	const free = "domain: web\ndescriptors: [{key: tenant, rate_limit: {unlimited: true}}]\n"
	const quiet = "domain: web\ndescriptors: [{key: tenant, shadow_mode: true, rate_limit: {limit: 100/s}}]\n"
	shadow := policy("api", "100/s")
	shadow.Shadow = true
	for _, tt := range []struct{ name, config string }{{"shadow policy", ""}, {"shadow rule", quiet}, {"no limit", free}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, tt.config, shadow)
			e, calls := w.connect(0), 0
			w.limiter.take = func(client.Request) error { calls++; return nil }
			id := func(tenant string) map[string]string {
				if tt.config != "" {
					return map[string]string{"tenant": tenant}
				}
				return map[string]string{"policy": "api", "tenant": tenant}
			}
			for i := range 50 {
				e.request(1, id(fmt.Sprint(i)))
			}
			w.run(4*interval, func() { e.request(1, id("busy")) })
			if n, gone := len(w.servers[0].buckets), w.metric("assignments_total", "abandon"); n != 1 || w.servers[0].shares != 1 || gone != 50 || len(e.buckets) != 1 {
				t.Errorf("%d buckets and %d shares are left, and %v were abandoned; want 1, 1 and 50", n, w.servers[0].shares, gone)
			}
			w.run(4*interval, func() {})
			before := calls
			w.run(time.Minute, func() {})
			if calls != before || len(w.servers[0].buckets) != 0 {
				t.Errorf("%d calls for %d idle buckets, want none", calls-before, len(w.servers[0].buckets))
			}
			e.request(2, id("1"))
			if b := e.buckets[named(id("1"))]; b.allowed != 1 {
				t.Errorf("%d requests passed when the Envoy came back, want the second", b.allowed)
			}
		})
	}
}
