package cli

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// caller sends requests at planned times.
type caller struct {
	title      string // describes this caller's limiter; "" if the previous caller has the same limiter
	name, plan string
	keys       []string // without the demo's prefix
	limits     []client.Limit
	times      []time.Duration // times of the requests since the start, ascending

	allowed, denied [columns]int
	by              [2]int // number of denials, by the index of the key that denied
}

// newScene plans the traffic of a demo. total is the duration of the demo. The traffic is the same
// in every run.
func newScene(total time.Duration) []*caller {
	dice := rand.NewPCG(7, 42)
	every := func(gap, from, until time.Duration) []time.Duration {
		var times []time.Duration
		for t := from; t < until; t += gap {
			late := time.Duration(dice.Uint64() % uint64(gap/time.Millisecond))
			times = append(times, min(t+late*time.Millisecond, total))
		}
		return times
	}
	const fast = 25 * time.Millisecond
	single, each := []client.Limit{"10/s burst=20"}, []client.Limit{"8/s", "10/s"}
	twice := slices.Concat(every(fast, 0, 32*fast), every(fast, total/2, total/2+32*fast))
	return []*caller{
		{title: "a key for each caller: 10 a second, 20 at once after a rest",
			name: "alice", plan: "8/s", keys: []string{"alice"}, limits: single, times: every(5*fast, 0, total)},
		{name: "bob", plan: "40/s", keys: []string{"bob"}, limits: single, times: every(fast, 0, total)},
		{name: "carol", plan: "32, twice", keys: []string{"carol"}, limits: single, times: twice},
		{title: "a window: 20 in 2 seconds, however they fall",
			name: "dave", plan: "20/s", keys: []string{"dave"}, limits: []client.Limit{"fixed_window 20/2s"}, times: every(2*fast, 0, total)},
		{title: "two keys in one decision: 8/s for each user, 10/s for their company",
			name: "erin", plan: "20/s", keys: []string{"{acme}:erin", "{acme}"}, limits: each, times: every(2*fast, 0, total)},
		{name: "frank", plan: "20/s", keys: []string{"{acme}:frank", "{acme}"}, limits: each, times: every(2*fast, total*3/8, total*6/8)},
	}
}
