package combinations

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"
)

// step draws a step with the given features, and others that are legal with them.
func (d *draw) step(must ...feature) step {
	s := step{client: pick(d, 0, 0, 1), pause: pick(d, 0, 0, 0, d.span(0, 2000), d.span(0, 15000))}
	all := slices.DeleteFunc(slices.Clone(must), func(f feature) bool { return f.kind == layer })
	has := func(k kind) bool { return slices.ContainsFunc(all, func(f feature) bool { return f.kind == k }) }
	fits := func(f feature) bool {
		return !slices.ContainsFunc(all, func(g feature) bool { return f.name == g.name || illegal(f, g) != "" })
	}
	add := func(k kind, odds int) {
		for range 20 {
			f := find(pick(d, kinds[k]...))
			if k == verb && d.leases != (isOnLeases(f) || slices.Contains(onKeys, f.name) && d.chance(2)) {
				continue
			}
			if k == limit && d.leases != isOnLeases(f) {
				continue
			}
			if fits(f) && d.chance(odds) {
				all = append(all, f)
				return
			}
			if odds > 1 {
				return
			}
		}
	}
	if !has(verb) {
		add(verb, 1)
	}
	if !has(verb) { // the other features have no verb that was drawn
		for _, v := range kinds[verb] {
			if f := find(v); fits(f) && (!d.leases || isOnLeases(f) || slices.Contains(onKeys, v)) {
				all = append(all, f)
				break
			}
		}
	}
	if f := find(d.home); !has(limit) && fits(f) && !d.chance(3) {
		all = append(all, f)
	}
	if !has(limit) {
		add(limit, 1)
	}
	for range 3 {
		add(option, 3)
	}
	add(event, 5)
	d.fill(&s, all)
	return s
}

// fill puts features into s, in the order of the table.
func (d *draw) fill(s *step, all []feature) {
	index := func(f feature) int { return slices.IndexFunc(table, func(g feature) bool { return g.name == f.name }) }
	slices.SortFunc(all, func(a, b feature) int { return index(a) - index(b) })
	for _, f := range all {
		s.marks = append(s.marks, f.name)
		if f.kind == verb {
			s.verb = f.name
		}
	}
	onLeaseKey := slices.Contains(onLeases, s.verb) || d.leases && slices.Contains(onKeys, s.verb)
	for _, f := range all {
		if f.kind == limit {
			s.texts = []string{d.limit(f.name, s.verb)}
			if f.name == d.home && !d.chance(6) {
				s.texts = []string{d.text}
			}
		}
	}
	switch {
	case onLeaseKey:
		s.keys, s.lease = []string{"{v}:leases"}, pick(d, "x", "y", "z")
		if !slices.ContainsFunc(all, func(f feature) bool { return f.kind == limit && isOnLeases(f) }) {
			s.texts = []string{pick(d, limits["leases"]...)}
		}
	case s.verb == "usage":
		s.keys = []string{"{v}:usage"}
	default:
		if len(s.texts) == 0 {
			s.texts = []string{pick(d, limits["gcra"]...)}
		}
		d.keys(s, 1)
	}
	for _, f := range all {
		if f.kind != limit && f.kind != layer && f.put != nil {
			f.put(d, s)
		}
	}
	if slices.Contains(s.marks, "cost of each key") && !s.bad {
		d.keys(s, 2)
		s.costs = nil
		for range s.keys {
			s.costs = append(s.costs, d.cost(s))
		}
	}
	if s.lends() && s.verb == "refund" {
		s.paid = pick(d, int64(1), 2)
	}
	if s.upTo && len(s.costs) == 0 && !s.bad {
		s.costs = []int64{d.cost(s)}
	}
	s.actual = pick(d, 0, 1, d.cost(s))
	s.beforeLast, s.faultsAgain, s.lateCancel = d.chance(2), d.chance(2), d.chance(2)
	if (s.verb == "hold" || s.verb == "charge") && d.chance(2) {
		s.faults, s.lateFaults = nil, s.faults
	}
	if s.once != "" {
		h := fnv.New32()
		fmt.Fprint(h, s.verb, s.keys, s.texts, s.costs, s.upTo, s.force, s.each, s.class, s.borrow, s.paid, s.grow)
		s.once = fmt.Sprintf("%s:%x", s.once, h.Sum32())
	}
	switch {
	case s.plantIn == "":
	case s.plantIn == "once" && s.once != "":
		s.plantIn = s.once
	case s.plantIn == "usage" && (s.track || tracks(s.texts)) && s.verb != "refund":
		s.plantIn = "{v}:usage"
	case s.plantIn == "last":
		s.plantIn = s.keys[len(s.keys)-1]
	default:
		s.plantIn = s.keys[0]
	}
}

