package model

import "slices"

// borrows reports whether the call has a guarantee and a pool.
func (c Call) borrows() bool { return c.Borrow || c.pooled() }

// pooled reports whether the call has a policy of a guarantee and a pool.
func (c Call) pooled() bool {
	return slices.ContainsFunc(c.Limits, func(p Policy) bool { return p.Borrow })
}

// misborrowed reports whether the library rejects the call's BORROW or PAID, or a word beside them.
func (c Call) misborrowed() bool {
	if !c.borrows() {
		return c.Paid != 0
	}
	if c.pooled() { // BORROW beside it has no percentage of its own
		if len(c.Limits) != 1 || c.Floor != nil && !(c.Borrow && *c.Floor == 0) {
			return true
		}
	} else if len(c.Limits) != 2 || slices.ContainsFunc(c.Limits, func(p Policy) bool { return p.Name != "" || len(p.Limits[0].Rates) > 1 }) {
		return true
	}
	return len(c.Costs) > 1 || c.Upto || c.Force || c.Each || c.Class != "" || (c.Paid == 0) == (c.Verb == Refund) || c.Paid > 2
}

// loan is a decision about a guarantee and a pool. Each has one rate, or those of its override.
type loan struct {
	m              *Model
	keys           []string
	guarantee      []*standing
	pool           []*standing
	cost           int64
	guaranteed     int64 // units that are left of the guarantee
	spare          int64 // units that the pool can be charged, into debt if need be
	lent           int64 // units that are left of the pool for borrowers
	blocked, first int64 // the longest block in ms, or 0, and the first blocked key
}

// all returns the standings of both keys.
func (l *loan) all() []*standing { return slices.Concat(l.guarantee, l.pool) }

// lend returns the loan of a call. The keys have the states that the call finds.
func (m *Model) lend(c Call) (*loan, string) {
	all, _, reason := m.standings(c)
	if reason != "" {
		return nil, reason
	}
	l := &loan{m: m, keys: c.Keys, cost: c.cost(0)}
	percent := int64(0)
	for _, p := range c.Limits {
		percent += p.Floor
	}
	if c.Floor != nil && !c.pooled() {
		percent = *c.Floor
	}
	for _, s := range all {
		if s.index == 1 {
			l.guarantee = append(l.guarantee, s)
		} else {
			s.kept = kept(s.rate().Capacity(), percent)
			l.pool = append(l.pool, s)
		}
		if s.blocked > 0 && l.first == 0 {
			l.first = int64(s.index)
		}
		l.blocked = max(l.blocked, s.blocked)
	}
	cost := l.cost
	if c.Verb == Refund {
		cost = 0
	}
	for _, s := range all {
		s.state, s.single = nothing{}, nothing{}
	}
	l.find(max(1, cost), func(s *standing, found state) { s.state = found })
	l.find(1, func(s *standing, found state) { s.single = found })
	if c.Verb == Refund {
		for _, s := range all {
			s.state = m.find(s, c.Keys[s.index-1], 1)
		}
	}
	l.measure(func(s *standing) state { return s.state })
	return l, ""
}

// find finds the states for a call with a cost of at least 1. The pool has to have room for the cost if
// the guarantee has it, and otherwise for the cost and the part that borrowers leave.
func (l *loan) find(cost int64, set func(*standing, state)) {
	has := true
	for _, s := range l.guarantee {
		room := cost
		if room > s.rate().Capacity() {
			room = 1
		}
		found := l.m.find(s, l.keys[0], room)
		set(s, found)
		has = has && s.blocked == 0 && found.left() >= cost
	}
	for _, s := range l.pool {
		room := s.room(cost)
		if has {
			room = l.indebted(s, cost)
		}
		set(s, l.m.find(s, l.keys[1], room))
	}
}

// indebted returns for how many units a rate of the pool is judged in a call that its guarantee allows.
// With the whole capacity left, FORCE could charge all that it ever can.
func (l *loan) indebted(s *standing, cost int64) int64 {
	return max(1, min(cost, s.rate().Capacity()))
}

// measure sets the numbers of units of l from the states that of returns.
func (l *loan) measure(of func(*standing) state) {
	l.guaranteed, l.spare, l.lent = MaxCount, MaxCount, MaxCount
	for _, s := range l.guarantee {
		l.guaranteed = min(l.guaranteed, of(s).left())
	}
	for _, s := range l.pool {
		l.spare = min(l.spare, of(s).owes())
		l.lent = min(l.lent, max(0, of(s).left()-s.kept))
	}
}

