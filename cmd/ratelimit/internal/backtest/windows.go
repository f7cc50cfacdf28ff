package backtest

import (
	"slices"
	"time"
)

// windows finds, for each key and each period, the largest number of requests within any window of
// that length.
type windows struct {
	share
	periods []int64   // ms
	firsts  []int64   // time of the first request of each of the worker's keys; 0: none yet
	keys    [][]peak  // for each key, one peak for each period; nil before its second request
	touched [][]int64 // number of requests by period and by the rung of the count that add returned
}

// peak counts one key's requests within the last period, and keeps the largest count in most.
// Requests less than 1/256 of the period apart count as simultaneous.
type peak struct {
	marks []mark
	sum   uint32
	most  uint32
}

type mark struct {
	last  int64 // ms
	count uint32
}

const marksPerPeriod = 256

// ladder lists the values of n in the chart: twelve for each power of ten.
var ladder = func() (rungs []int64) {
	for power := int64(1); power <= 1e9; power *= 10 {
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

func newWindows(s share, periods []time.Duration) *windows {
	w := &windows{share: s}
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
	switch {
	case w.firsts[i] == 0:
		w.firsts[i] = r.at
		for p := range w.periods {
			w.touched[p][0]++
		}
		return nil
	case w.keys[i] == nil:
		w.keys[i] = make([]peak, len(w.periods))
		for p, period := range w.periods {
			w.keys[i][p].add(w.firsts[i], period)
		}
	}
	for p, period := range w.periods {
		w.touched[p][rung(int64(w.keys[i][p].add(r.at, period)))]++
	}
	return nil
}

// add counts a request, and returns the number of requests within the period that ends with it.
func (k *peak) add(at, period int64) uint32 {
	old := 0
	for old < len(k.marks) && k.marks[old].last <= at-period {
		k.sum -= k.marks[old].count
		old++
	}
	if old > 0 {
		k.marks = k.marks[:copy(k.marks, k.marks[old:])]
	}
	width := max(1, period/marksPerPeriod)
	if n := len(k.marks); n > 0 && k.marks[n-1].last/width == at/width {
		k.marks[n-1].last = at
		k.marks[n-1].count++
	} else {
		k.marks = append(k.marks, mark{at, 1})
	}
	k.sum++
	k.most = max(k.most, k.sum)
	return k.sum
}

// eachMost calls each for every key of this worker, with the key's largest number of requests
// within one period.
func (w *windows) eachMost(period int, each func(key uint32, most uint32)) {
	for i, first := range w.firsts {
		switch {
		case first == 0:
		case w.keys[i] == nil:
			each(w.key(i), 1)
		default:
			each(w.key(i), w.keys[i][period].most)
		}
	}
}

// bursts finds, for each key and each rate, the smallest burst with which gcra never denies the
// key.
type bursts struct {
	share
	rates []rate
	keys  [][]burst // for each key, one for each rate
}

type rate struct{ n, period int64 }

// burst is the state of gcra for one key and one rate: its debt at a time, in units of 1/n ms. most
// is the burst that the key has needed so far.
type burst struct{ debt, at, most int64 }

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
		if gone := r.at - s.at; gone > s.debt/rate.n {
			s.debt = 0
		} else {
			s.debt -= gone * rate.n
		}
		s.debt += rate.period
		s.at = r.at
		s.most = max(s.most, (s.debt+rate.period-1)/rate.period)
	}
	return nil
}