// limit draws the text of a limit for a verb.
func (d *draw) limit(name, verb string) string {
	for {
		text := pick(d, limits[name]...)
		if verb == "charge" && size(text) > 1 && name != "guarantee" {
			continue // these take one key
		}
		return text
	}
}

// size returns how many keys a limit takes.
func size(text string) int { return len(policyOf(0, text).Limits) }

// keys gives s as many keys as its limits take, and adds limits until there are at least n keys.
func (d *draw) keys(s *step, n int) {
	all := []string{"{v}:a", "{v}:b", "{v}:c", "{v}:d"}
	if s.verb == "override" || slices.Contains(limitless, s.verb) {
		from := pick(d, 0, 0, 1)
		if d.leases {
			s.keys = append([]string{"{v}:leases"}, all[:n-1]...)
			return
		}
		s.keys = all[from : from+n]
		return
	}
	total := func() (sum int) {
		for _, text := range s.texts {
			sum += size(text)
		}
		return sum
	}
	for total() < n {
		s.texts = slices.Insert(s.texts, pick(d, 0, len(s.texts)), d.limit(pick(d, "gcra", "token_bucket", "sliding_log", "fixed_window", "shadow", "sliding_window", "policy"), s.verb))
	}
	from := pick(d, 0, 0, 0, 0, 1)
	for len(all) < from+total() {
		all = append(all, fmt.Sprintf("{v}:%d", len(all)))
	}
	s.keys = slices.Clone(all[from : from+total()])
}

// cost draws a cost near the boundaries of the first limit of s.
func (d *draw) cost(s *step) int64 {
	b := int64(5)
	if len(s.texts) > 0 {
		b = policyOf(0, s.texts[0]).Limits[0].Rates[0].Capacity()
	}
	return min(1<<53, max(0, pick(d, 1, 1, 2, 3, b, b-1, b+1, b/2, 2*b)))
}

func (d *draw) once(s *step) {
	s.once, s.onceMS = pick(d, "{v}:once1", "{v}:once2"), pick(d, int64(1000), 60000, 60000)
}

// foreign chooses a key of s for a foreign value. "once" and "usage" are filled in at the end.
func (d *draw) foreign(s *step) {
	s.plants = pick(d, slices.Sorted(maps.Keys(foreign))...)
	s.plantIn = pick(d, "first", "last", "once", "usage")
	if s.track && d.chance(2) {
		s.plantIn, s.plants = "usage", pick(d, "hash", "broken usage")
	}
}

// lends reports whether s has a guarantee and a pool. The guarantee is not charged for a loan.
func (s *step) lends() bool { return s.borrow || slices.Contains(s.marks, "guarantee") }

// class gives s a policy with classes, and a class of it.
func (d *draw) class(s *step) {
	if slices.Contains(onLeases, s.verb) {
		s.texts = []string{pick(d, limits["lease classes"]...)}
	} else {
		s.texts, s.keys = []string{pick(d, limits["classes"]...)}, s.keys[:1]
	}
	s.class = pick(d, "default", "batch", "batch")
}

// borrow gives s a guarantee and a pool.
func (d *draw) borrow(s *step) {
	s.texts = []string{s.texts[0], d.limit(pick(d, "gcra", "gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"), s.verb)}
	if s.keys = []string{pick(d, "{v}:a", "{v}:a", "{v}:c"), "{v}:b"}; s.bad {
		s.keys[0] = ""
	}
	s.borrow, s.floor = true, pick(d, nil, new(int64(0)), new(int64(50)), new(int64(80)))
}

func (d *draw) far() time.Duration {
	return pick(d, time.Millisecond, time.Second, 3*time.Second, time.Minute, time.Hour, 24*time.Hour, d.span(1, 20000))
}

// changes has the client of a wait change the wait's first key meanwhile.
func (d *draw) changes(s *step) {
	s.meanwhile = &step{verb: pick(d, "unblock", "unblock", "reset", "reset", "refund", "override", "end override"), span: d.span(1, 60000)}
	s.meanwhile.texts = []string{pick(d, limits["gcra"]...)}
	s.after = d.span(1, 3000)
}

// others has another process make a call on the first key, after the first reply of s was lost.
func (d *draw) others(s *step) {
	if len(s.faults) == 0 || s.faults[0].kind != loseReply {
		s.faults = append([]fault{{kind: loseReply}}, s.faults...)
	}
	other := &step{keys: s.keys[:1], span: d.span(1, 60000)}
	other.verb = pick(d, "block", "block", "override", "reset", "unblock")
	other.texts = []string{pick(d, limits["gcra"]...)}
	if slices.Contains(onLeases, s.verb) {
		other.texts = []string{pick(d, limits["leases"]...)}
	}
	s.between = other
}