// borrow decides a take or a peek. See decide.
func (m *Model) borrow(c Call) (fields []any, all []*standing, passes bool, reason string) {
	l, reason := m.lend(c)
	if reason != "" {
		return nil, nil, false, reason
	}
	all = l.all()
	index, wait := int64(1), int64(0)
	switch {
	case l.blocked > 0:
		index, wait = l.first, l.blocked
		if l.cost > max(min(full(l.guarantee), l.full()), full(l.pool)) {
			wait = -1
		}
		for _, s := range all {
			s.denies = s.blocked > 0
		}
	case l.cost == 0:
		passes = true
	case l.cost <= l.guaranteed && l.cost <= l.spare:
		passes = true
		l.charge(all)
	case l.cost <= l.guaranteed:
		index, wait = 2, l.untilSpare()
		for _, s := range l.pool {
			s.denies = true
		}
	case l.cost <= l.lent:
		index, passes = 2, true
		l.charge(l.pool)
	default:
		wait = shorter(later(l.untilLeft(l.guarantee), l.untilSpare()), l.untilLeft(l.pool))
		for _, s := range all {
			s.denies = true
		}
	}
	for _, s := range all {
		if !s.changed {
			s.state = s.single
		}
		if passes {
			wait = max(wait, s.delay)
		}
	}
	return l.fields(passes, wait, index), all, passes, ""
}

// charge charges the call's cost to the standings of some keys.
func (l *loan) charge(to []*standing) {
	for _, s := range to {
		if s.limit.algorithm().Delays {
			s.delay = s.reset(l.m.now)
		}
		s.moved = l.cost
		s.state, s.changed = s.state.take(l.cost), true
	}
}

// giveBack is a refund.
func (m *Model) giveBack(c Call) (any, string) {
	l, reason := m.lend(c)
	if reason != "" {
		return nil, reason
	}
	all, index := l.all(), c.Paid
	for _, s := range all {
		if l.cost > 0 && l.blocked == 0 && int64(s.index) >= c.Paid {
			s.state, s.changed, s.moved = s.state.refund(l.cost), true, -l.cost
		} else {
			s.state = s.single
		}
		s.denies = s.blocked > 0
	}
	if l.blocked > 0 {
		index = l.first
	}
	m.note(c, all)
	fields := l.fields(l.blocked == 0, l.blocked, index)
	if m.save(c, all) && c.OnceMS > 0 {
		m.put(c.OnceKey, reply(fields), m.ms()+c.OnceMS)
	}
	return fields, ""
}

// fields returns the reply.
func (l *loan) fields(passes bool, wait, index int64) []any {
	l.measure(func(s *standing) state { return s.state })
	capacity, reset, allowed := MaxCount, int64(0), int64(0)
	for _, s := range l.all() {
		if int64(s.index) == index {
			capacity = min(capacity, s.rate().Capacity())
		}
		reset = max(reset, s.reset(l.m.now))
	}
	remaining := max(min(l.guaranteed, l.spare), l.lent)
	if l.blocked > 0 {
		remaining = 0
	}
	if passes {
		allowed = 1
	}
	return []any{allowed, capacity, remaining, wait, reset, index}
}

// full returns how many units a call could take from full keys.
func full(of []*standing) int64 {
	most := MaxCount
	for _, s := range of {
		most = min(most, s.rate().Capacity()-s.kept)
	}
	return most
}

// owed returns how many units FORCE could take from the full rate of s.
func (s *standing) owed(at moment) int64 {
	if s.limit.never() {
		return 0
	}
	return s.limit.algorithm().Open(s.rate(), nil, at).owes()
}

// full returns the highest cost that a guaranteed call could charge to a pool from which nothing is taken.
func (l *loan) full() int64 {
	most := MaxCount
	for _, s := range l.pool {
		most = min(most, s.owed(moment{us: l.m.now, several: len(s.limit.Rates) > 1, room: 1}))
	}
	return most
}

// untilLeft returns the wait in ms until the cost can be taken, or -1 if it never can.
func (l *loan) untilLeft(of []*standing) (wait int64) {
	for _, s := range of {
		units := s.needs(l.cost)
		switch {
		case units > s.rate().Capacity():
			return -1
		case s.state.left() >= units:
		case s.lapses > 0:
			wait = max(wait, s.lapses)
		default:
			wait = max(wait, s.after(l.m.now, units))
		}
	}
	return wait
}

// untilSpare returns the wait in ms until the pool can be charged the cost of a guaranteed call, or -1
// if it never can.
func (l *loan) untilSpare() (wait int64) {
	if l.cost > l.full() {
		return -1
	}
	for _, s := range l.pool {
		as := *s
		as.state = l.m.find(s, l.keys[1], l.indebted(s, l.cost))
		switch {
		case as.state.owes() >= l.cost:
		case as.lapses > 0:
			wait = max(wait, as.lapses)
		default:
			wait = max(wait, as.first(l.m.now, func(later state) bool { return later.owes() >= l.cost }))
		}
	}
	return wait
}

// later returns the longer of two waits, and shorter the shorter one. -1 is longer than all others.
func later(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

func shorter(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
