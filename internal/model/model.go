package model

import "fmt"

// A Model is what the keys of a server hold, by the contract.
type Model struct {
	now  instant
	keys map[string]*entry
}

// New returns a model without keys whose clock shows so many microseconds since the epoch.
func New(us int64) *Model { return &Model{instant(us), map[string]*entry{}} }

// SetTime moves the clock and removes the keys whose time is over, as a server does whose keys are looked at after
// each move.
func (m *Model) SetTime(us int64) {
	m.now = instant(us)
	for name, e := range m.keys {
		if e.expires() < m.now.ms() {
			delete(m.keys, name)
		}
	}
}

// Expiry is when the key expires, in milliseconds since the epoch; ok is false if there is no such key.
func (m *Model) Expiry(key string) (ms int64, ok bool) {
	e := m.keys[key]
	if e == nil {
		return 0, false
	}
	return e.expires(), true
}

// Do returns a call: int64 or []any of int64, string and []any, as a client reads it; or the reason of a RATELIMIT error.
func (m *Model) Do(c Call) (reply any, reason string) {
	switch c.Verb {
	case Take, Peek, Refund:
		return m.decide(c)
	case Reset:
		return m.reset(c.Keys), ""
	case Block:
		return m.block(c.Keys, c.BlockMS)
	case Unblock:
		return m.unblock(c.Keys), ""
	case Acquire:
		return m.acquire(c.Keys[0], c.Limits[0].Rates[0], c.Lease)
	case Renew:
		return m.renew(c.Keys[0], c.Limits[0].Rates[0], c.Lease)
	case Release:
		return m.release(c.Keys[0], c.Lease)
	case Usage:
		return m.usage(c.Keys[0])
	}
	panic(fmt.Sprintf("no such verb: %q", c.Verb))
}

// reset deletes, and counts the keys that were there.
func (m *Model) reset(keys []string) any {
	held := int64(0)
	for _, key := range keys {
		if m.keys[key] != nil {
			held++
			delete(m.keys, key)
		}
	}
	return held
}
