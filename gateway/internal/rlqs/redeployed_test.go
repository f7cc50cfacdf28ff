package rlqs

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestShadowPolicyIsRedeployed checks that Envoys follow a policy that becomes a shadow, or stops being one.
func TestShadowPolicyIsRedeployed(t *testing.T) {
	enforced, shadow := policy("api", "10/s"), policy("api", "10/s")
	shadow.Shadow = true
	for name, tt := range map[string]struct {
		first, then functions.Policy
		least, most int64 // how many of 6,000 requests in a minute pass
	}{
		"becomes enforced": {shadow, enforced, 590, 620},
		"becomes a shadow": {enforced, shadow, 5700, 6300},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, "", tt.first)
			e := w.connect(0)
			w.run(20*time.Second, func() { e.request(w.poisson(100), api) })
			build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(tt.then)))
			redistest.Must[any](t)(w.redis.Do("FUNCTION", "LOAD", "REPLACE", build.Text()))
			w.run(60*time.Second, func() { e.request(w.poisson(100), api) })
			before := w.total(api)
			w.run(60*time.Second, func() { e.request(w.poisson(100), api) })
			if passed := int64(w.total(api) - before); passed < tt.least || passed > tt.most {
				t.Errorf("%d passed, want %d to %d", passed, tt.least, tt.most)
			}
		})
	}
}

// TestChargeAfterTheLastEnvoy checks that a charge that failed is made later, and that the bucket then goes.
func TestChargeAfterTheLastEnvoy(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "100/d"))
	e := w.connect(0)
	e.pass = true
	w.limiter.take = func(client.Request) error { return client.ErrUnavailable }
	w.run(6*time.Second, func() { e.request(w.poisson(5), api) })
	w.envoys = nil
	e.stream.close()
	w.run(10*time.Second, func() {})
	w.limiter.take = nil
	w.run(30*time.Minute, func() {})
	if n := len(w.servers[0].buckets); n != 0 || w.left(apiKey) > 90 {
		t.Errorf("%d buckets are left, and %d units", n, w.left(apiKey))
	}
}

// TestRulesOfAnotherKey checks that units of one key are not used for another, which new rules name.
func TestRulesOfAnotherKey(t *testing.T) {
	w := newWorld(t, 1, "domain: web\ndescriptors: [{key: a, rate_limit: {limit: 'fixed_window 100000/d'}}]\n")
	e, id := w.connect(0), map[string]string{"a": "b"}
	w.run(3*interval, func() { e.request(w.poisson(200), id) })
	next := newWorld(t, 1, "domain: web\ndescriptors: [{key: a, value: 'b*', share_threshold: true, rate_limit: {limit: 'fixed_window 500/d'}}]\n").servers[0].config.Load()
	w.redis.SetTime(w.now)
	if res, err := w.limiter.Client.Take(t.Context(), client.For("web|a=b*", "fixed_window 500/d", 500)); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	w.servers[0].Use(next)
	w.run(interval+ttl, func() { e.request(w.poisson(200), id) })
	before := w.total(id)
	w.run(6*interval, func() { e.request(w.poisson(200), id) })
	if passed := w.total(id) - before; passed != 0 {
		t.Errorf("%d passed of a limit that was used up", passed)
	}
}
