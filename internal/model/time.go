package model

import "math/big"

// An instant is the time of a call, in whole microseconds since the epoch.
type instant int64

// ms is the instant in whole milliseconds, rounded down.
func (t instant) ms() int64 { return int64(t) / 1000 }

// ceilMS is so many microseconds in milliseconds, rounded up.
func ceilMS(us int64) int64 {
	ms := us / 1000
	if us%1000 > 0 {
		ms++
	}
	return ms
}

func ceil(r *big.Rat) *big.Int {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

// ceilMSRat is so many microseconds in milliseconds, rounded up.
func ceilMSRat(us *big.Rat) int64 {
	return ceil(new(big.Rat).Quo(us, big.NewRat(1000, 1))).Int64()
}

func times(k int64, r *big.Rat) *big.Rat { return new(big.Rat).Mul(big.NewRat(k, 1), r) }

// ceilDiv is a/b rounded up, for b above 0 and a not below.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
