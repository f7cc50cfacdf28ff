package cli

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// caller sends requests at planned times.
type caller struct {
	title      string // describes this caller's limiter; "" if the caller before has the same
	name, plan string
	keys       []string // without the demo's prefix
	limits     []client.Limit
	times      []time.Duration // times of the requests since the start, ascending
	ideal      []rule          // one for each key, shared with other callers of that key

	allowed, denied [columns]int
	by              [2]int // denials by the key that denied
	ideally         int    // requests that the rules allow
}

// newScene plans the traffic of a demo that lasts total. It is the same in each run.
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
	const fast, gap = 25 * time.Millisecond, 100 * time.Millisecond
	single, each := []client.Limit{"10/s burst=20"}, []client.Limit{"8/s", "10/s"}
	company := bucket(gap, 10)
	return []*caller{
		{title: "a key for each caller: 10 a second, 20 at once after a rest",
			name: "alice", plan: "8/s", keys: []string{"alice"}, limits: single,
			times: every(5*fast, 0, total), ideal: []rule{bucket(gap, 20)}},
		{name: "bob", plan: "40/s", keys: []string{"bob"}, limits: single,
			times: every(fast, 0, total), ideal: []rule{bucket(gap, 20)}},
		{name: "carol", plan: "32, twice", keys: []string{"carol"}, limits: single,
			times: slices.Concat(every(fast, 0, 32*fast), every(fast, total/2, total/2+32*fast)), ideal: []rule{bucket(gap, 20)}},
		{title: "a window: 20 in 2 seconds, however they fall",
			name: "dave", plan: "20/s", keys: []string{"dave"}, limits: []client.Limit{"fixed_window 20/2s"},
			times: every(2*fast, 0, total), ideal: []rule{window(20, 2*time.Second)}},
		{title: "two keys in one decision: 8/s for each user, 10/s for their company",
			name: "erin", plan: "20/s", keys: []string{"{acme}:erin", "{acme}"}, limits: each,
			times: every(2*fast, 0, total), ideal: []rule{bucket(5*fast, 8), company}},
		{name: "frank", plan: "20/s", keys: []string{"{acme}:frank", "{acme}"}, limits: each,
			times: every(2*fast, total*3/8, total*6/8), ideal: []rule{bucket(5*fast, 8), company}},
	}
}

// rule is the textbook version of a limit, for the demo's column IDEAL. It does not use the
// library. It reports whether a request may pass, and charges it if take is set.
type rule func(at time.Duration, take bool) bool

// allowed decides over several rules: all or none.
func allowed(rules []rule, at time.Duration) bool {
	for _, take := range []bool{false, true} {
		for _, r := range rules {
			if !r(at, take) {
				return false
			}
		}
	}
	return true
}

// bucket holds up to a number of tokens and gains one per gap, continuously. It measures tokens in
// time: a token is a gap.
func bucket(gap time.Duration, tokens int) rule {
	full := gap * time.Duration(tokens)
	holds, last := full, time.Duration(0)
	return func(at time.Duration, take bool) bool {
		now := min(full, holds+at-last)
		if take && now >= gap {
			holds, last = now-gap, at
		}
		return now >= gap
	}
}

// window allows count requests from its first take until period is over.
func window(count int, period time.Duration) rule {
	used, end := 0, time.Duration(0)
	return func(at time.Duration, take bool) bool {
		if at >= end && take {
			used, end = 0, at+period
		}
		ok := used < count || at >= end
		if take && ok {
			used++
		}
		return ok
	}
}
