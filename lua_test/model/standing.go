package model

import (
	"fmt"
	"math"
	"sort"
)

// standing describes one rate of one key during a decision.
type standing struct {
	index   int // the position of the key, from 1
	group   int // 0 for the enforced limits; otherwise the number of the shadow policy in the call, from 1
	policy  int // the position in the call of the limit or policy that the rate belongs to
	limit   Limit
	place   int   // the position of the rate in the limit
	cost    int64 // the call's cost for this key
	kept    int64 // units that the call leaves to others, by FLOOR or its class
	forced  bool  // whether the call has FORCE
	state   state
	single  state // the state that the same call with cost 1 finds, which the reply describes if nothing is charged
	blocked int64 // ms until the block ends; 0 if there is none
	lapses  int64 // ms until the key's state expires, if another algorithm wrote it; otherwise 0
	delay   int64 // ms that an allowed call must wait
	denies  bool
	changed bool
	moved   int64 // units that this call took, or below 0 the units that it gave back
}

// nothing is the state of a rate with a count of 0.
type nothing struct{}

func (nothing) left() int64          { return 0 }
func (nothing) owes() int64          { return 0 }
func (n nothing) take(int64) state   { return n }
func (n nothing) refund(int64) state { return n }

func (s *standing) rate() Rate { return s.limit.Rates[s.place] }

// at returns the rate's state at a given time, in µs since the epoch, if nothing is taken until
// then.
func (s *standing) at(us int64) state {
	return s.limit.algorithm().Open(s.rate(), s.state, moment{us: us, several: len(s.limit.Rates) > 1, room: 1})
}

func (s *standing) left() int64 {
	if s.blocked > 0 {
		return 0
	}
	return s.state.left()
}

// free returns how many units the call may take.
func (s *standing) free() int64 { return max(0, s.left()-s.kept) }

// needs returns how many units must be left for a cost.
func (s *standing) needs(cost int64) int64 {
	if cost == 0 {
		return 0
	}
	return cost + s.kept
}

// room returns the number of units that the call needs according to SEMANTICS.md, section Room for
// this call.
func (s *standing) room(cost int64) int64 {
	for _, units := range []int64{cost + s.kept, 1 + s.kept} {
		if units > s.kept && units <= s.rate().Capacity() {
			return units
		}
	}
	return 1
}

// after returns the shortest wait in ms, starting at us, after which at least the given number of
// units is left.
func (s *standing) after(us, units int64) int64 {
	return s.first(us, func(later state) bool { return later.left() >= units })
}

// first returns the shortest wait in ms, starting at us, after which the rate's state is enough.
func (s *standing) first(us int64, enough func(state) bool) int64 {
	is := func(ms int) bool { return enough(s.at(us + int64(ms)*1000)) }
	most := 1
	for !is(most) {
		if int64(most) > 4*MaxPeriodMS {
			panic(fmt.Sprintf("the model of %s: a number of units within Rate.Capacity is never left; %d are", s.limit, s.at(us+int64(most)*1000).left()))
		}
		most *= 2
	}
	return int64(sort.Search(most, is))
}

// wait returns the retry_after_ms of a call that this rate denies.
func (s *standing) wait(us int64) int64 {
	switch {
	case s.needs(s.cost) > s.rate().Capacity() && !s.forced:
		return -1
	case s.blocked > 0:
		return s.blocked
	case s.lapses > 0:
		return s.lapses
	}
	return s.after(us, s.needs(s.cost))
}

// debtor returns the time in ms until the rate has a unit available, or -1 if it never will. FORCE
// may have put the rate into debt.
func (s *standing) debtor(us int64) int64 {
	switch {
	case s.limit.never():
		return -1
	case s.left() > 0:
		return 0
	case s.lapses > 0 && !s.changed:
		return s.lapses
	}
	return s.after(us, 1)
}

