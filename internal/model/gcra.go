package model

import "math/big"

// tat is what gcra and leaky_bucket keep: the theoretical arrival time. With ms it is at, in milliseconds, less part/q;
// else at, in microseconds, and part/q more. q is the denominator of the interval in that unit, of whichever rate reads
// it.
type tat struct {
	ms       bool
	at, part int64
}

// gcra is the standing of gcra and of leaky_bucket.
type gcra struct {
	capacity int64
	interval *big.Rat // T, in microseconds
	now      int64    // in microseconds, a whole number of milliseconds where the limit is decided in these
	debt     *big.Rat // D, in microseconds
	leaky    bool
	unit     int64    // of what is kept: 1 or 1000 microseconds
	q        *big.Int // the denominator of the interval in that unit
}

func standGCRA(l Limit, r Rate, saved any, c int64, now instant) *gcra {
	g := &gcra{capacity: r.Capacity(), interval: r.interval(), now: int64(now), debt: new(big.Rat), leaky: l.Algorithm == LeakyBucket}
	if l.WholeMS() {
		g.now, g.unit, g.q = now.ms()*1000, 1000, r.intervalMS().Denom()
	} else {
		g.interval, _ = r.rounded()
		g.unit, g.q = 1, g.interval.Denom()
	}
	if saved == nil {
		return g
	}
	g.debt.Sub(g.read(saved.(tat)), big.NewRat(g.now, 1))
	if g.debt.Sign() < 0 {
		g.debt.SetInt64(0)
	}
	if new(big.Rat).Add(g.debt, g.interval).Cmp(times(2*g.capacity, g.interval)) > 0 {
		g.debt = times(g.capacity-room(c, g.capacity), g.interval)
	}
	return g
}

// read is TAT in microseconds, as this rate reads it.
func (g *gcra) read(s tat) *big.Rat {
	switch {
	case s.ms && g.unit == 1:
		return big.NewRat(s.at*1000, 1)
	case !s.ms && g.unit == 1000:
		us := s.at
		if s.part > 0 {
			us++
		}
		return big.NewRat(ceilMS(us)*1000, 1)
	}
	part := new(big.Rat).SetFrac(big.NewInt(s.part), g.q)
	if part.Cmp(big.NewRat(1, 1)) >= 0 {
		part.SetInt64(1)
		if s.ms {
			part.SetInt64(0)
		}
	}
	if s.ms {
		part.Neg(part)
	}
	at := part.Add(part, big.NewRat(s.at, 1))
	return at.Mul(at, big.NewRat(g.unit, 1))
}

// over is D + cT - bT.
func (g *gcra) over(c int64) *big.Rat {
	d := new(big.Rat).Add(g.debt, times(c, g.interval))
	return d.Sub(d, times(g.capacity, g.interval))
}

func (g *gcra) fits(c int64) bool  { return g.over(c).Sign() <= 0 }
func (g *gcra) wait(c int64) int64 { return ceilMSRat(g.over(c)) }

func (g *gcra) delay() int64 {
	if g.leaky {
		return g.reset()
	}
	return 0
}

func (g *gcra) charge(c int64) { g.debt.Add(g.debt, times(c, g.interval)) }

func (g *gcra) refund(c int64) {
	g.debt.Sub(g.debt, times(c, g.interval))
	if g.debt.Sign() < 0 {
		g.debt.SetInt64(0)
	}
}

func (g *gcra) remaining() int64 {
	left := new(big.Rat).Sub(times(g.capacity, g.interval), g.debt)
	return max(0, floor(left.Quo(left, g.interval)).Int64())
}

func (g *gcra) reset() int64 { return ceilMSRat(g.debt) }

func (g *gcra) arrival() *big.Rat { return new(big.Rat).Add(big.NewRat(g.now, 1), g.debt) }

func (g *gcra) fullAt() int64 { return ceilMSRat(g.arrival()) }

func (g *gcra) save() any {
	at := g.arrival()
	at.Quo(at, big.NewRat(g.unit, 1))
	s := tat{ms: g.unit == 1000, at: floor(at).Int64()}
	if s.ms {
		s.at = ceil(at).Int64()
	}
	part := at.Sub(at, big.NewRat(s.at, 1))
	part.Abs(part).Mul(part, new(big.Rat).SetInt(g.q))
	if !part.IsInt() {
		panic("a debt that is no multiple of the rate's fraction: " + part.String())
	}
	s.part = part.Num().Int64()
	return s
}
