package model

// decide answers take, peek and refund.
func (m *Model) decide(c Call) (any, string) {
	if c.OnceMS > 0 {
		switch e := m.keys[c.OnceKey]; e.holds(m.now) {
		case keptReply:
			return e.reply, ""
		case nothing:
		default:
			return nil, "BADSTATE"
		}
	}
	if held := m.keys[c.Usage].holds(m.now); held != nothing && held != usageRecord {
		return nil, "BADSTATE"
	}
	holdings := make([]*holding, len(c.Keys))
	for i, key := range c.Keys {
		h, reason := m.open(key, c.Limits[i], c.cost(i), c.Verb == Refund)
		if reason != "" {
			return nil, reason
		}
		holdings[i] = h
	}
	if c.Verb == Refund {
		return m.refund(holdings), ""
	}
	reply := m.take(holdings, c.Verb == Take)
	if c.Verb == Take {
		m.keep(c, reply)
		if c.Usage != "" {
			m.track(c.Usage, reply[0] == int64(1), c.cost(0))
		}
	}
	return reply, ""
}

// take charges all holdings or none, and writes them if it is to.
func (m *Model) take(holdings []*holding, write bool) []any {
	var all [][]verdict
	allowed, wait := true, int64(0)
	for i, h := range holdings {
		verdicts := h.judge(i + 1)
		for _, v := range verdicts {
			allowed = allowed && v.allowed
		}
		all = append(all, verdicts)
	}
	var flat []verdict
	for i, h := range holdings {
		if allowed && h.cost > 0 {
			for _, s := range h.rates {
				wait = max(wait, s.delay())
				s.charge(h.cost)
			}
			if write {
				m.save(h)
			}
		}
		h.look(all[i], !allowed)
		flat = append(flat, all[i]...)
	}
	return sum(flat, wait)
}

// refund gives back to all holdings or, if one is blocked, to none.
func (m *Model) refund(holdings []*holding) []any {
	blocked := false
	for _, h := range holdings {
		blocked = blocked || h.blocked > 0
	}
	var flat []verdict
	for i, h := range holdings {
		if !blocked && h.cost > 0 {
			for _, s := range h.rates {
				s.refund(h.cost)
			}
			if m.keys[h.key] != nil {
				m.save(h)
			}
		}
		verdicts := make([]verdict, len(h.rates))
		for j, r := range h.limit.Rates {
			verdicts[j] = verdict{index: i + 1, capacity: r.Capacity(), allowed: h.blocked == 0, wait: h.blocked}
			if h.blocked > 0 {
				verdicts[j].capacity = h.limit.Rates[0].Capacity()
			}
		}
		h.look(verdicts, false)
		flat = append(flat, verdicts...)
	}
	return sum(flat, 0)
}
