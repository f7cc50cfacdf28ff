package rlqs

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func policy(name, limit string) functions.Policy {
	return functions.Policy{Name: name, Limits: []functions.PolicyLimit{{Limit: limit}}}
}

var api = map[string]string{"policy": "api", "user": "42"}

const apiKey = "api|user=42" // the key of the bucket api

// left returns how many units a key of the policy api has.
func (w *world) left(key string) int64 {
	w.t.Helper()
	w.redis.SetTime(w.now)
	return redistest.Must[client.Result](w.t)(w.limiter.Client.Peek(w.t.Context(), client.For(key, "@api", 0))).Remaining
}

func (w *world) total(id map[string]string) (n int64) {
	for _, passed := range w.passed[named(id)] {
		n += passed
	}
	return n
}

// metric returns the value of a metric. label is the value of its label, or "".
func (w *world) metric(name, label string) float64 {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		series, found := strings.CutPrefix(series, "ratelimit_gateway_rlqs_"+name)
		if _, labels, _ := strings.Cut(series, "="); found && strings.Trim(labels, `"}`) == label {
			return redistest.Must[float64](w.t)(strconv.ParseFloat(value, 64))
		}
	}
	return 0
}

// TestFirstRequest checks that a new Envoy gets units at once, while another one uses most of the limit.
func TestFirstRequest(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "100/s"))
	busy, other := w.connect(0), w.connect(0)
	w.run(20*time.Second, func() { busy.request(w.poisson(80), api) })
	other.request(2, api) // the first is reported, and has no assignment
	if b := other.buckets[named(api)]; b.allowed != 1 {
		t.Errorf("%d requests passed, want the second", b.allowed)
	}
}

// TestIdle checks that an Envoy without requests loses its units within two reports, that they are given
// back, and that the bucket is dropped.
func TestIdle(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "1000/d"))
	e := w.connect(0)
	w.run(10*time.Second, func() { e.request(w.poisson(5), api) })
	if held := 1000 - w.left(apiKey) - w.total(api); held <= 0 {
		t.Errorf("the Envoy holds %d units, and should have some", held)
	}
	w.run(3*interval, func() {})
	if len(e.buckets) > 0 || w.metric("assignments_total", "abandon") != 1 {
		t.Error("the bucket was not abandoned")
	}
	if left, want := w.left(apiKey), 1000-w.total(api); left != want {
		t.Errorf("%d units are left, want %d", left, want)
	}
	w.run(2*interval, func() {})
	if n := len(w.servers[0].buckets); n != 0 || w.metric("buckets", "") != 0 || w.servers[0].shares != 0 {
		t.Errorf("%d buckets, and the metric %v", n, w.metric("buckets", ""))
	}
	e.request(1, api)
	e.request(1, api)
	if e.buckets[named(api)].allowed != 1 {
		t.Error("the Envoy got no units when it came back")
	}
}

// TestBusyThenIdle checks that a busy Envoy keeps only a few units two intervals after its last request. By
// then it has sent two reports: the first may have requests, and the second has none.
func TestBusyThenIdle(t *testing.T) {
	for _, rate := range []float64{20, 50, 200} {
		w := newWorld(t, 1, "", policy("api", "100000/d"))
		e := w.connect(0)
		w.run(4*interval, func() { e.request(w.poisson(rate), api) })
		if held := 100_000 - w.left(apiKey) - w.total(api); float64(held) < rate {
			t.Errorf("%v a second: the busy Envoy holds %d units", rate, held)
		}
		w.run(2*interval, func() {})
		if held := 100_000 - w.left(apiKey) - w.total(api); held > 2*mostPlenty {
			t.Errorf("%v a second: the idle Envoy holds %d units", rate, held)
		}
	}
}

// TestSilent checks that an Envoy that does not report gets no units after two intervals, and that its
// units are not given back: nobody knows whether it used them.
func TestSilent(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "20/s"))
	e := w.connect(0)
	w.run(10*time.Second, func() { e.request(w.poisson(10), api) })
	e.silent = true
	before := w.metric("units_total", "refunded")
	w.run(4*interval, func() { e.request(w.poisson(10), api) })
	if refunded := w.metric("units_total", "refunded"); refunded != before {
		t.Errorf("%v units were given back", refunded-before)
	}
	if n := len(w.servers[0].buckets); n != 0 {
		t.Errorf("%d buckets are left", n)
	}
	charged := w.metric("units_total", "charged")
	w.run(4*interval, func() { e.request(w.poisson(10), api) })
	if now := w.metric("units_total", "charged"); now != charged {
		t.Errorf("%v more units were charged", now-charged)
	}
	w.bounded(named(api), 20, 20, 0)
}

