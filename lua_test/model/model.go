// Package model is a second, slow and plain implementation of the wire contract, written from functions/CONTRACT.md with
// exact arithmetic and from nothing else. Tests hold the library against it: what both say is what the contract says.
//
// Each algorithm is one file, which says what the algorithm keeps of a rate, how that changes with time, and how many
// units it has left. The rest follows from what the contract says of a reply: a call is allowed if its cost is left;
// retry_after_ms is the shortest wait after which it would be; and reset_after_ms that after which the capacity is left.
package model

import "fmt"

// A Model is what the keys of a server hold, by the contract. Its clock is set by the caller. It is not safe for
// concurrent use.
type Model struct {
	now  int64 // in microseconds since the epoch
	keys map[string]entry

	// ShadowDenied counts for each shadow policy the calls that it would have denied.
	ShadowDenied map[string]int64
}

// New returns a model without keys whose clock shows so many microseconds since the epoch.
func New(us int64) *Model { return &Model{us, map[string]entry{}, map[string]int64{}} }

func (m *Model) ms() int64 { return m.now / 1000 }

// An entry is what one key holds.
type entry struct {
	blocked int64 // until then, in ms since the epoch. It stays when it has ended, until something else is written
	until   int64 // when what is held expires, in ms since the epoch
	holds   any   // limiter, leases, reply, *usage; nil for a block alone
}

// limiter is the state of a limit.
type limiter struct {
	algorithm *Algorithm
	rates     []state // by their place; nil for one that is full
}

// reply is what ONCE keeps.
type reply []any

func (e entry) expires() int64 { return max(e.blocked, e.until) }

// held is what the key holds now. It is there to the end of the ms in which it expires.
func (m *Model) held(key string) any {
	if e := m.keys[key]; e.until >= m.ms() {
		return e.holds
	}
	return nil
}

// blocked is for how many ms the key is still blocked.
func (m *Model) blocked(key string) int64 { return max(0, m.keys[key].blocked-m.ms()) }

// put stores what a key holds. A block in force stays. What would expire at once is deleted.
func (m *Model) put(key string, holds any, until int64) {
	e := entry{until: until, holds: holds}
	if m.blocked(key) > 0 {
		e.blocked = m.keys[key].blocked
	}
	m.keys[key] = e
	if e.expires() <= m.ms() {
		delete(m.keys, key)
	}
}

// SetTime moves the clock and removes the keys whose time is over, as a server does whose keys are looked at after
// each move.
func (m *Model) SetTime(us int64) {
	m.now = us
	for key, e := range m.keys {
		if e.expires() < m.ms() {
			delete(m.keys, key)
		}
	}
}

// Expiry is when the key expires, in ms since the epoch; ok is false if there is no such key.
func (m *Model) Expiry(key string) (ms int64, ok bool) {
	e, ok := m.keys[key]
	return e.expires(), ok
}

// Do returns the reply to a call, int64 or []any of int64, string and []any as a client reads it; or the reason of a
// RATELIMIT error.
func (m *Model) Do(c Call) (fields any, reason string) {
	if reason := c.excess(); reason != "" {
		return nil, reason
	}
	switch c.Verb {
	case Take, Peek:
		return m.take(c)
	case Refund:
		return m.refund(c)
	case Acquire, Renew, Release:
		return m.lease(c)
	case Usage:
		return m.usage(c.Keys[0])
	case Reset:
		return m.reset(c.Keys), ""
	case Block:
		return m.block(c)
	case Unblock:
		return m.unblock(c.Keys), ""
	}
	panic(fmt.Sprintf("no such verb: %q", c.Verb))
}

// reset deletes, and counts the keys that were there.
func (m *Model) reset(keys []string) any {
	held := int64(0)
	for _, key := range keys {
		if _, ok := m.keys[key]; ok {
			held++
			delete(m.keys, key)
		}
	}
	return held
}

// block denies keys for a time, and leaves what they hold.
func (m *Model) block(c Call) (any, string) {
	for _, key := range c.Keys {
		switch m.held(key).(type) {
		case reply, *usage:
			return nil, "BADSTATE"
		}
	}
	for _, key := range c.Keys {
		e, until := m.keys[key], m.ms()+c.BlockMS
		if c.Extend {
			until = max(until, e.blocked)
		}
		e.blocked = until
		m.keys[key] = e
	}
	return int64(len(c.Keys)), ""
}

// unblock lifts blocks, and counts those that were in force.
func (m *Model) unblock(keys []string) any {
	lifted := int64(0)
	for _, key := range keys {
		if m.blocked(key) > 0 {
			lifted++
			e := m.keys[key]
			m.keys[key] = entry{}
			m.put(key, e.holds, e.until)
		}
	}
	return lifted
}
