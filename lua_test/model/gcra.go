package model

import (
	"math/big"
	"slices"
)

func init() {
	Algorithms["gcra"] = &Algorithm{Options: bursts, Open: openGCRA, Refuses: tooFine}
}

// bursts contains the option burst, for algorithms whose capacity can differ from n.
var bursts = map[string]func(r Rate) []string{"burst": func(r Rate) []string {
	return numbered("burst", 1, 2, 37, r.N, 2*r.N, r.N+1, (r.N+1)/2, 10*r.N)
}}

// gcra is the state of the generic cell rate algorithm. It stores TAT, the theoretical arrival
// time: the time at which the rate is full again.
type gcra struct {
	b        int64
	interval *big.Rat // T, the emission interval, in µs
	unit     int64    // the unit of the clock, in µs
	q        int64    // the denominator of T/unit
	now      int64    // the current time in µs, rounded down to a multiple of unit
	debt     *big.Rat // D = TAT - now
	forced   bool     // whether FORCE has left a debt above bT
}

// newState returns a state of r without debt.
func (r Rate) newState(at moment) gcra {
	g := gcra{b: r.Capacity(), interval: times(1000, r.Refill(1)), unit: 1, now: at.us, debt: new(big.Rat)}
	if ms := r.Refill(1); !at.several && ms.Cmp(whole(1)) >= 0 && g.countable(ms) {
		g.unit, g.now, g.q = 1000, at.ms()*1000, ms.Denom().Int64()
		return g
	}
	if !g.countable(g.interval) {
		g.interval = roundedUp(g.interval, MaxCount/(2*g.b))
	}
	g.q = g.interval.Denom().Int64()
	return g
}

// countable reports whether a debt of 2b intervals t can be counted exactly. With t = p/q, the debt
// is 2bp units of 1/q, which must be at most 2^53.
func (g gcra) countable(t *big.Rat) bool { return t.Num().Cmp(big.NewInt(MaxCount/(2*g.b))) <= 0 }

// roundedUp returns the smallest fraction above t whose numerator is at most `most`, or 0 if
// there is none. Its reciprocal is the largest fraction below 1/t whose denominator is at most
// `most`. The continued fraction of 1/t gives the two closest such fractions, one on each side of
// 1/t; roundedUp uses the lower one.
func roundedUp(t *big.Rat, most int64) *big.Rat {
	if most < 1 {
		return new(big.Rat)
	}
	num, den := t.Denom(), t.Num()
	p0, q0, p1, q1 := int64(0), int64(1), int64(1), int64(0)
	for {
		quotient, rest := new(big.Int).QuoRem(num, den, new(big.Int))
		a := quotient.Int64()
		if q1 > 0 && a > (most-q0)/q1 {
			break
		}
		p0, q0, p1, q1 = p1, q1, p0+a*p1, q0+a*q1
		num, den = den, rest
	}
	k := (most - q0) / q1
	for _, f := range [][2]int64{{p0 + k*p1, q0 + k*q1}, {p1, q1}} {
		if f[0] > 0 && big.NewRat(f[1], f[0]).Cmp(t) > 0 {
			return big.NewRat(f[1], f[0])
		}
	}
	return new(big.Rat)
}

// tooFine reports whether rounding would change T by a billionth or more.
func tooFine(l Limit) bool {
	return slices.ContainsFunc(l.Rates, func(r Rate) bool {
		g := r.newState(moment{several: len(l.Rates) > 1})
		exact := times(1000, r.Refill(1))
		return g.interval.Sign() == 0 || times(1000000000, minus(g.interval, exact)).Cmp(exact) >= 0
	})
}

// Emission returns T and the unit of the gcra clock, both in µs, for a limit whose only rate is r.
func (r Rate) Emission() (interval *big.Rat, unit int64) {
	g := r.newState(moment{})
	return g.interval, g.unit
}

func openGCRA(r Rate, was state, at moment) state {
	g := r.newState(at)
	if old, ok := was.(gcra); ok {
		g.debt, g.forced = larger(new(big.Rat), minus(g.read(old), whole(g.now))), old.forced
		wait, most := minus(g.debt, times(g.b-at.room, g.interval)), times(g.b, g.interval)
		if g.forced {
			wait, most = g.debt, times(2*g.b-1, g.interval)
		}
		if wait.Cmp(most) > 0 {
			g.debt, g.forced = times(g.b-at.room, g.interval), false
		}
	}
	return g
}

// read returns the TAT that this rate reads from old, in µs. The library stores a TAT as a whole ms
// minus k parts, or as a whole µs plus k parts. A part is 1/q of the ms or µs. The library does not
// store q, so a rate with another q reads the k parts with its own q.
func (g gcra) read(old gcra) *big.Rat {
	tat := plus(whole(old.now), old.debt)
	units := over(tat, whole(g.unit))
	switch {
	case g.unit != old.unit:
		return whole(1000 * ceil(over(tat, whole(1000))))
	case g.q == old.q:
		return tat
	case g.unit == 1000:
		if parts := times(old.q, minus(whole(ceil(units)), units)); parts.Cmp(whole(g.q)) < 0 {
			return times(1000, minus(whole(ceil(units)), over(parts, whole(g.q))))
		}
		return times(1000, whole(ceil(units)))
	default:
		parts := times(old.q, minus(units, whole(floor(units))))
		if parts.Cmp(whole(g.q)) < 0 {
			return plus(whole(floor(units)), over(parts, whole(g.q)))
		}
		return whole(ceil(units))
	}
}

func (g gcra) left() int64 { return max(0, g.b-ceil(over(g.debt, g.interval))) }

// owes returns how many units FORCE can take: the largest c for which D + cT + T is at most 2bT.
func (g gcra) owes() int64 { return floor(minus(whole(2*g.b-1), over(g.debt, g.interval))) }

func (g gcra) take(c int64) state {
	g.debt = plus(g.debt, times(c, g.interval))
	g.forced = g.debt.Cmp(times(g.b, g.interval)) > 0
	return g
}

func (g gcra) refund(c int64) state {
	g.debt = larger(new(big.Rat), minus(g.debt, times(c, g.interval)))
	g.forced = g.forced && g.debt.Cmp(times(g.b, g.interval)) > 0
	return g
}
