package model

import (
	"maps"
	"slices"
)

func init() {
	Algorithms["concurrency"] = &Algorithm{Leases: true, Bound: func(r Rate) int64 { return r.N }, Most: 5000}
}

// lease holds the time at which a lease expires, in ms since the epoch, and its length in ms.
type lease struct{ lapses, length int64 }

// far reports whether the lease expires more than its length from now, which is only possible if
// the clock was set back.
func (l lease) far(now int64) bool { return l.lapses > now+l.length }

// leases holds the leases of a key by ID.
type leases map[string]lease

func (l leases) last() (ms int64) {
	for _, one := range l {
		ms = max(ms, one.lapses)
	}
	return ms
}

// lease implements acquire, renew and release.
func (m *Model) lease(c Call) (any, string) {
	key, now := c.Keys[0], m.ms()
	if _, forState := m.isFor(key); forState || m.isInUse(key) {
		return nil, "BADSTATE"
	}
	all, _ := m.content(key).(leases)
	r := m.limitOf(key, c.Limits[0].Limits[0]).Rates[0]
	if c.Verb == Release {
		return m.release(key, all, c.Lease), ""
	}
	live, near := leases{}, 0
	var lapses []int64
	for id, one := range all {
		if one.lapses <= now {
			continue
		}
		live[id], lapses = one, append(lapses, one.lapses)
		if !one.far(now) {
			near++
		}
	}
	slices.Sort(lapses)
	held, n := int64(len(live)), r.N
	spare := kept(n, c.percent(c.Limits[0])) // places that the call leaves to others; 0 for renew
	if held > 0 && near == 0 {
		held = min(held, max(0, n-1-spare)) // the clock was set back; allow at least one acquire
	}
	blocked := m.blocked(key)
	own, mine := live[c.Lease]
	length, lasts := r.MS(), int64(0)
	if mine { // the lease is not shortened, unless it is far
		length = max(length, min(own.lapses-now, own.length))
	}
	var fields []any
	switch {
	case c.Verb == Acquire && blocked > 0 && !mine:
		fields = []any{int64(0), n, int64(0), blocked, blocked, int64(1)}
	case mine, c.Verb == Acquire && held+1+spare <= n:
		for id, one := range live {
			if one.far(now) {
				live[id] = lease{now + one.length, one.length}
			}
		}
		live[c.Lease], lasts = lease{now + length, length}, length
		m.put(key, live, live.last())
		fields = []any{int64(1), n, max(0, n-int64(len(live))-spare), int64(0), live.last() - now, int64(1)}
	case c.Verb == Acquire:
		fields = []any{int64(0), n, int64(0), int64(0), max(0, live.last()-now), int64(1)}
		if at := held - (n - spare); at < int64(len(lapses)) {
			fields[3] = lapses[at] - now
		}
	default:
		fields = []any{int64(0), n, max(0, n-held), int64(-1), max(0, live.last()-now), int64(1)}
	}
	p := c.Limits[0]
	if c.Verb == Acquire && !mine && 1+spare > n {
		fields[3] = int64(-1)
	}
	if c.Verb == Acquire {
		m.count(c, p, fields[0] == int64(1))
	}
	if p.Shadow {
		fields = []any{int64(1), n, fields[2], int64(0), fields[4], int64(1), fields[0], fields[3], int64(1)}
	}
	return append(fields, lasts), ""
}

// release removes a lease. Other leases and a block do not change.
func (m *Model) release(key string, all leases, id string) any {
	if all[id].lapses <= m.ms() {
		return int64(0)
	}
	rest := maps.Clone(all)
	delete(rest, id)
	e := m.keys[key]
	e.until, e.holds = rest.last(), rest
	m.store(key, e)
	return int64(1)
}
