package model

import "math/big"

// buckets is what sliding_window keeps: the counts of buckets of one width, by number, and which one it was written in.
type buckets struct {
	width   int64 // in milliseconds
	written int64
	counts  map[int64]int64
}

func (b buckets) newest() (number int64, ok bool) {
	for j, count := range b.counts {
		if count > 0 && (!ok || j > number) {
			number, ok = j, true
		}
	}
	return number, ok
}

type slidingWindow struct {
	n, k int64
	now  int64 // in milliseconds
	buckets
}

func standSlidingWindow(r Rate, saved any, c int64, now instant) *slidingWindow {
	s := &slidingWindow{n: r.N, k: max(1, r.Buckets), now: now.ms()}
	s.buckets = buckets{width: r.Period.MS() / s.k, counts: map[int64]int64{}}
	old, ok := saved.(buckets)
	if !ok {
		return s
	}
	sum := int64(0)
	for j, count := range old.counts {
		sum += count
		s.counts[j*old.width/s.width] += count
	}
	if old.written*old.width > s.now {
		s.counts = map[int64]int64{s.now / s.width: min(sum, s.n-room(c, s.n))}
	}
	return s
}

// standsAt are S and O(w - f) for a time in milliseconds: the counts of the buckets that are wholly within the window, and
// w times the part that counts of the one before them.
func (s *slidingWindow) standsAt(t int64) (whole, part *big.Int) {
	i, f := t/s.width, t%s.width
	whole = new(big.Int)
	for j := i - s.k + 1; j <= i; j++ {
		whole.Add(whole, big.NewInt(s.counts[j]))
	}
	part = new(big.Int).Mul(big.NewInt(s.counts[i-s.k]), big.NewInt(s.width-f))
	return whole, part
}

func (s *slidingWindow) fitsAt(t, c int64) bool {
	whole, part := s.standsAt(t)
	whole.Add(whole, big.NewInt(c))
	whole.Mul(whole, big.NewInt(s.width))
	whole.Add(whole, part)
	return whole.Cmp(new(big.Int).Mul(big.NewInt(s.n), big.NewInt(s.width))) <= 0
}

func (s *slidingWindow) fits(c int64) bool { return s.fitsAt(s.now, c) }

// wait looks for the first millisecond in which the cost fits: while nothing is taken, the estimate only sinks.
func (s *slidingWindow) wait(c int64) int64 {
	late, early := s.reset(), int64(0) // it fits, it does not fit
	for late-early > 1 {
		middle := (early + late) / 2
		if s.fitsAt(s.now+middle, c) {
			late = middle
		} else {
			early = middle
		}
	}
	return late
}

func (s *slidingWindow) delay() int64   { return 0 }
func (s *slidingWindow) charge(c int64) { s.counts[s.now/s.width] += c }

func (s *slidingWindow) refund(c int64) {
	for c > 0 {
		j, some := s.newest()
		if !some {
			return
		}
		back := min(c, s.counts[j])
		s.counts[j] -= back
		c -= back
	}
}

func (s *slidingWindow) remaining() int64 {
	whole, part := s.standsAt(s.now)
	part.Add(part, big.NewInt(s.width-1))
	part.Div(part, big.NewInt(s.width))
	return max(0, s.n-whole.Int64()-part.Int64())
}

func (s *slidingWindow) reset() int64 { return s.fullAt() - s.now }

func (s *slidingWindow) fullAt() int64 {
	if j, some := s.newest(); some {
		return max(s.now, (j+s.k+1)*s.width)
	}
	return s.now
}

// save keeps the buckets that can still count.
func (s *slidingWindow) save() any {
	kept := buckets{s.width, s.now / s.width, map[int64]int64{}}
	for j, count := range s.counts {
		if j >= kept.written-s.k {
			kept.counts[j] = count
		}
	}
	return kept
}
