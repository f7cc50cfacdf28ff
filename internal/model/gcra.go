package model

import "math/big"

// tat is what gcra and leaky_bucket keep: the theoretical arrival time, in whole microseconds and a part of the next
// one, in units of whichever fraction the rate that reads it has.
type tat struct{ us, part int64 }

// gcra is the standing of gcra and of leaky_bucket.
type gcra struct {
	capacity int64
	interval *big.Rat // T, in microseconds
	now      int64    // in microseconds, a whole number of milliseconds where the limit is decided in these
	debt     *big.Rat // D, in microseconds
	leaky    bool
}

func standGCRA(l Limit, r Rate, saved any, c int64, now instant) *gcra {
	g := &gcra{capacity: r.Capacity(), interval: r.interval(), now: int64(now), debt: new(big.Rat), leaky: l.Algorithm == LeakyBucket}
	if l.wholeMS() {
		g.now = now.ms() * 1000
	}
	if saved == nil {
		return g
	}
	at := g.read(saved.(tat))
	if l.wholeMS() {
		at = new(big.Rat).SetInt64(ceilMSRat(at) * 1000)
	}
	g.debt.Sub(at, big.NewRat(g.now, 1))
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
	denominator := g.interval.Denom()
	if denominator.Cmp(big.NewInt(s.part)) < 0 {
		return big.NewRat(s.us+1, 1)
	}
	part := new(big.Rat).SetFrac(big.NewInt(s.part), denominator)
	return part.Add(part, big.NewRat(s.us, 1))
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
	us := floor(at)
	part := at.Sub(at, new(big.Rat).SetInt(us))
	part.Mul(part, new(big.Rat).SetInt(g.interval.Denom()))
	if !part.IsInt() {
		panic("a debt that is no multiple of the rate's fraction: " + part.String())
	}
	return tat{us.Int64(), part.Num().Int64()}
}
