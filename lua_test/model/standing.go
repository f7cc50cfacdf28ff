package model

import (
	"fmt"
	"math"
	"sort"
)

// A standing is one rate of one key in a decision.
type standing struct {
	index   int // of the key, from 1
	group   int // 0: the limits that are enforced; else the shadow policy's place in the call
	limit   Limit
	place   int   // of the rate in the limit
	cost    int64 // of this call
	state   state
	blocked int64 // for so many ms
	lapses  int64 // the ms until a state expires that another algorithm has left; 0: there is none
	delay   int64 // in ms, what an allowed call is told to wait
	denies  bool
	changed bool
}

func (s *standing) rate() Rate { return s.limit.Rates[s.place] }

// at is how the rate would stand at another time if nothing else were taken.
func (s *standing) at(us int64) state {
	return s.limit.algorithm().Open(s.rate(), s.state, moment{us: us, several: len(s.limit.Rates) > 1, room: 1})
}

// left is how many units could be taken now.
func (s *standing) left() int64 {
	if s.blocked > 0 {
		return 0
	}
	return s.state.left()
}

// after is how many whole ms after a time so many units are left.
func (s *standing) after(us, units int64) int64 {
	enough := func(ms int) bool { return s.at(us+int64(ms)*1000).left() >= units }
	most := 1
	for !enough(most) {
		if int64(most) > 2*MaxPeriodMS {
			panic(fmt.Sprintf("the model of %s: %d units, which are within Rate.Capacity, are never left; %d are", s.limit, units, s.at(us+int64(most)*1000).left()))
		}
		most *= 2
	}
	return int64(sort.Search(most, enough))
}

// wait is retry_after_ms of a call that this rate denies.
func (s *standing) wait(us int64) int64 {
	switch {
	case s.cost > s.rate().Capacity():
		return -1
	case s.blocked > 0:
		return s.blocked
	case s.lapses > 0:
		return s.lapses
	}
	return s.after(us, s.cost)
}

func (s *standing) reset(us int64) int64 {
	switch {
	case s.blocked > 0:
		return s.blocked
	case s.denies && s.lapses > 0:
		return s.lapses
	}
	return s.after(us, s.rate().Capacity())
}

// open finds out how the keys of a call stand. groups are the names of its shadow policies.
func (m *Model) open(c Call) (all []*standing, groups []string, reason string) {
	index := 0
	for _, p := range c.Limits {
		group := 0
		if p.Shadow {
			groups = append(groups, p.Name)
			group = len(groups)
		}
		for _, l := range p.Limits {
			index++
			key := c.Keys[index-1]
			held := m.held(key)
			if _, ok := held.(limiter); !ok && held != nil {
				return nil, nil, "BADSTATE"
			}
			for place := range l.Rates {
				s := &standing{index: index, group: group, limit: l, place: place, cost: c.cost(index - 1), blocked: m.blocked(key)}
				all = append(all, s)
			}
		}
	}
	for _, s := range all {
		if c.Upto {
			for _, other := range in(all, s.group) {
				s.cost = min(s.cost, other.rate().Capacity())
			}
		}
		room := max(1, s.cost)
		if c.Verb == Refund || room > s.rate().Capacity() {
			room = 1
		}
		m.find(s, c.Keys[s.index-1], room)
	}
	return all, groups, ""
}

// find opens the state of a rate; room is what it leaves if it cannot be.
func (m *Model) find(s *standing, key string, room int64) {
	at := moment{us: m.now, several: len(s.limit.Rates) > 1, room: room}
	old, _ := m.held(key).(limiter)
	if old.algorithm == s.limit.keeper() {
		var was state
		if s.place < len(old.rates) {
			was = old.rates[s.place]
		}
		s.state = s.limit.algorithm().Open(s.rate(), was, at)
		return
	}
	s.state = s.limit.algorithm().Open(s.rate(), nil, at)
	if old.algorithm == nil || m.keys[key].until == m.ms() {
		return
	}
	s.lapses = m.keys[key].until - m.ms()
	s.state = s.state.take(s.carried(old, room))
}

// carried is how many units are spent of this rate by what another algorithm has left in the key. Products beyond 2^53 are
// rounded as doubles are, by less than a unit.
func (s *standing) carried(old limiter, room int64) int64 {
	r := s.rate()
	b, n, period, left := r.Capacity(), float64(r.N), float64(r.MS()), float64(s.lapses)
	if left*n > float64(b)*period {
		b -= room
	}
	for place, kept := range old.rates {
		if of, ok := kept.(counts); ok && place == 0 {
			return min(b, of.counted())
		} else if ok {
			return 0 // the first rate is full
		}
	}
	return int64(min(float64(b), math.Ceil(left*n/period)))
}
