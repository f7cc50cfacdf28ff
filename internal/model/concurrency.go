package model

import (
	"maps"
	"slices"
)

func init() {
	Algorithms["concurrency"] = &Algorithm{Leases: true, Bound: func(r Rate) int64 { return r.N }, Most: 5000}
}

// leases is when each lease lapses, in ms since the epoch, by its id.
type leases map[string]int64

func (l leases) last() (ms int64) {
	for _, at := range l {
		ms = max(ms, at)
	}
	return ms
}

// lease does acquire, renew and release.
func (m *Model) lease(c Call) (any, string) {
	key, r, now := c.Keys[0], c.Limits[0].Limits[0].Rates[0], m.ms()
	all, ok := m.held(key).(leases)
	if held := m.held(key); !ok && held != nil {
		return nil, "BADSTATE"
	}
	if c.Verb == Release {
		return m.release(key, all, c.Lease), ""
	}
	live := maps.Clone(all)
	maps.DeleteFunc(live, func(_ string, at int64) bool { return at <= now })
	held, n, until := int64(len(live)), r.N, now+r.MS()
	lapses := slices.Sorted(maps.Values(live))
	if held > 0 && lapses[0] > until {
		held = min(held, n-1) // all lapse later than any that this limit grants: room for this call
	}
	blocked := m.blocked(key)
	_, mine := live[c.Lease]
	var fields []any
	switch {
	case c.Verb == Acquire && blocked > 0:
		fields = []any{int64(0), n, int64(0), blocked, blocked, int64(1)}
	case mine, c.Verb == Acquire && held < n:
		granted := leases{c.Lease: until}
		for id, at := range live {
			granted[id] = min(at, until)
		}
		granted[c.Lease] = until
		m.put(key, granted, until)
		fields = []any{int64(1), n, max(0, n-int64(len(granted))), int64(0), until - now, int64(1)}
	case c.Verb == Acquire:
		fields = []any{int64(0), n, int64(0), lapses[held-n] - now, live.last() - now, int64(1)}
	default:
		fields = []any{int64(0), n, max(0, n-held), int64(-1), max(0, live.last()-now), int64(1)}
	}
	if p := c.Limits[0]; p.Shadow {
		if fields[0] == int64(0) {
			m.ShadowDenied[p.Name]++
		}
		fields = []any{int64(1), n, fields[2], int64(0), fields[4], int64(1), fields[0], fields[3], int64(1)}
	}
	return fields, ""
}

// release gives a lease back. The others stay as they are, and so does a block.
func (m *Model) release(key string, all leases, id string) any {
	if all[id] <= m.ms() {
		return int64(0)
	}
	rest := maps.Clone(all)
	delete(rest, id)
	e := m.keys[key]
	m.keys[key] = entry{e.blocked, rest.last(), rest}
	if m.keys[key].expires() <= m.ms() {
		delete(m.keys, key)
	}
	return int64(1)
}
