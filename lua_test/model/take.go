package model

import "slices"

// in returns the standings that belong to a group.
func in(all []*standing, group int) []*standing {
	return slices.DeleteFunc(slices.Clone(all), func(s *standing) bool { return s.group != group })
}

// fit implements UPTO. It returns the largest number of units, up to c, that exceeds neither the
// cost nor the units that the call may take from any rate in the group. It sets the cost of each rate to
// that number or, if the number is 0, to 1.
func fit(group []*standing, c int64) int64 {
	for _, s := range group {
		c = min(c, s.cost, s.free())
	}
	for _, s := range group {
		s.cost = max(1, c)
	}
	return c
}

// allow sets the denies field of each rate in the group, and reports whether none of them denies. A
// rate denies if its key is blocked, or if its cost does not fit and is not forced.
func allow(group []*standing) bool {
	for _, s := range group {
		s.denies = s.blocked > 0 || s.cost > s.free() && !s.forced
	}
	return !slices.ContainsFunc(group, func(s *standing) bool { return s.denies })
}

func (m *Model) charge(group []*standing) {
	for _, s := range group {
		switch {
		case s.cost == 0:
		case s.forced:
			s.moved = min(s.cost, s.state.owes())
			s.state, s.changed = s.state.take(s.moved), true
		default:
			if s.limit.algorithm().Delays {
				s.delay = s.reset(m.now)
			}
			s.moved = s.cost
			s.state, s.changed = s.state.take(s.cost), true
		}
	}
}

// before returns the reply that an earlier call stored under c.OnceKey, or nil if there is none. If
// that key has other content, it returns the code of the error.
func (m *Model) before(c Call) (any, string) {
	e, ok := m.keys[c.OnceKey]
	if !ok || c.OnceMS == 0 {
		return nil, ""
	}
	if kept, ok := e.holds.(reply); ok {
		return []any(kept), ""
	}
	return nil, "BADSTATE"
}

// take decides a take or a peek. Each shadow policy decides separately, and is charged only if the
// enforced limits allow the call.
func (m *Model) take(c Call) (any, string) {
	if kept, reason := m.before(c); kept != nil || reason != "" {
		return kept, reason
	}
	fields, all, passes, reason := m.decide(c)
	if reason != "" {
		return nil, reason
	}
	if e, ok := m.keys[c.Usage]; ok {
		if _, ok := e.holds.(*usage); !ok {
			return nil, "BADSTATE"
		}
	}
	if c.Verb == Peek {
		return fields, ""
	}
	m.note(c, all)
	for i, p := range c.Limits {
		denies := slices.ContainsFunc(all, func(s *standing) bool { return s.policy == i && s.denies })
		if passes || denies && !p.Shadow {
			m.count(c, p, !denies)
		}
		if p.Borrow {
			m.BorrowCalls[p.Name] = m.BorrowCalls[p.Name].plus(passes, fields[5] == int64(1))
		}
	}
	if m.save(c, all) && c.OnceMS > 0 {
		m.put(c.OnceKey, reply(fields), m.ms()+c.OnceMS)
	}
	units := c.cost(0)
	if c.Upto {
		units = fields[0].(int64)
	}
	if c.Usage != "" {
		m.track(c.Usage, passes, units)
	}
	return fields, ""
}

// decide returns the reply to a take or a peek, the standings after it, and whether the enforced limits
// allow the call. It stores nothing.
func (m *Model) decide(c Call) (fields []any, all []*standing, passes bool, reason string) {
	if c.borrows() {
		return m.borrow(c)
	}
	all, groups, reason := m.open(c)
	if reason != "" {
		return nil, nil, false, reason
	}
	fits := func(group []*standing, units int64) int64 {
		if c.Upto && c.cost(0) > 0 {
			return fit(group, units)
		}
		return c.cost(0)
	}
	enforced := in(all, 0)
	units := fits(enforced, c.cost(0))
	passes = allow(enforced)
	if passes {
		m.charge(enforced)
	}
	for i := range groups {
		group := in(all, i+1)
		fits(group, max(1, units))
		if allow(group) && passes {
			m.charge(group)
		}
	}
	for _, s := range all {
		if !s.changed {
			s.state = s.single
		}
	}
	var would []any
	if groups > 0 {
		same := c
		same.Each, same.Limits = false, slices.Clone(c.Limits)
		for i := range same.Limits {
			same.Limits[i].Shadow = false
		}
		would, _, _, _ = m.decide(same)
	}
	return m.fields(c, all, would), all, passes, ""
}

