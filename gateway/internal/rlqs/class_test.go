package rlqs

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestClassRefill checks that what a class leaves to others does not look like units that were used. The limit would
// seem to refill in seconds, and each Envoy would get units four times a second. A bucket without a class has the
// class default.
func TestClassRefill(t *testing.T) {
	for _, tt := range []struct {
		name, limit   string
		kept, def     int     // percentages of the class and of the class default
		envoys        int     // number of them
		rate, refills float64 // requests of each Envoy, and units of the limit, in a second
		used          int64   // by others, before
		reset         bool    // after a while, nothing is used
		period        time.Duration
		own           int64 // capacity of the class; 0 if it cannot be known
	}{
		{"many Envoys", "1/s burst=1000", 10, 0, 40, 0.02, 1, 0, false, interval, 900},
		{"full", "1000/h", 50, 0, 3, 0.5, 1. / 3.6, 0, false, interval, 500},
		{"full, and the class default leaves some", "1000/h", 50, 20, 3, 0.5, 1. / 3.6, 0, false, interval, 500},
		{"partly used", "1000/h", 50, 0, 3, 0.5, 1. / 3.6, 300, false, interval, 500},
		{"used up", "1000/h", 50, 0, 3, 0.5, 1. / 3.6, 1000, false, interval, 0},
		{"used up, and full again", "1000/h", 50, 0, 3, 0.5, 1. / 3.6, 1000, true, interval, 500},
		{"the rest used by others", "1000/h", 50, 0, 3, 0.5, 1. / 3.6, 700, false, interval, 0},
		{"20 s", "1200/m burst=400", 50, 0, 3, 5, 20, 0, false, interval, 200},
		{"1 s", "100/s", 50, 0, 3, 5, 100, 0, false, quick, 50},
		{"no class, many Envoys", "1/s burst=1000", 0, 10, 40, 0.02, 1, 0, false, interval, 900},
		{"no class, full", "1000/h", 0, 20, 3, 0.5, 1. / 3.6, 0, false, interval, 800},
		{"no class, 20 s", "1200/m burst=400", 0, 50, 3, 5, 20, 0, false, interval, 200},
		{"the class default", "1000/h", 20, 20, 3, 0.5, 1. / 3.6, 0, false, interval, 800},
		{"no class, 1 s", "100/s", 0, 50, 3, 5, 100, 0, false, quick, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shared := functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: tt.limit}}, Classes: map[string]int{"default": tt.def, "batch": tt.kept}}
			w := newWorld(t, 1, "", shared)
			id := map[string]string{"policy": "api", "user": "42", "class": "batch"}
			switch tt.kept {
			case 0:
				delete(id, "class") // so it is default
			case tt.def:
				id["class"] = "default"
			}
			if tt.used > 0 {
				redistest.Must[client.Result](t)(w.limiter.Client.Take(t.Context(), client.For(apiKey, "@api", tt.used)))
			}
			var envoys []*envoy
			for range tt.envoys {
				envoys = append(envoys, w.connect(0))
			}
			load := func() {
				for _, e := range envoys {
					e.request(w.poisson(tt.rate), id)
				}
			}
			w.run(2*time.Minute, load)
			if tt.reset {
				redistest.Must[int64](t)(w.limiter.Client.Reset(t.Context(), apiKey))
				w.run(time.Minute, load)
			}
			for _, b := range w.servers[0].buckets {
				if got := b.refills(); b.period != tt.period || got < tt.refills*0.8 || got > tt.refills*1.2 {
					t.Errorf("the period is %v with %v units a second; want %v and %v", b.period, got, tt.period, tt.refills)
				}
				if tt.own > 0 && b.capacity != tt.own {
					t.Errorf("the class has %d units, want %d", b.capacity, tt.own)
				}
			}
		})
	}
}

// TestClassCalls checks that a class needs no more calls than others.
func TestClassCalls(t *testing.T) {
	calls := map[string]int{}
	for _, class := range []string{"", "batch"} {
		w := newWorld(t, 1, "", functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1000/h"}}, Classes: map[string]int{"default": 0, "batch": 10}})
		w.limiter.take = func(client.Request) error { calls[class]++; return nil }
		e, id := w.connect(0), map[string]string{"policy": "api"}
		if class != "" {
			id["class"] = class
		}
		w.run(time.Minute, func() { e.request(w.poisson(1), id) })
	}
	if calls["batch"] > calls[""] {
		t.Errorf("%d calls, and %d without a class", calls["batch"], calls[""])
	}
}

// TestClassBack checks that units come back when the limit is full, which for a class is when it has all but what it
// leaves to others.
func TestClassBack(t *testing.T) {
	w := newWorld(t, 1, "", functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1000/h"}}, Classes: map[string]int{"default": 0, "batch": 50}})
	e, id := w.connect(0), map[string]string{"policy": "api", "user": "42", "class": "batch"}
	w.run(4*interval, func() { e.request(w.poisson(5), id) })
	redistest.Must[int64](t)(w.limiter.Client.Reset(t.Context(), apiKey))
	e.buckets[named(id)].allowed = 1
	e.report(e.buckets[named(id)])
	for _, b := range w.servers[0].buckets {
		if left, held := w.left(apiKey), b.shares[0].open; left+held > 1000 {
			t.Errorf("%d units are left, and the Envoy holds %d of the full limit of 1000", left, held)
		}
	}
}
