package model

import "math/big"

// tokens is what token_bucket keeps: how many are left, and when some were last added, in microseconds.
type tokens struct{ left, added int64 }

type tokenBucket struct {
	rate Rate
	now  int64
	tokens
}

func standTokenBucket(r Rate, saved any, c int64, now instant) *tokenBucket {
	b := &tokenBucket{rate: r, now: int64(now)}
	b.tokens = tokens{r.Capacity(), b.now}
	if saved == nil {
		return b
	}
	s := saved.(tokens)
	if b.now >= s.added {
		k := (b.now - s.added) / r.periodUS()
		sum := new(big.Int).Mul(big.NewInt(k), big.NewInt(r.N))
		sum.Add(sum, big.NewInt(s.left))
		if sum.Cmp(big.NewInt(r.Capacity())) >= 0 {
			return b
		}
		s = tokens{sum.Int64(), s.added + k*r.periodUS()}
	}
	if s.left >= r.Capacity() {
		return b
	}
	if s.left == 0 && s.added+r.periodUS()-b.now > b.refill(r.Capacity()) {
		s = tokens{room(c, r.Capacity()), b.now}
	}
	b.tokens = s
	return b
}

// refill is R(m), how long m tokens take, in microseconds.
func (b *tokenBucket) refill(m int64) int64 { return ceilDiv(m, b.rate.N) * b.rate.periodUS() }

func (b *tokenBucket) fits(c int64) bool  { return c <= b.left }
func (b *tokenBucket) wait(c int64) int64 { return ceilMS(b.added + b.refill(c-b.left) - b.now) }
func (b *tokenBucket) delay() int64       { return 0 }
func (b *tokenBucket) charge(c int64)     { b.left -= c }
func (b *tokenBucket) refund(c int64)     { b.left = min(b.left+c, b.rate.Capacity()) }
func (b *tokenBucket) remaining() int64   { return b.left }

func (b *tokenBucket) reset() int64 {
	if b.left == b.rate.Capacity() {
		return 0
	}
	return ceilMS(b.full() - b.now)
}

func (b *tokenBucket) full() int64   { return b.added + b.refill(b.rate.Capacity()-b.left) }
func (b *tokenBucket) fullAt() int64 { return ceilMS(b.full()) }
func (b *tokenBucket) save() any     { return b.tokens }
