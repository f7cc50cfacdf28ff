// Package model is a second, slow and simple implementation of the wire contract. It is written
// only from functions/SEMANTICS.md, with exact arithmetic. Tests compare the library with it: if
// both agree, they probably implement the contract correctly.
//
// Each algorithm is one file, which defines what the algorithm stores for a rate, how that changes
// with time, and how many units are left. Replies follow from these definitions in the same way for
// all algorithms. A call is allowed if at least its cost is left. retry_after_ms is the shortest
// wait until that is the case, and reset_after_ms is the wait until the whole capacity is left.
package model

import "fmt"

// Model is the content of a server's keys according to the contract. The caller sets its clock. It
// is not safe for concurrent use.
type Model struct {
	now  int64 // in microseconds since the epoch
	keys map[string]entry

	// Calls holds the number of calls for each policy and each canary.
	Calls map[Side]Counts

	// ClassCalls holds the number of calls for each class of each policy.
	ClassCalls map[Class]Counts

	// BorrowCalls holds the number of calls for each policy with a guarantee and a pool.
	BorrowCalls map[string]Borrows

	// Moved holds the units that the last call took from each key. Units that it gave back count
	// below 0, including those beyond the capacity, which are dropped.
	Moved map[string]int64
}

// Side identifies a policy or its canary.
type Side struct {
	Policy string
	Canary bool
}

// Counts holds the numbers of calls that a policy or its canary has allowed and denied. A shadow
// policy counts the decisions that it would have made.
type Counts struct{ Allowed, Denied int64 }

func (c Counts) plus(allowed bool) Counts {
	if allowed {
		c.Allowed++
	} else {
		c.Denied++
	}
	return c
}

// Class identifies a class of a policy. Calls of the policy's canary count, too.
type Class struct{ Policy, Class string }

// Borrows holds the numbers of calls that a policy's guarantees have paid for, that have borrowed from
// its pool, and that it has denied. Calls of its canary count, too.
type Borrows struct{ Guaranteed, Borrowed, Denied int64 }

func (b Borrows) plus(allowed, guaranteed bool) Borrows {
	switch {
	case !allowed:
		b.Denied++
	case guaranteed:
		b.Guaranteed++
	default:
		b.Borrowed++
	}
	return b
}

// count adds a call to the counts of p. A limit written in the call has no counts.
func (m *Model) count(c Call, p Policy, allowed bool) {
	if p.Name == "" {
		return
	}
	side := Side{p.Name, p.canary}
	m.Calls[side] = m.Calls[side].plus(allowed)
	if class, ok := c.class(p); ok {
		of := Class{p.Name, class}
		m.ClassCalls[of] = m.ClassCalls[of].plus(allowed)
	}
}

// New returns a model without keys. us is its initial time in microseconds since the epoch.
func New(us int64) *Model {
	return &Model{us, map[string]entry{}, map[Side]Counts{}, map[Class]Counts{}, map[string]Borrows{}, nil}
}

func (m *Model) ms() int64 { return m.now / 1000 }

// entry is the content of one key.
type entry struct {
	// blocked is the end of the last block, in ms since the epoch. It remains after the block ends,
	// until the key is written again.
	blocked int64

	// What GROW remembers: how long the last block was, in ms, when it ended, and when this is forgotten,
	// in ms since the epoch. All are 0 without GROW.
	length, ended, forgotten int64

	until int64 // when the content expires, in ms since the epoch
	holds any   // limiter, leases, reply or *usage; nil if the key is only blocked
	override
}

type limiter struct {
	algorithm *Algorithm
	rates     []state // by position; nil means that the rate is full
}

// reply is a reply stored by ONCE.
type reply []any

func (e entry) expires() int64 { return max(e.blocked, e.until, e.override.ends, e.forgotten) }

// remembers reports whether GROW remembers the block. If the clock was set back to before the block
// began, it does not, and the block is not in effect.
func (e entry) remembers(now int64) bool {
	return e.length > 0 && now >= e.ended-e.length && now < e.forgotten
}

// lift removes the block and what GROW remembers of it.
func (e *entry) lift() { e.blocked, e.length, e.ended, e.forgotten = 0, 0, 0, 0 }

// content returns the key's current content, or nil. Content is readable until the end of the ms in
// which it expires.
func (m *Model) content(key string) any {
	if e := m.keys[key]; e.until >= m.ms() {
		return e.holds
	}
	return nil
}

