package rlqs

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestFleet has Envoys with more requests than their limits allow, unevenly spread over buckets and
// Envoys. They use at least 98 % of each limit, and stay within the bound. With RATELIMIT_SOAK, there are
// also limits so small that the units of 100 Envoys wait where they are not needed.
func TestFleet(t *testing.T) {
	type limit struct {
		text        string
		burst, rate float64
	}
	small := []limit{{"600/m burst=50", 50, 10}, {"100/s", 100, 100}, {"3000/m burst=500", 500, 50}, {"20/s burst=40", 40, 20}}
	large := []limit{{"1000/s", 1000, 1000}, {"300/s burst=3000", 3000, 300}, {"500/s burst=200", 200, 500}}
	type fleet struct {
		gateways, envoys, buckets, each int
		limits                          []limit
		least                           float64 // part of each limit
	}
	fleets := []fleet{{1, 10, 20, 4, small, 0.98}, {2, 10, 8, 6, small, 0.98}, {1, 100, 3, 100, large, 0.98}}
	if os.Getenv("RATELIMIT_SOAK") != "" {
		fleets = append(fleets, fleet{1, 100, 4, 100, []limit{{"100/s", 100, 100}, {"50/s", 50, 50}, {"20/s burst=40", 40, 20}, {"10/s", 10, 10}}, 0.7})
	}
	for _, test := range fleets {
		t.Run(fmt.Sprint(test.gateways, test.envoys), func(t *testing.T) {
			t.Parallel()
			limits := test.limits
			var policies []functions.Policy
			for i, l := range limits {
				policies = append(policies, functions.Policy{Name: fmt.Sprint("p", i), Limits: []functions.PolicyLimit{{Limit: l.text}}})
			}
			w := newWorld(t, test.gateways, "", policies...)
			for i := range test.envoys {
				w.connect(i % test.gateways)
			}
			type use struct {
				e    *envoy
				id   map[string]string
				rate float64
			}
			var uses []use
			for i := range test.buckets {
				id := map[string]string{"policy": fmt.Sprint("p", i%len(limits)), "user": fmt.Sprint(i)}
				total := 0.0
				for k := range test.each {
					total += 1 / float64(k+1)
				}
				for k, at := range w.random.Perm(test.envoys)[:test.each] {
					uses = append(uses, use{w.envoys[at], id, 1.5 * limits[i%len(limits)].rate / float64(k+1) / total})
				}
			}
			w.run(90*time.Second, func() {
				for _, u := range uses {
					u.e.request(w.poisson(u.rate), u.id)
				}
			})
			for i := range test.buckets {
				l := limits[i%len(limits)]
				name := named(map[string]string{"policy": fmt.Sprint("p", i%len(limits)), "user": fmt.Sprint(i)})
				passed := w.bounded(name, l.burst, l.rate, 30*time.Second)
				used := float64(passed) / (60 * l.rate)
				t.Logf("bucket %d, %s: %.1f %%", i, l.text, 100*used)
				if used < test.least {
					t.Errorf("bucket %d: %.1f %% of %s was used, want %.0f %%", i, 100*used, l.text, 100*test.least)
				}
			}
			if text := w.log.String(); text != "" {
				t.Error(text)
			}
		})
	}
}
