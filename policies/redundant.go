package policies

import (
	"cmp"
	"fmt"
	"math/bits"
)

// A rate of a limit is redundant if another rate of the limit always denies first, so removing it
// would not change any decision.

// redundantRates describes the redundant rates of a limit, each with the rate that makes it
// redundant.
func redundantRates(l limit) []string {
	var redundant []string
	for i, b := range l.rates {
		for j, a := range l.rates {
			// If each of two rates makes the other redundant, only the later one is reported.
			if i == j || !implied(l.algorithm, a, b) || (j > i && implied(l.algorithm, b, a)) {
				continue
			}
			redundant = append(redundant, fmt.Sprintf("the rate %s is redundant, because %s always denies first; remove it, or make it stricter", b.text, a.text))
			break
		}
	}
	return redundant
}

// implied reports whether rate b allows every call that rate a allows. For some algorithms it uses
// an approximate bound, and may return false although b allows all these calls.
func implied(algorithm string, a, b rate) bool {
	equal := a
	equal.text = b.text
	if equal == b {
		return true
	}
	// periods is the maximum number of windows of rate a whose units can count in one window of
	// rate b. For algorithms with windows, b allows every call that a allows if b.n is at least
	// periods * a.n.
	periods := ceilDiv(b.period, a.shortest())
	switch algorithm {
	case "gcra", "leaky_bucket":
		return slower(a, b) && a.capacity <= b.capacity
	case "token_bucket":
		// Both rates refill in steps, at different times. When rate a has just refilled, rate b may
		// be a whole step behind.
		return slower(a, b) && b.capacity-b.n >= a.capacity+a.n
	case "sliding_log":
	case "fixed_window":
		if !nested(a, b) {
			periods++ // a window of rate a can begin before a window of rate b and end within it
		}
	case "sliding_window":
		// A window's start is accurate to one bucket, and a bucket may be as long as the period. So
		// rate b may count the units of two of its periods, and rate a may allow the units of one
		// additional period.
		periods = ceilDiv(2*b.period, a.period) + 1
	default:
		return false
	}
	return compareProducts(periods, a.n, b.n, 1) <= 0
}

// nested reports whether no window of one rate can begin before a window of the other and end
// within it. nested always returns false for months and years, because their lengths vary.
func nested(a, b rate) bool {
	return a.aligned && b.aligned && a.months == 0 && b.months == 0 && a.shift == b.shift &&
		(b.period%a.period == 0 || a.period%b.period == 0)
}

// shortest returns the length of the rate's shortest window, in ms.
func (r rate) shortest() int64 {
	const day = 86_400_000
	switch r.months {
	case 1:
		return 28 * day
	case 12:
		return 365 * day
	}
	return r.period
}

// slower reports whether a refills no faster than b.
func slower(a, b rate) bool { return compareProducts(a.n, b.period, b.n, a.period) <= 0 }

// compareProducts compares a*b with c*d. All factors must be at least 0. The products may exceed 64
// bits.
func compareProducts(a, b, c, d int64) int {
	high, low := bits.Mul64(uint64(a), uint64(b))
	otherHigh, otherLow := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(high, otherHigh), cmp.Compare(low, otherLow))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