// refund gives units back to the keys of each group. If a key of a group is blocked, the group gets
// nothing back.
func (m *Model) refund(c Call) (any, string) {
	if kept, reason := m.before(c); kept != nil || reason != "" {
		return kept, reason
	}
	if c.borrows() {
		return m.giveBack(c)
	}
	all, groups, reason := m.open(c)
	if reason != "" {
		return nil, reason
	}
	for i := range groups + 1 {
		group := in(all, i)
		blocked := slices.ContainsFunc(group, func(s *standing) bool { return s.blocked > 0 })
		for _, s := range group {
			if s.cost > 0 && !blocked {
				s.state, s.changed, s.moved = s.state.refund(s.cost), true, -s.cost
			}
			s.cost, s.denies = 0, s.blocked > 0
		}
	}
	m.note(c, all)
	var would []any
	if groups > 0 {
		would = m.sum(c, all)
	}
	fields := m.fields(c, all, would)
	if m.save(c, all) && c.OnceMS > 0 {
		m.put(c.OnceKey, reply(fields), m.ms()+c.OnceMS)
	}
	return fields, ""
}

// fields returns the reply to a call. With a shadow policy, would is the reply if no policy were a
// shadow, and three more elements contain its allowed, retry_after_ms and index. With EACH, the last
// element is a list with the decision of each limit, and with a shadow policy also the units charged or
// given back.
func (m *Model) fields(c Call, all []*standing, would []any) []any {
	fields := m.decision(c, all, would)
	if !c.Each {
		return fields
	}
	var each []any
	for i := range c.Keys {
		ofKey := slices.DeleteFunc(slices.Clone(all), func(s *standing) bool { return s.index != i+1 })
		entry := m.sum(c, ofKey)[:5]
		if would != nil {
			moved := int64(0)
			if s := ofKey[0]; s.changed {
				moved = max(s.cost, -s.moved)
			}
			entry = append(entry, moved)
		}
		each = append(each, entry)
	}
	return append(fields, each)
}

// decision returns the first six elements of a reply, which depend on the enforced limits only. If
// would is not nil, it adds three elements.
func (m *Model) decision(c Call, all []*standing, would []any) []any {
	fields := m.sum(c, all)
	if would == nil {
		return fields
	}
	if enforced := in(all, 0); len(enforced) > 0 {
		fields = m.sum(c, enforced)
	} else if fields[0], fields[3] = int64(1), int64(0); c.Upto {
		fields[0] = c.cost(0)
	}
	return append(fields, would[0], would[3], would[5])
}

// sum combines standings into one decision with the smallest remaining, the longest waits, and the
// binding rate. The binding rate is the first that denies or, if none denies, the first with the
// smallest remaining.
func (m *Model) sum(c Call, all []*standing) []any {
	binding, units, least := all[0], all[0].cost, all[0].free()
	wait, delay, reset := int64(0), int64(0), int64(0)
	for _, s := range all {
		left := s.free()
		if s.denies && !binding.denies || !binding.denies && left < binding.free() {
			binding = s
		}
		if s.denies && wait >= 0 {
			if wait = max(wait, s.wait(m.now)); s.wait(m.now) < 0 {
				wait = -1
			}
		}
		if s.forced && !s.denies {
			s.delay = s.debtor(m.now)
		}
		units, least = min(units, s.cost), min(least, left)
		if delay >= 0 {
			if delay = max(delay, s.delay); s.delay < 0 {
				delay = -1
			}
		}
		reset = max(reset, s.reset(m.now))
	}
	allowed := int64(1)
	switch {
	case binding.denies:
		allowed, delay = 0, wait
	case c.Upto:
		allowed = units
	}
	return []any{allowed, binding.rate().Capacity(), least, delay, reset, int64(binding.index)}
}

// save stores the changed states, and reports whether it stored any. A full rate is not stored.
func (m *Model) save(c Call, all []*standing) (any bool) {
	for i, key := range c.Keys {
		held, until := limiter{}, int64(0)
		for _, s := range all {
			if s.index != i+1 || !s.changed {
				continue
			}
			if any = true; s.limit.never() {
				continue
			}
			var kept state
			if b := s.rate().Capacity(); s.left() < b {
				kept = s.state
				ms := (m.now + 999) / 1000
				until = max(until, ms+s.after(ms*1000, b))
			}
			held.algorithm, held.rates = s.limit.keeper(), append(held.rates, kept)
		}
		if held.algorithm != nil {
			m.put(key, held, until)
		}
	}
	return any
}
