package model

// decide returns take, peek and refund.
func (m *Model) decide(c Call) (any, string) {
	if e := m.keys[c.OnceKey]; c.OnceMS > 0 && e != nil {
		if e.kind != keptReply {
			return nil, "BADSTATE"
		}
		return e.reply, ""
	}
	if e := m.keys[c.Usage]; e != nil && e.kind != usageRecord {
		return nil, "BADSTATE"
	}
	holdings := make([]*holding, len(c.Keys))
	for i, key := range c.Keys {
		cost := c.cost(i)
		if c.Upto {
			cost = min(cost, leastCapacity(c.Limits))
		}
		h, reason := m.open(key, c.Limits[i], cost, c.Verb == Refund)
		if reason != "" {
			return nil, reason
		}
		holdings[i] = h
	}
	if c.Verb == Refund {
		return m.refund(holdings), ""
	}
	if c.Upto && holdings[0].cost > 0 {
		fit(holdings)
	}
	reply := m.take(holdings, c.Verb == Take)
	allowed, cost := reply[0] == int64(1), c.cost(0)
	if c.Upto {
		cost = 0
		if allowed {
			cost = holdings[0].cost
		}
		reply[0] = cost
	}
	if c.Verb == Take {
		m.keep(c, allowed, reply)
		if c.Usage != "" {
			m.track(c.Usage, allowed, cost)
		}
	}
	return reply, ""
}

func leastCapacity(limits []Limit) int64 {
	least := MaxCount
	for _, l := range limits {
		for _, r := range l.Rates {
			least = min(least, r.Capacity())
		}
	}
	return least
}

// fit lowers the cost to the units that fit everywhere, and to 1 if not even that fits (UPTO).
func fit(holdings []*holding) {
	units := holdings[0].cost
	for _, h := range holdings {
		for _, s := range h.rates {
			if h.blocked > 0 {
				units = 0
			} else {
				units = min(units, s.remaining())
			}
		}
	}
	for _, h := range holdings {
		h.cost = max(1, units)
	}
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
		h.look(all[i])
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
		h.look(verdicts)
		flat = append(flat, verdicts...)
	}
	return sum(flat, 0)
}
