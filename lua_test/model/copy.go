package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Lapsed returns the keys that expire before the given time, in microseconds since the epoch.
func (m *Model) Lapsed(us int64) (keys []string) {
	for key, e := range m.keys {
		if e.expires() < us/1000 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Drop deletes a key.
func (m *Model) Drop(key string) { delete(m.keys, key) }

// CopyKey replaces the content of a key by its content in another model.
func (m *Model) CopyKey(key string, from *Model) {
	e, ok := from.keys[key]
	if !ok {
		delete(m.keys, key)
		return
	}
	m.keys[key] = e
}

// String describes the content of all keys. It is the same for models that hold the same states,
// whatever their clocks say.
func (m *Model) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m.keys)) {
		e := m.keys[key]
		fmt.Fprintf(&b, "%s:", key)
		if e.blocked > 0 {
			fmt.Fprintf(&b, " blocked until %d", e.blocked)
		}
		if e.length > 0 {
			fmt.Fprintf(&b, " for %d, remembered until %d", e.length, e.forgotten)
		}
		if e.override.ends > 0 {
			fmt.Fprintf(&b, " override %s until %d", e.override.limit, e.override.ends)
		}
		if e.holds != nil {
			fmt.Fprintf(&b, " %s until %d", described(e.holds), e.until)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// described returns the content of a key as text, without the times at which it was read.
func described(holds any) string {
	switch h := holds.(type) {
	case limiter:
		var b strings.Builder
		for name, a := range Algorithms {
			if a == h.algorithm {
				b.WriteString(name)
			}
		}
		for _, s := range h.rates {
			b.WriteString(" " + describedState(s))
		}
		return b.String()
	case leases:
		var b strings.Builder
		b.WriteString("leases")
		for _, id := range slices.Sorted(maps.Keys(h)) {
			fmt.Fprintf(&b, " %s:%d+%d", id, h[id].lapses, h[id].length)
		}
		return b.String()
	case *usage:
		return fmt.Sprintf("usage %d %d %d %d %d %v", h.allowed, h.denied, h.cost, h.first, h.last, h.minutes)
	}
	return fmt.Sprint(holds)
}

func describedState(s state) string {
	switch s := s.(type) {
	case gcra:
		return fmt.Sprintf("TAT %s of %d/%d, forced %v", plus(whole(s.now), s.debt).RatString(), s.unit, s.q, s.forced)
	case tokens:
		return fmt.Sprintf("%d tokens at %d", s.count, s.added)
	case window:
		return fmt.Sprintf("%d to %d", s.count, s.end)
	case log:
		return fmt.Sprint(s.taken)
	case buckets:
		return fmt.Sprintf("%d*%d %v", s.current(), s.width, s.counts)
	}
	return fmt.Sprint(s)
}
