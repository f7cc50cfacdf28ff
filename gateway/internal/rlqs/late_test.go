package rlqs

import (
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
)

// TestLateReport checks that units of an Envoy that reports late are not given back: they would be older
// than the bound allows.
func TestLateReport(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "1000/d"))
	e := w.connect(0)
	w.run(e.next.Add(interval).Sub(w.now), func() { e.request(w.poisson(5), api) }) // until just after a report
	e.silent = true
	w.run(interval+2*late, func() {})
	before := w.left(apiKey)
	e.report(e.buckets[named(api)])
	if left := w.left(apiKey); left >= before {
		t.Errorf("%d units are left, and %d were before: the Envoy got its old units", left, before)
	}
}

// TestStreamsOfOneEnvoy checks that an Envoy that connects again and again does not get units each time,
// because it may still have those of its earlier streams.
func TestStreamsOfOneEnvoy(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "1000/d"))
	e := w.connect(0)
	w.run(10*time.Second, func() { e.request(w.poisson(5), api) })
	before := w.left(apiKey)
	for range 20 {
		e.stream.close()
		e.stream = w.servers[0].newStream()
		e.report(e.buckets[named(api)])
	}
	if taken := before - w.left(apiKey); taken > 20 {
		t.Errorf("20 streams took %d units, want at most one each", taken)
	}
}

// TestNoTicksForTheSilent checks that an Envoy whose report is late gets no units in the meantime.
func TestNoTicksForTheSilent(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "20/s"))
	e := w.connect(0)
	w.run(10*time.Second, func() { e.request(w.poisson(30), api) })
	charged := w.metric("units_total", "charged")
	e.silent = true
	w.run(interval+late, func() {})
	if now := w.metric("units_total", "charged"); now == charged {
		t.Error("no units between two reports")
	}
	charged = w.metric("units_total", "charged")
	w.run(3*time.Second, func() {})
	if now := w.metric("units_total", "charged"); now != charged {
		t.Errorf("%v units for an Envoy that does not report", now-charged)
	}
}

// TestSlowReader checks that an assignment that could not be sent at once is not sent later, because
// Envoy counts its time from when it is received.
func TestSlowReader(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "1000/d"))
	st := w.servers[0].newStream()
	id, _ := newBucketID(&quota.BucketId{Bucket: api})
	st.domain = "web"
	st.report(id, 1, 0)
	for len(w.servers[0].queue) > 0 {
		(<-w.servers[0].queue).process(t.Context())
	}
	if st.next(w.now.Add(late+time.Millisecond)) != nil {
		t.Error("an old assignment was sent")
	}
}
