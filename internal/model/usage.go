package model

import "slices"

const (
	minuteMS = 60000
	dayMS    = 86400000
	series   = 60
)

type usage struct {
	allowed, denied, cost, first, last int64
	minutes                            []minute // by their beginning
}

type minute struct{ start, allowed, denied int64 }

// track counts a decision. cost is that of the first limit.
func (m *Model) track(key string, allowed bool, cost int64) {
	now := m.now.ms()
	u := &usage{first: now}
	if e := m.keys[key]; e != nil {
		u = e.usage
	}
	u.last = now
	start := now / minuteMS * minuteMS
	at, found := slices.BinarySearchFunc(u.minutes, start, func(b minute, start int64) int { return int(b.start - start) })
	if !found {
		u.minutes = slices.Insert(u.minutes, at, minute{start: start})
	}
	var first bool
	if allowed {
		u.allowed++
		u.cost += cost
		u.minutes[at].allowed++
		first = u.minutes[at].allowed == 1
	} else {
		u.denied++
		u.minutes[at].denied++
		first = u.minutes[at].denied == 1
	}
	if first {
		u.minutes = slices.DeleteFunc(u.minutes, func(b minute) bool {
			return b.start <= start-series*minuteMS || b.start > start
		})
	}
	m.keys[key] = &entry{kind: usageRecord, until: now + dayMS, usage: u}
}

// usage returns what was counted.
func (m *Model) usage(key string) (any, string) {
	u := &usage{}
	if e := m.keys[key]; e != nil {
		if e.kind != usageRecord {
			return nil, "BADSTATE"
		}
		u = e.usage
	}
	minutes := []any{}
	last := u.last / minuteMS * minuteMS
	for _, b := range u.minutes {
		if b.start > last || b.start <= last-series*minuteMS {
			continue
		}
		minutes = append(minutes, []any{b.start, b.allowed, b.denied})
	}
	return []any{"allowed", u.allowed, "denied", u.denied, "cost", u.cost, "first_ms", u.first, "last_ms", u.last,
		"interval_ms", int64(minuteMS), "series", minutes}, ""
}
