package model

import "slices"

func init() {
	Algorithms["sliding_log"] = &Algorithm{Open: openLog, Bound: func(r Rate) int64 { return r.N }, Most: 100000}
}

// log is the state of sliding_log: when each unit was taken, in order.
type log struct {
	n     int64   // maximum number of units within the window
	now   int64   // current time, in µs
	since int64   // start of the window, in µs
	taken []taken // oldest first; may begin with calls outside the window
}

type taken struct{ us, units int64 }

func openLog(r Rate, was state, at moment) state {
	l := log{n: r.N, now: at.us, since: at.us - 1000*r.MS()}
	old, _ := was.(log)
	l.taken = old.taken
	// The state is impossible (see moment) if a unit that has to leave for the call lies in the future.
	stay := r.N - at.room
	younger := int64(0)
	for _, t := range slices.Backward(l.taken) {
		if younger += t.units; younger > stay {
			if t.us > l.now {
				l.taken = nil
				return l.take(stay)
			}
			break
		}
	}
	return l
}

func sum(list []taken) (units int64) {
	for _, t := range list {
		units += t.units
	}
	return units
}

// gone returns how many calls have left the window.
func (l log) gone() int {
	at := slices.IndexFunc(l.taken, func(t taken) bool { return t.us > l.since })
	if at < 0 {
		return len(l.taken)
	}
	return at
}

func (l log) left() int64 { return max(0, l.n-sum(l.taken[l.gone():])) }

func (l log) owes() int64 { return max(0, mostOwed(l.n)-sum(l.taken[l.gone():])) }

// take adds a call to the log. Calls that lie in the future become part of it. take drops the calls
// outside the window if there are calls in the future, if they are more than half of the log, or if
// the log has at least 2n calls.
func (l log) take(c int64) state {
	if c == 0 {
		return l
	}
	future := slices.IndexFunc(l.taken, func(t taken) bool { return t.us > l.now })
	if gone := l.gone(); future >= 0 || 2*gone > len(l.taken) || int64(len(l.taken)) >= 2*l.n {
		later := int64(0)
		if future >= 0 {
			later = sum(l.taken[future:])
			l.taken = l.taken[:future]
		}
		l.taken, c = l.taken[gone:], c+later
	}
	l.taken = append(slices.Clone(l.taken), taken{l.now, c})
	return l
}

func (l log) refund(c int64) state {
	l.taken = slices.Clone(l.taken[l.gone():])
	for c > 0 && len(l.taken) > 0 {
		last := &l.taken[len(l.taken)-1]
		back := min(c, last.units)
		last.units -= back
		c -= back
		if last.units == 0 {
			l.taken = l.taken[:len(l.taken)-1]
		}
	}
	return l
}

func (l log) counted() int64 { return sum(l.taken) }
