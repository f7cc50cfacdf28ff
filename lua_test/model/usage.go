package model

import (
	"maps"
	"slices"
)

const (
	minuteMS = 60000
	dayMS    = 86400000
	keptMS   = dayMS + minuteMS
)

type usage struct {
	allowed, denied, cost, first, last int64

	minutes map[int64][2]int64 // allowed and denied, by the start of the minute in ms
}

// within reports whether a minute is the one that contains ms or one of the 59 before it. The
// parameter minute is the start of the minute. Both times are in ms.
func within(minute, ms int64) bool { return minute <= ms && minute > ms-ms%minuteMS-60*minuteMS }

func (m *Model) track(key string, allowed bool, cost int64) {
	now := m.ms()
	until := m.keys[key].until
	u, ok := m.keys[key].holds.(*usage)
	if !ok {
		u = &usage{first: now, minutes: map[int64][2]int64{}}
	}
	u.last = now
	minute := u.minutes[now-now%minuteMS]
	if allowed {
		u.allowed++
		u.cost = min(MaxCount, u.cost+cost)
		minute[0]++
	} else {
		u.denied++
		minute[1]++
	}
	u.minutes[now-now%minuteMS] = minute
	if minute[0]+minute[1] == 1 { // the first call of the minute
		maps.DeleteFunc(u.minutes, func(start int64, _ [2]int64) bool { return !within(start, now) })
		until = now + keptMS
	}
	m.put(key, u, until)
}

func (m *Model) usage(key string) (any, string) {
	u, ok := m.keys[key].holds.(*usage)
	if _, exists := m.keys[key]; exists && !ok {
		return nil, "BADSTATE"
	} else if !ok {
		u = &usage{}
	}
	series := []any{}
	for _, start := range slices.Sorted(maps.Keys(u.minutes)) {
		if within(start, u.last) {
			series = append(series, []any{start, u.minutes[start][0], u.minutes[start][1]})
		}
	}
	return []any{"allowed", u.allowed, "denied", u.denied, "cost", u.cost, "first_ms", u.first, "last_ms", u.last,
		"interval_ms", int64(minuteMS), "series", series}, ""
}
