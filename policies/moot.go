package policies

import (
	"fmt"
	"math/big"
)

// A rate of a limit is moot if another of the same limit always denies first: whatever the calls, taking it away would
// change no decision. People mean it to do something.

// mootRates says which rates of a limit never decide, and because of which other.
func mootRates(l limit) []string {
	var moot []string
	for i, b := range l.rates {
		for j, a := range l.rates {
			// Of two equal ones the later is moot.
			if i == j || !implied(l.algorithm, a, b) || (j > i && implied(l.algorithm, b, a)) {
				continue
			}
			moot = append(moot, fmt.Sprintf("the rate %s never decides, since %s always denies before it; remove it, or make it stricter", b.text, a.text))
			break
		}
	}
	return moot
}

// implied tells whether b is certain to allow whatever a allows. It never says so wrongly; for the algorithms whose
// bounds are not exact it may miss a case.
func implied(algorithm string, a, b rate) bool {
	if a.n.Cmp(b.n) == 0 && a.period.Cmp(b.period) == 0 && a.capacity.Cmp(b.capacity) == 0 && a.buckets == b.buckets && a.aligned == b.aligned {
		return true
	}
	// In each case: the most that a lets through in a span in which b can count it, against what b holds.
	spans := ceilDiv(b.period, a.period)
	switch algorithm {
	case "gcra", "leaky_bucket":
		return slower(a, b) && a.capacity.Cmp(b.capacity) <= 0
	case "token_bucket":
		// Both add in steps, each at times of its own: b may be a whole step behind when a has just made one.
		held := new(big.Int).Sub(b.capacity, b.n)
		return slower(a, b) && held.Cmp(new(big.Int).Add(a.capacity, a.n)) >= 0
	case "sliding_log":
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	case "fixed_window":
		if a.aligned && b.aligned && (divides(a.period, b.period) || divides(b.period, a.period)) {
			return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
		}
		spans.Add(spans, big.NewInt(1)) // a window of a can have begun before that of b
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	case "sliding_window":
		// b counts over one bucket more than its period, a over one less: two periods against one are enough.
		spans = ceilDiv(new(big.Int).Mul(b.period, big.NewInt(2)), a.period)
		spans.Add(spans, big.NewInt(1))
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	}
	return false
}

// slower tells whether a refills no faster than b.
func slower(a, b rate) bool {
	return new(big.Int).Mul(a.n, b.period).Cmp(new(big.Int).Mul(b.n, a.period)) <= 0
}

func divides(a, b *big.Int) bool { return new(big.Int).Mod(b, a).Sign() == 0 }

func ceilDiv(a, b *big.Int) *big.Int {
	sum := new(big.Int).Add(a, b)
	sum.Sub(sum, big.NewInt(1))
	return sum.Div(sum, b)
}