// TestRedisDown stops the server, once with calls that fail and once with calls whose outcome is unknown
// because their replies are lost. While it is stopped, no Envoy gets new units. When it is back, they get
// units again.
func TestRedisDown(t *testing.T) {
	for _, failure := range []error{client.ErrUnavailable, client.ErrOutcomeUnknown} {
		for _, limit := range []string{"20/s", "1200/m burst=400"} {
			t.Run(fmt.Sprint(failure, limit), func(t *testing.T) {
				w := newWorld(t, 1, "", policy("api", limit))
				var envoys []*envoy
				for range 5 {
					envoys = append(envoys, w.connect(0))
				}
				load := func() {
					for _, e := range envoys {
						e.request(w.poisson(6), api)
					}
				}
				w.run(30*time.Second, load)
				w.limiter.take = func(r client.Request) error {
					if failure == client.ErrOutcomeUnknown {
						_, _ = w.limiter.Client.Take(t.Context(), r)
					}
					return failure
				}
				w.run(ttl, load)
				before := w.total(api)
				w.run(20*time.Second, load)
				if passed := w.total(api) - before; passed != 0 {
					t.Errorf("%d passed after the assignments had ended", passed)
				}
				if !strings.Contains(w.log.String(), "a bucket gets no assignment") {
					t.Errorf("the log has no reason:\n%s", w.log)
				}
				w.limiter.take = nil
				w.run(interval+time.Second, load)
				before = w.total(api)
				w.run(20*time.Second, load)
				if passed := w.total(api) - before; passed < 380 {
					t.Errorf("%d passed in 20 s after the outage, want 400", passed)
				}
				burst := map[string]float64{"20/s": 20, "1200/m burst=400": 400}[limit]
				w.bounded(named(api), burst, 20, 0)
			})
		}
	}
}

// TestReconnect has an Envoy whose stream ends each second. It stays within the bound, leaves units to
// another Envoy, and is not charged twice for units that it got on an earlier stream.
func TestReconnect(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "20/s"))
	restless, other := w.connect(0), w.connect(0)
	forced := 0
	w.limiter.take = func(r client.Request) error {
		if r.Force {
			forced++
		}
		return nil
	}
	w.run(10*time.Second, func() { restless.request(w.poisson(10), api); other.request(w.poisson(10), api) })
	reconnect := func() {
		restless.stream.close()
		restless.stream = w.servers[0].newStream()
	}
	reconnect()
	w.run(interval, func() { restless.request(w.poisson(10), api); other.request(w.poisson(10), api) })
	if forced != 0 {
		t.Errorf("%d calls charged units of the earlier stream again", forced)
	}
	before := w.total(api)
	w.run(30*time.Second, func() {
		if w.steps%20 == 0 {
			reconnect()
			restless.report(restless.buckets[named(api)])
		}
		restless.request(w.poisson(10), api)
		other.request(w.poisson(10), api)
	})
	w.bounded(named(api), 20, 20, 0)
	if passed := w.total(api) - before; passed < 300 {
		t.Errorf("%d passed in 30 s, want at least half of 600", passed)
	}
	w.run(4*interval, func() {})
	if n := w.servers[0].shares; n != 0 || len(w.servers[0].buckets) != 0 {
		t.Errorf("%d shares and %d buckets are left", n, len(w.servers[0].buckets))
	}
}

// TestWithoutUnits has an Envoy that lets requests pass before its first assignment. They are charged.
func TestWithoutUnits(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "1000/d"))
	e := w.connect(0)
	e.pass = true
	w.limiter.take = func(client.Request) error { return client.ErrUnavailable }
	w.run(2*interval, func() { e.request(1, api) })
	if passed := w.total(api); passed != int64(2*interval/step) {
		t.Fatalf("%d passed", passed)
	}
	w.limiter.take = nil
	w.run(4*interval, func() {})
	if left, want := w.left(apiKey), 1000-w.total(api); left != want {
		t.Errorf("%d units are left, want %d", left, want)
	}
}
