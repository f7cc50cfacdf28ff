package model

import "slices"

// taken are units taken at one time, in microseconds.
type taken struct{ at, units int64 }

// slidingLog is the standing, and []taken what is kept: all units in the order in which they were taken.
type slidingLog struct {
	n, period, now int64
	log            []taken // those that count
	over           []taken // those before them that have left the window, while they are at most half of the log
}

func standSlidingLog(r Rate, saved any, c int64, now instant) *slidingLog {
	s := &slidingLog{n: r.N, period: r.periodUS(), now: int64(now)}
	all, _ := saved.([]taken)
	for _, unit := range all {
		if unit.at > s.now-s.period {
			s.log = append(s.log, unit)
		} else {
			s.over = append(s.over, unit)
		}
	}
	if 2*len(s.over) > len(all) {
		s.over = nil
	}
	if s.units() >= s.n && s.nthNewest(s.n) > s.now {
		s.log, s.over = nil, nil
		s.charge(s.n - room(c, s.n))
	}
	return s
}

func units(log []taken) int64 {
	sum := int64(0)
	for _, unit := range log {
		sum += unit.units
	}
	return sum
}

func (s *slidingLog) units() int64 { return units(s.log) }

// nthNewest is when the unit was taken that has exactly n-1 younger ones.
func (s *slidingLog) nthNewest(n int64) int64 {
	for _, unit := range slices.Backward(s.log) {
		if n -= unit.units; n <= 0 {
			return unit.at
		}
	}
	panic("the log has fewer units")
}

func (s *slidingLog) fits(c int64) bool { return s.units()+c <= s.n }

// wait is until as many of the oldest have left as are in the way.
func (s *slidingLog) wait(c int64) int64 {
	inTheWay := s.units() + c - s.n
	return ceilMS(s.nthNewest(s.units()-inTheWay+1) + s.period - s.now)
}

func (s *slidingLog) delay() int64 { return 0 }

func (s *slidingLog) charge(c int64) {
	if c == 0 {
		return
	}
	at := s.now
	if len(s.log) > 0 {
		at = max(at, s.log[len(s.log)-1].at)
	}
	s.log = append(slices.Clone(s.log), taken{at, c})
}

func (s *slidingLog) refund(c int64) {
	s.log, s.over = slices.Clone(s.log), nil
	for c > 0 && len(s.log) > 0 {
		last := &s.log[len(s.log)-1]
		back := min(c, last.units)
		last.units -= back
		c -= back
		if last.units == 0 {
			s.log = s.log[:len(s.log)-1]
		}
	}
}

func (s *slidingLog) remaining() int64 { return max(0, s.n-s.units()) }

func (s *slidingLog) full() int64 {
	if len(s.log) == 0 {
		return s.now
	}
	return s.log[len(s.log)-1].at + s.period
}

func (s *slidingLog) reset() int64  { return ceilMS(s.full() - s.now) }
func (s *slidingLog) fullAt() int64 { return ceilMS(s.full()) }

func (s *slidingLog) save() any {
	return slices.Concat(s.over, s.log)
}
