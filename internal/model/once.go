package model

// keep keeps the reply of a call with ONCE, if it was allowed and took something.
func (m *Model) keep(c Call, allowed bool, reply []any) {
	took := false
	for i := range c.Keys {
		took = took || c.cost(i) > 0
	}
	if c.OnceMS == 0 || !took || !allowed {
		return
	}
	m.keys[c.OnceKey] = &entry{kind: keptReply, until: m.now.ms() + c.OnceMS, reply: reply}
}
