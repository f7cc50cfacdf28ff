package model

import (
	"maps"
	"slices"
)

// held is a key of leases as a call finds it.
type held struct {
	n, now, until int64 // until is now + lease, in milliseconds
	lapse         map[string]int64
	room          bool // all of them lapse later than any that this limit grants
}

func (m *Model) openLeases(key string, r Rate) (*held, string) {
	e := m.keys[key]
	h := &held{n: r.N, now: m.now.ms(), until: m.now.ms() + r.Period.MS(), lapse: map[string]int64{}}
	switch e.holds(m.now) {
	case nothing:
		return h, ""
	case leases:
	default:
		return nil, "BADSTATE"
	}
	far := 0
	for id, at := range e.leases {
		if at > h.now {
			h.lapse[id] = at
			if at > h.until {
				far++
			}
		}
	}
	h.room = far > 0 && far == len(h.lapse)
	return h, ""
}

func (h *held) count() int64 {
	if h.room {
		return min(int64(len(h.lapse)), h.n-1)
	}
	return int64(len(h.lapse))
}

// reset is until the last has lapsed.
func (h *held) reset() int64 {
	last := h.now
	for _, at := range h.lapse {
		last = max(last, at)
	}
	return last - h.now
}

// wait is until fewer than n are left, if all lapse.
func (h *held) wait() int64 {
	byTime := slices.Sorted(maps.Values(h.lapse))
	return byTime[int64(len(byTime))-h.n] - h.now
}

// grant gives or prolongs a lease, and cuts all others.
func (m *Model) grant(key string, h *held, id string) any {
	for other, at := range h.lapse {
		h.lapse[other] = min(at, h.until)
	}
	h.lapse[id] = h.until
	h.room = false
	m.write(key, &entry{kind: leases, until: h.until, leases: h.lapse})
	return h.answer(true, 0)
}

func (h *held) answer(allowed bool, retry int64) any {
	return answer(allowed, h.n, max(0, h.n-h.count()), retry, h.reset(), 1)
}

func (m *Model) acquire(key string, r Rate, id string) (any, string) {
	h, reason := m.openLeases(key, r)
	if reason != "" {
		return nil, reason
	}
	if blocked := m.keys[key].blockedFor(m.now); blocked > 0 {
		return answer(false, h.n, 0, blocked, blocked, 1), ""
	}
	if _, has := h.lapse[id]; has || h.count() < h.n {
		return m.grant(key, h, id), ""
	}
	return h.answer(false, h.wait()), ""
}

func (m *Model) renew(key string, r Rate, id string) (any, string) {
	h, reason := m.openLeases(key, r)
	if reason != "" {
		return nil, reason
	}
	if _, has := h.lapse[id]; !has {
		return h.answer(false, -1), ""
	}
	return m.grant(key, h, id), ""
}

func (m *Model) release(key, id string) (any, string) {
	e := m.keys[key]
	switch e.holds(m.now) {
	case nothing:
		return int64(0), ""
	case leases:
	default:
		return nil, "BADSTATE"
	}
	if e.leases[id] <= m.now.ms() {
		return int64(0), ""
	}
	rest := &entry{kind: leases, leases: map[string]int64{}, blocked: e.blocked}
	for other, at := range e.leases {
		if other != id {
			rest.leases[other] = at
			rest.until = max(rest.until, at)
		}
	}
	if len(rest.leases) == 0 {
		rest.kind = nothing
	}
	m.write(key, rest)
	return int64(1), ""
}
