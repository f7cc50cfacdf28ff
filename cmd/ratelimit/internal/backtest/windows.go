package backtest

import (
	"math/bits"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/accesslog"
)

// windows finds, for each key and each period, the smallest n such that the key's requests need at
// most n units within any span of that length.
type windows struct {
	share
	after   bool      // whether costs are charged after requests
	periods []int64   // ms
	firsts  []int64   // for each key, the time of the first request, or 0 if its cost is not 1
	keys    [][]peak  // for each key, one peak for each period; nil if the key's only request is the one in firsts
	touched [][]int64 // number of requests for which add returned n, by period and by rung(n)
}

// peak adds up the costs of one key's requests within the last period. most is the largest number
// of units needed so far. Requests in the same 1/256 of a period count as simultaneous. Sums of
// simultaneous requests saturate at 2^53, the largest n, so that the sum of a period cannot
// overflow.
type peak struct {
	marks []mark
	sum   int64
	most  int64
}

type mark struct {
	last  int64 // ms
	units int64
}

const marksPerPeriod = 256

// ladder lists the values of n in the chart: at most twelve for each power of ten.
var ladder = func() (rungs []int64) {
	for power := int64(1); power <= 1e16; power *= 10 {
		for _, n := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90} {
			if n*power%10 == 0 {
				rungs = append(rungs, n*power/10)
			}
		}
	}
	return rungs
}()

// rung returns how many values of the ladder are below n.
func rung(n int64) int {
	below, _ := slices.BinarySearch(ladder, n)
	return below
}

// needed returns how many units must be available for a request to be allowed without debt. If
// costs are charged after requests, even a request with cost 0 needs one unit.
func needed(cost int64, after bool) int64 {
	if after {
		return max(1, cost)
	}
	return cost
}

func newWindows(s share, periods []time.Duration, after bool) *windows {
	w := &windows{share: s, after: after}
	for _, p := range periods {
		w.periods = append(w.periods, p.Milliseconds())
		w.touched = append(w.touched, make([]int64, len(ladder)+1))
	}
	return w
}

func (w *windows) see(r *event) error {
	if r.keys[0] == 0 || !w.mine(r.keys[0]) {
		return nil
	}
	i := w.place(r.keys[0])
	for len(w.firsts) <= i {
		w.firsts, w.keys = append(w.firsts, 0), append(w.keys, nil)
	}
	if w.keys[i] == nil {
		first := w.firsts[i]
		if first == 0 && r.cost == 1 {
			w.firsts[i] = r.at
			for p := range w.periods {
				w.touched[p][0]++
			}
			return nil
		}
		w.keys[i] = make([]peak, len(w.periods))
		for p, period := range w.periods {
			if first != 0 {
				w.keys[i][p].add(first, period, 1, 1)
			}
		}
	}
	for p, period := range w.periods {
		w.touched[p][rung(w.keys[i][p].add(r.at, period, r.cost, needed(r.cost, w.after)))]++
	}
	return nil
}

// add counts a request, and returns the smallest n that allows it: need, plus the costs of the
// other requests within the period that ends at the time of the request. If need is 0, the result
// is 0. The result is at most 2^53.
func (k *peak) add(at, period, cost, need int64) int64 {
	old := 0
	for old < len(k.marks) && k.marks[old].last <= at-period {
		k.sum -= k.marks[old].units
		old++
	}
	if old > 0 {
		k.marks = k.marks[:copy(k.marks, k.marks[old:])]
	}
	n := int64(0)
	if need > 0 {
		n = min(k.sum+need, accesslog.MostUnits)
		k.most = max(k.most, n)
	}
	width := max(1, period/marksPerPeriod)
	if len(k.marks) == 0 || k.marks[len(k.marks)-1].last/width != at/width {
		k.marks = append(k.marks, mark{})
	}
	last := &k.marks[len(k.marks)-1]
	units := min(cost, accesslog.MostUnits-last.units)
	last.last, last.units, k.sum = at, last.units+units, k.sum+units
	return n
}

// eachMost calls each(key, most) for every key of this worker. most is the smallest n that never
// denies the key, and period is an index in w.periods.
func (w *windows) eachMost(period int, each func(key uint32, most int64)) {
	for i, first := range w.firsts {
		switch {
		case w.keys[i] != nil:
			each(w.key(i), w.keys[i][period].most)
		case first != 0:
			each(w.key(i), 1)
		}
	}
}

// bursts finds, for each key and each rate, the smallest burst with which gcra never denies the
// key.
type bursts struct {
	share
	after bool // as in windows
	rates []rate
	keys  [][]burst // for each key, one burst for each rate
}

type rate struct{ n, period int64 }

// burst is the state of gcra for one key and one rate.
type burst struct {
	units, part int64 // units + part/period units are taken
	at          int64 // time of this state, in ms
	most        int64 // the burst that the key has needed so far, at most 2^53
}

func (b *bursts) see(r *event) error {
	if r.keys[0] == 0 || !b.mine(r.keys[0]) {
		return nil
	}
	i := b.place(r.keys[0])
	for len(b.keys) <= i {
		b.keys = append(b.keys, nil)
	}
	if b.keys[i] == nil {
		b.keys[i] = make([]burst, len(b.rates))
	}
	for p, rate := range b.rates {
		s := &b.keys[i][p]
		s.drain(r.at, rate)
		if need := needed(r.cost, b.after); need > 0 {
			s.most = max(s.most, min(s.units+min(s.part, 1)+need, accesslog.MostUnits))
		}
		s.units += r.cost // an overflow is harmless, because most has already reached its maximum
	}
	return nil
}

// drain advances s to now, a time in ms, and refills r.n units per r.period.
func (s *burst) drain(now int64, r rate) {
	high, low := bits.Mul64(uint64(now-s.at), uint64(r.n))
	s.at = now
	if high >= uint64(r.period) {
		s.units, s.part = 0, 0
		return
	}
	units, part := bits.Div64(high, low, uint64(r.period))
	if units > uint64(s.units) || units == uint64(s.units) && part > uint64(s.part) {
		s.units, s.part = 0, 0
		return
	}
	s.units -= int64(units)
	if s.part -= int64(part); s.part < 0 {
		s.units, s.part = s.units-1, s.part+r.period
	}
}
