package model

// override is a limit that applies to a key instead of the limits in calls.
type override struct {
	limit Limit
	ends  int64 // in ms since the epoch; 0 without an override. An override that has ended is kept until the key is written again
}

// mostOverridden is the maximum number of rates in an override.
const mostOverridden = 5

// limitOf returns the limit that applies to key: its override, or else the limit in the call.
func (m *Model) limitOf(key string, l Limit) Limit {
	if o := m.keys[key].override; o.ends > m.ms() {
		return o.limit
	}
	return l
}

// isFor reports whether a key is for leases or for a limiter's state, as determined by its content
// or its override. Both results are false if the key is empty or only blocked. Here, unlike in
// limitOf, an override counts until the end of the ms in which it ends.
func (m *Model) isFor(key string) (forLeases, forState bool) {
	switch m.content(key).(type) {
	case leases:
		forLeases = true
	case limiter:
		forState = true
	}
	if m.keys[key].remembers(m.ms()) {
		forState = true
	}
	if o := m.keys[key].override; o.ends > 0 && o.ends >= m.ms() {
		forLeases, forState = o.limit.algorithm().Leases, !o.limit.algorithm().Leases
	}
	return forLeases, forState
}

// isInUse reports whether a key holds a stored reply or a usage record.
func (m *Model) isInUse(key string) bool {
	switch m.content(key).(type) {
	case reply, *usage:
		return true
	}
	return false
}

func (m *Model) overrideKeys(c Call) (any, string) {
	l := c.Limits[0].Limits[0]
	if c.Limits[0].Name != "" || l.never() || len(l.Rates) > mostOverridden {
		return nil, "BADLIMIT"
	}
	for _, key := range c.Keys {
		forLeases, forState := m.isFor(key)
		if m.isInUse(key) || forLeases && !l.algorithm().Leases || forState && l.algorithm().Leases {
			return nil, "BADSTATE"
		}
	}
	for _, key := range c.Keys {
		e := m.keys[key]
		if _, isState := e.holds.(limiter); isState == l.algorithm().Leases {
			e.holds, e.until = nil, 0 // drop expired content of the other kind: leases or states
		}
		if e.length > 0 && !e.remembers(m.ms()) {
			e.lift()
		}
		e.override = override{l, m.ms() + c.SpanMS}
		m.keys[key] = e
	}
	return int64(len(c.Keys)), ""
}

func (m *Model) endOverrides(keys []string) any {
	removed := int64(0)
	for _, key := range keys {
		if e := m.keys[key]; e.override.ends > m.ms() {
			removed++
			if e.length > 0 && !e.remembers(m.ms()) {
				e.lift()
			}
			e.override = override{}
			m.store(key, e)
		}
	}
	return removed
}
