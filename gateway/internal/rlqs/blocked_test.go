package rlqs

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// TestBlockedUnits checks that the metrics do not count what a blocked key was neither charged nor given back.
func TestBlockedUnits(t *testing.T) {
	w := newWorld(t, 1, "", policy("api", "1000/d"))
	e := w.connect(0)
	w.run(10*time.Second, func() { e.request(w.poisson(5), api) })
	charged, used := w.metric("units_total", "charged"), w.metric("units_total", "used")
	if charged <= used {
		t.Fatalf("%v charged and %v used: the Envoy holds nothing to give back", charged, used)
	}
	if err := w.limiter.Client.Block(t.Context(), client.Block{For: 24 * time.Hour}, apiKey); err != nil {
		t.Fatal(err)
	}
	w.run(3*interval, func() {})
	e.pass = true
	w.run(2*interval, func() { e.request(1, api) })
	if now := w.metric("units_total", "charged"); now != charged {
		t.Errorf("%v units of a blocked key count as charged", now-charged)
	}
	if now := w.metric("units_total", "used"); now <= used {
		t.Error("nothing was used without units, so nothing had to be charged")
	}
	if refunded := w.metric("units_total", "refunded"); refunded != 0 {
		t.Errorf("%v units of a blocked key count as given back", refunded)
	}
}
