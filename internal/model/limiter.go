package model

import "math/big"

// A holding is one key of a decision, with its limit and cost.
type holding struct {
	key     string
	limit   Limit
	cost    int64
	blocked int64 // for so many milliseconds
	lapses  int64 // where the state of another algorithm was found: the milliseconds until its key expires
	rates   []standing
}

// open finds out how the key stands. A refund takes nothing, and so finds room for one unit as a call of cost 0 does.
func (m *Model) open(key string, l Limit, cost int64, refund bool) (*holding, string) {
	h := &holding{key: key, limit: l, cost: cost}
	if refund {
		cost = 0
	}
	e := m.keys[key]
	held := e.holds(m.now)
	if held != nothing && held != limiter {
		return nil, "BADSTATE"
	}
	h.blocked = e.blockedFor(m.now)
	other := held == limiter && e.algorithm != l.keptAs()
	if other {
		h.lapses = e.until - m.now.ms()
	}
	for place, r := range l.Rates {
		var saved any
		if held == limiter && !other && place < len(e.rates) {
			saved = e.rates[place]
		}
		s := stand(l, r, saved, cost, m.now)
		if h.lapses > 0 {
			s.charge(carried(e, r, cost, h.lapses))
		}
		h.rates = append(h.rates, s)
	}
	return h, ""
}

// carried is how many units of a rate are spent by what another algorithm has left in the key.
func carried(e *entry, r Rate, cost, lapses int64) int64 {
	var spent int64
	switch e.algorithm {
	case FixedWindow, SlidingWindow, SlidingLog:
		spent = counted(e.rates[0])
	default:
		of := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(lapses), big.NewInt(r.N)), big.NewInt(r.Period.MS()))
		if c := ceil(of); c.IsInt64() {
			spent = c.Int64()
		} else {
			spent = r.Capacity()
		}
	}
	b := r.Capacity()
	refill := big.NewRat(b, r.N)
	refill.Mul(refill, big.NewRat(r.Period.MS(), 1))
	if big.NewRat(lapses, 1).Cmp(refill) > 0 {
		return min(spent, b-room(cost, b))
	}
	return min(spent, b)
}

// counted is how many units a rate's state has counted.
func counted(saved any) int64 {
	switch s := saved.(type) {
	case window:
		return s.count
	case buckets:
		sum := int64(0)
		for _, count := range s.counts {
			sum += count
		}
		return sum
	case []taken:
		return units(s)
	}
	return 0
}

// save writes the holding's rates into its key, or deletes it if all are full. Nothing is kept of a rate that is.
func (m *Model) save(h *holding) {
	written := &entry{kind: limiter, algorithm: h.limit.keptAs()}
	full := true
	for _, s := range h.rates {
		var saved any
		if s.reset() > 0 {
			full, saved = false, s.save()
			written.until = max(written.until, s.fullAt())
		}
		written.rates = append(written.rates, saved)
	}
	if full {
		delete(m.keys, h.key)
		return
	}
	m.write(h.key, written)
}
