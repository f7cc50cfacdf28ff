package model

// decide answers take, peek and refund.
func (m *Model) decide(c Call) (any, string) {
	if e := m.keys[c.Usage]; e != nil && e.kind != usageRecord {
		return nil, "BADSTATE"
	}
	if e := m.keys[c.OnceKey]; c.OnceMS > 0 && e != nil {
		if e.kind != keptReply {
			return nil, "BADSTATE"
		}
		return e.reply, ""
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
