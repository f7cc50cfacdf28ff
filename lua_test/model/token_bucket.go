package model

import "math"

func init() {
	Algorithms["token_bucket"] = &Algorithm{Options: bursts, Open: openTokens}
}

// tokens is the state of token_bucket: the number of tokens, which is negative for a debt, and the
// time at which tokens were last added.
type tokens struct {
	b     int64
	count int64
	added int64 // in µs
	now   int64 // in µs
}

func openTokens(r Rate, was state, at moment) state {
	b, period := r.Capacity(), 1000*r.MS()
	refill := func(m int64) int64 { return min((m+r.N-1)/r.N, math.MaxInt64/4/period) * period } // longer times are all the same
	full := tokens{b, b, at.us, at.us}
	t, ok := was.(tokens)
	if !ok || t.count >= b || at.us-t.added >= refill(b-t.count) {
		return full
	}
	if at.us >= t.added {
		k := (at.us - t.added) / period
		t.count += k * r.N
		t.added += k * period
	}
	after := func(units int64) int64 { return t.added - at.us + refill(units-t.count) }
	impossible := t.count < at.room && after(at.room) > refill(b)
	if t.count < 0 {
		impossible = b-t.count > mostOwed(b) || t.added > at.us && after(b) > refill(mostOwed(b))
	}
	if impossible {
		return tokens{b, at.room, at.us, at.us}
	}
	return tokens{b, t.count, t.added, at.us}
}

func (t tokens) left() int64 { return max(0, t.count) }

func (t tokens) owes() int64 { return mostOwed(t.b) - (t.b - t.count) }

func (t tokens) take(c int64) state { return tokens{t.b, t.count - c, min(t.added, t.now), t.now} }

func (t tokens) refund(c int64) state { return t.take(-min(c, t.b-t.count)) }
