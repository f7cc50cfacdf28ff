package model

// block denies keys for a time, and leaves what they hold.
func (m *Model) block(keys []string, ms int64) (any, string) {
	for _, key := range keys {
		if held := m.keys[key].holds(m.now); held == keptReply || held == usageRecord {
			return nil, "BADSTATE"
		}
	}
	for _, key := range keys {
		e := m.keys[key]
		if e == nil {
			e = &entry{}
			m.keys[key] = e
		}
		e.blocked = m.now.ms() + ms
	}
	return int64(len(keys)), ""
}

// unblock lifts blocks, and counts the ones that were in force.
func (m *Model) unblock(keys []string) any {
	lifted := int64(0)
	for _, key := range keys {
		e := m.keys[key]
		if e.blockedFor(m.now) == 0 {
			continue
		}
		lifted++
		e.blocked = 0
		if e.expires() <= m.now.ms() {
			delete(m.keys, key)
		}
	}
	return lifted
}
