package model

import "maps"

// note sets m.Moved. A key with several rates counts once, with its first rate.
func (m *Model) note(c Call, all []*standing) {
	for _, s := range all {
		if s.place == 0 && s.moved != 0 {
			m.Moved[c.Keys[s.index-1]] = s.moved
		}
	}
}

// Clone returns a copy of m. Calls of the copy do not change m.
func (m *Model) Clone() *Model {
	clone := &Model{now: m.now, keys: maps.Clone(m.keys), Calls: maps.Clone(m.Calls), ClassCalls: maps.Clone(m.ClassCalls), BorrowCalls: maps.Clone(m.BorrowCalls)}
	for key, e := range clone.keys {
		if u, ok := e.holds.(*usage); ok {
			copied := *u
			copied.minutes = maps.Clone(u.minutes)
			e.holds = &copied
			clone.keys[key] = e
		}
	}
	return clone
}

// Leases returns how long each lease of key is still held, in ms, by ID.
func (m *Model) Leases(key string) map[string]int64 {
	held := map[string]int64{}
	all, _ := m.content(key).(leases)
	for id, one := range all {
		if one.lapses > m.ms() {
			held[id] = one.lapses - m.ms()
		}
	}
	return held
}

// Blocked returns how many ms remain until the block of key ends, or 0 if key is not blocked.
func (m *Model) Blocked(key string) int64 { return m.blocked(key) }

// Remembered reports whether GROW remembers a block of key.
func (m *Model) Remembered(key string) bool { return m.keys[key].remembers(m.ms()) }

// Overridden reports whether key has an override.
func (m *Model) Overridden(key string) bool { return m.keys[key].override.ends > m.ms() }

// Queued reports whether key has an override by a limit whose calls wait for their turn, leaky_bucket.
func (m *Model) Queued(key string) bool {
	return m.Overridden(key) && m.keys[key].override.limit.algorithm().Delays
}

// Stored reports whether key holds a reply that ONCE repeats.
func (m *Model) Stored(key string) bool {
	_, ok := m.keys[key].holds.(reply)
	return ok
}
