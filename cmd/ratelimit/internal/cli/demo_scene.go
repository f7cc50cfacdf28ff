package cli

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// columns is the number of columns of a chart. In the usual 8 s a column is 200 ms, and no caller
// sends more requests than the eight that a bar can show.
const columns = 40

// act is one limiter of the demo, with its callers.
type act struct {
	title   string // what the act shows
	callers []*caller
}

// caller sends requests at planned times.
type caller struct {
	name, plan string
	keys       []string // without the demo's prefix
	limits     []client.Limit
	times      []time.Duration // times of the requests since the start, ascending
	ideal      []rule          // one for each key, shared with other callers of that key
}

// request is one request of one caller.
type request struct {
	at     time.Duration
	caller *caller
}

// newScene plans the traffic of a demo that lasts total. It is the same in each run.
func newScene(total time.Duration) []act {
	dice := rand.NewPCG(7, 42)
	every := func(gap, from, until time.Duration) []time.Duration {
		var times []time.Duration
		for t := from; t < until; t += gap {
			late := time.Duration(dice.Uint64() % uint64(gap/time.Millisecond))
			times = append(times, min(t+late*time.Millisecond, total))
		}
		return times
	}
	bursts := slices.Concat(every(25*time.Millisecond, 0, 800*time.Millisecond),
		every(25*time.Millisecond, total/2, total/2+800*time.Millisecond))

	own := func() []rule { return []rule{newBucket(100*time.Millisecond, 20)} }
	company := newBucket(100*time.Millisecond, 10)
	member := func() []rule { return []rule{newBucket(125*time.Millisecond, 8), company} }
	const acme = "{acme}"

	return []act{
		{title: "a key for each caller: 10 a second, 20 at once after a rest", callers: []*caller{
			{name: "alice", plan: "8/s", keys: []string{"alice"}, limits: []client.Limit{"10/s burst=20"},
				times: every(125*time.Millisecond, 0, total), ideal: own()},
			{name: "bob", plan: "40/s", keys: []string{"bob"}, limits: []client.Limit{"10/s burst=20"},
				times: every(25*time.Millisecond, 0, total), ideal: own()},
			{name: "carol", plan: "32, twice", keys: []string{"carol"}, limits: []client.Limit{"10/s burst=20"},
				times: bursts, ideal: own()},
		}},
		{title: "a window: 20 in 2 seconds, however they fall", callers: []*caller{
			{name: "dave", plan: "20/s", keys: []string{"dave"}, limits: []client.Limit{"fixed_window 20/2s"},
				times: every(50*time.Millisecond, 0, total), ideal: []rule{&window{count: 20, period: 2 * time.Second}}},
		}},
		{title: "two keys in one decision: 8/s for each user, 10/s for their company", callers: []*caller{
			{name: "erin", plan: "20/s", keys: []string{acme + ":erin", acme}, limits: []client.Limit{"8/s", "10/s"},
				times: every(50*time.Millisecond, 0, total), ideal: member()},
			{name: "frank", plan: "20/s", keys: []string{acme + ":frank", acme}, limits: []client.Limit{"8/s", "10/s"},
				times: every(50*time.Millisecond, total*3/8, total*6/8), ideal: member()},
		}},
	}
}

func callersOf(scene []act) []*caller {
	var all []*caller
	for _, act := range scene {
		all = append(all, act.callers...)
	}
	return all
}

// requestsOf returns all requests of a scene in the order of their times.
func requestsOf(scene []act) []request {
	var all []request
	for _, c := range callersOf(scene) {
		for _, at := range c.times {
			all = append(all, request{at: at, caller: c})
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	return all
}

// rule is the textbook version of a limit, for the demo's column IDEAL. It does not use the
// library.
type rule interface {
	allows(at time.Duration) bool
	take(at time.Duration)
}

// idealTake decides over several rules: all or none.
func idealTake(rules []rule, at time.Duration) bool {
	for _, r := range rules {
		if !r.allows(at) {
			return false
		}
	}
	for _, r := range rules {
		r.take(at)
	}
	return true
}

// bucket holds up to a number of tokens and gains one per gap, continuously. It measures tokens in
// time: a token is a gap.
type bucket struct {
	gap, full, holds, last time.Duration
}

func newBucket(gap time.Duration, tokens int) *bucket {
	full := gap * time.Duration(tokens)
	return &bucket{gap: gap, full: full, holds: full}
}

func (b *bucket) allows(at time.Duration) bool { return min(b.full, b.holds+at-b.last) >= b.gap }

func (b *bucket) take(at time.Duration) {
	b.holds, b.last = min(b.full, b.holds+at-b.last)-b.gap, at
}

// window allows count requests from its first take until period is over.
type window struct {
	count  int
	period time.Duration
	used   int
	began  time.Duration
}

func (w *window) allows(at time.Duration) bool {
	return w.used < w.count || at-w.began >= w.period
}

func (w *window) take(at time.Duration) {
	if w.used == 0 || at-w.began >= w.period {
		w.began, w.used = at, 0
	}
	w.used++
}