// blocked returns how many ms remain until the key's block ends, or 0 if the key is not blocked.
func (m *Model) blocked(key string) int64 {
	e := m.keys[key]
	if e.length > 0 && !e.remembers(m.ms()) {
		return 0
	}
	return max(0, e.blocked-m.ms())
}

// put stores a key's content and keeps an active block, what GROW remembers, and an active override.
func (m *Model) put(key string, holds any, until int64) {
	e := entry{until: until, holds: holds}
	old := m.keys[key]
	if m.blocked(key) > 0 || old.remembers(m.ms()) {
		e.blocked, e.length, e.ended, e.forgotten = old.blocked, old.length, old.ended, old.forgotten
	}
	if was := m.keys[key].override; was.ends > m.ms() {
		e.override = was
	}
	m.store(key, e)
}

// store stores an entry. If everything in it has already expired, it deletes the key.
func (m *Model) store(key string, e entry) {
	m.keys[key] = e
	if e.expires() <= m.ms() {
		delete(m.keys, key)
	}
}

// SetTime sets the clock and removes expired keys. A server removes an expired key only when it is
// read, so tests read all keys of the server after setting its clock.
func (m *Model) SetTime(us int64) {
	m.now = us
	for key, e := range m.keys {
		if e.expires() < m.ms() {
			delete(m.keys, key)
		}
	}
}

// Expiry returns when the key expires, in ms since the epoch. ok is false if the key does not
// exist.
func (m *Model) Expiry(key string) (ms int64, ok bool) {
	e, ok := m.keys[key]
	return e.expires(), ok
}

// Do runs a call. It returns the reply as a client receives it: an int64, or a []any of int64,
// string and []any. If the library returns a RATELIMIT error, Do returns only its reason.
func (m *Model) Do(c Call) (fields any, reason string) {
	m.Moved = map[string]int64{}
	c = c.decided()
	if reason := c.excess(); reason != "" {
		return nil, reason
	}
	switch c.Verb {
	case Peek:
		fields, reason = m.take(c)
		if list, ok := fields.([]any); ok && c.Grow != nil {
			return append(list, m.remembered(c.Keys)...), reason
		}
		return fields, reason
	case Take:
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
	case Override:
		return m.overrideKeys(c)
	case OverrideEnd:
		return m.endOverrides(c.Keys), ""
	}
	panic(fmt.Sprintf("no such verb: %q", c.Verb))
}

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

// block denies all calls on keys for a time, and keeps the content of the keys.
func (m *Model) block(c Call) (any, string) {
	for _, key := range c.Keys {
		switch m.content(key).(type) {
		case reply, *usage:
			return nil, "BADSTATE"
		}
		if forLeases, _ := m.isFor(key); c.Grow != nil && forLeases {
			return nil, "BADSTATE"
		}
	}
	begun, ends := int64(0), []any{}
	for _, key := range c.Keys {
		e, length := m.keys[key], c.SpanMS
		if c.Grow != nil && e.remembers(m.ms()) && m.ms() < e.ended+c.Grow.Forget {
			length = max(length, min(2*e.length, c.Grow.Max))
		}
		if left := m.blocked(key); left == 0 || c.Grow == nil && (!c.Extend || left < length) {
			e.lift()
			e.blocked = m.ms() + length
			if c.Grow != nil {
				e.length, e.ended, e.forgotten = length, e.blocked, e.blocked+c.Grow.Forget
			}
			begun++
		}
		m.keys[key] = e
		ends = append(ends, m.blocked(key))
	}
	if c.Grow != nil {
		return append([]any{begun}, ends...), ""
	}
	return int64(len(c.Keys)), ""
}

// remembered returns what a peek with GROW adds to its reply.
func (m *Model) remembered(keys []string) []any {
	list := []any{}
	for _, key := range keys {
		if e := m.keys[key]; e.remembers(m.ms()) {
			list = append(list, []any{e.length, e.forgotten - m.ms()})
		} else {
			list = append(list, []any{int64(0), int64(0)})
		}
	}
	return []any{"grow", list}
}

func (m *Model) unblock(keys []string) any {
	lifted := int64(0)
	for _, key := range keys {
		if e := m.keys[key]; m.blocked(key) > 0 || e.remembers(m.ms()) {
			lifted++
			e.lift()
			m.store(key, e)
		}
	}
	return lifted
}