func (s *standing) reset(us int64) int64 {
	switch {
	case s.limit.never():
		return 0
	case s.blocked > 0:
		return s.blocked
	case s.denies && s.lapses > 0:
		return s.lapses
	}
	return s.after(us, s.rate().Capacity())
}

// standings returns a standing without a state for each rate of a call's keys, and the number of the
// call's shadow policies.
func (m *Model) standings(c Call) (all []*standing, groups int, reason string) {
	index := 0
	for i, p := range c.Limits {
		group := 0
		if p.Shadow {
			groups++
			group = groups
		}
		for _, l := range p.Limits {
			index++
			key := c.Keys[index-1]
			if forLeases, _ := m.isFor(key); !forLeases {
				l = m.limitOf(key, l)
			}
			if l.never() { // denies every call, whatever the key contains
				all = append(all, &standing{index: index, group: group, policy: i, limit: l, cost: c.cost(index - 1), forced: c.Force})
				continue // it keeps nothing, because its capacity is 0
			}
			if forLeases, _ := m.isFor(key); forLeases || m.isInUse(key) {
				return nil, 0, "BADSTATE"
			}
			for place := range l.Rates {
				s := &standing{index: index, group: group, policy: i, limit: l, place: place, cost: c.cost(index - 1), forced: c.Force, blocked: m.blocked(key)}
				s.kept = kept(s.rate().Capacity(), c.percent(p))
				all = append(all, s)
			}
		}
	}
	return all, groups, ""
}

// open is like standings, but the standings have the states that the call finds.
func (m *Model) open(c Call) (all []*standing, groups int, reason string) {
	if all, groups, reason = m.standings(c); reason != "" {
		return nil, 0, reason
	}
	for _, s := range all {
		if c.Upto {
			for _, other := range in(all, s.group) {
				s.cost = min(s.cost, other.rate().Capacity()-other.kept)
			}
		}
		room := s.room(s.cost)
		if c.Verb == Refund {
			room = 1
		}
		s.state, s.single = m.find(s, c.Keys[s.index-1], room), m.find(s, c.Keys[s.index-1], s.room(1))
	}
	return all, groups, ""
}

// find returns the state that key holds for the rate of s. If that state is impossible for a call that
// needs room units (see the type moment), find replaces it with a state that leaves room units available.
// If another algorithm wrote the state, find sets s.lapses.
func (m *Model) find(s *standing, key string, room int64) state {
	if s.limit.never() {
		return nothing{}
	}
	at := moment{us: m.now, several: len(s.limit.Rates) > 1, room: room}
	old, _ := m.content(key).(limiter)
	if old.algorithm == s.limit.keeper() {
		var was state
		if s.place < len(old.rates) {
			was = old.rates[s.place]
		}
		return s.limit.algorithm().Open(s.rate(), was, at)
	}
	full := s.limit.algorithm().Open(s.rate(), nil, at)
	if old.algorithm == nil || m.keys[key].until == m.ms() {
		return full
	}
	s.lapses = m.keys[key].until - m.ms()
	return full.take(s.carried(old, room))
}

// carried returns how many units of this rate count as spent because the key holds a state of
// another algorithm. Like the library, it computes with doubles. Products beyond 2^53 are rounded,
// which changes the result by less than a unit.
func (s *standing) carried(old limiter, room int64) int64 {
	r := s.rate()
	b, n, period, left := r.Capacity(), float64(r.N), float64(r.MS()), float64(s.lapses)
	if left*n > float64(b)*period {
		b -= room
	}
	for place, kept := range old.rates {
		switch of := kept.(type) {
		case counts:
			if place > 0 {
				return 0 // there is no state for the first rate, so it is full
			}
			return min(b, of.counted())
		case tokens:
			if place > 0 {
				return 0
			}
			b = min(b, max(0, r.Capacity()-of.left()))
			return int64(min(float64(b), math.Ceil(left*n/period)))
		}
	}
	return int64(min(float64(b), math.Ceil(left*n/period)))
}
