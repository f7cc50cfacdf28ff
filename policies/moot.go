package policies

import (
	"fmt"
	"math/big"
)

// A rate of a limit is moot if another rate of the limit always denies first, so that removing it
// would never change a decision. Its author meant it to do something.

// mootRates describes the rates of a limit that never decide, and names the other rate in each
// case.
func mootRates(l limit) []string {
	var moot []string
	for i, b := range l.rates {
		for j, a := range l.rates {
			// If two rates are equal, the later one is moot.
			if i == j || !implied(l.algorithm, a, b) || (j > i && implied(l.algorithm, b, a)) {
				continue
			}
			moot = append(moot, fmt.Sprintf("the rate %s never decides, since %s always denies before it; remove it, or make it stricter", b.text, a.text))
			break
		}
	}
	return moot
}

// implied reports whether b is certain to allow whatever a allows. A true result is always right;
// for algorithms whose bounds are not exact, implied may miss a case.
func implied(algorithm string, a, b rate) bool {
	if a.n.Cmp(b.n) == 0 && a.period.Cmp(b.period) == 0 && a.capacity.Cmp(b.capacity) == 0 && a.buckets == b.buckets && a.aligned == b.aligned {
		return true
	}
	// Each case compares the most that a allows within the time that b can count with the capacity
	// of b.
	spans := ceilDiv(b.period, a.period)
	switch algorithm {
	case "gcra", "leaky_bucket":
		return slower(a, b) && a.capacity.Cmp(b.capacity) <= 0
	case "token_bucket":
		// Both refill in steps, at different times: b may be a whole step behind when a has just
		// refilled.
		held := new(big.Int).Sub(b.capacity, b.n)
		return slower(a, b) && held.Cmp(new(big.Int).Add(a.capacity, a.n)) >= 0
	case "sliding_log":
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	case "fixed_window":
		if a.aligned && b.aligned && (divides(a.period, b.period) || divides(b.period, a.period)) {
			return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
		}
		spans.Add(spans, big.NewInt(1)) // a window of a can begin before that of b
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	case "sliding_window":
		// b counts over one bucket more than its period, a over one less: two periods of b against
		// one of a are enough.
		spans = ceilDiv(new(big.Int).Mul(b.period, big.NewInt(2)), a.period)
		spans.Add(spans, big.NewInt(1))
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	}
	return false
}

// slower reports whether a refills no faster than b.
func slower(a, b rate) bool {
	return new(big.Int).Mul(a.n, b.period).Cmp(new(big.Int).Mul(b.n, a.period)) <= 0
}

func divides(a, b *big.Int) bool { return new(big.Int).Mod(b, a).Sign() == 0 }

func ceilDiv(a, b *big.Int) *big.Int {
	sum := new(big.Int).Add(a, b)
	sum.Sub(sum, big.NewInt(1))
	return sum.Div(sum, b)
}
