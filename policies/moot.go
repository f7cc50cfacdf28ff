package policies

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// A rate of a limit is moot if another of the same limit always denies first: whatever the calls, taking it away would
// change no decision. People mean it to do something.

// rate is one rate of a limit that the library has accepted. It is only taken apart here, never judged.
type rate struct {
	text     string
	n        *big.Int // units a period
	period   *big.Int // ms
	capacity *big.Int // as the library says
	options  string
}

var (
	limitForm = regexp.MustCompile(`^\s*(?:([A-Za-z_]\w*)\s+)?(.*)$`)
	rateForm  = regexp.MustCompile(`^\s*(\d+)/(\d*)(ms|s|m|h|d)(?:\s+(.*?))?\s*$`)
)

var unitMS = map[string]int64{"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

// mootRates says which rates of a limit never decide, and because of which other. capacity asks the library for the
// most that a limit lets through at once.
func mootRates(limit string, capacity func(string) int64) []string {
	parts := limitForm.FindStringSubmatch(limit)
	if parts == nil {
		return nil
	}
	algorithm := parts[1]
	var rates []rate
	for _, text := range strings.Split(parts[2], ",") {
		match := rateForm.FindStringSubmatch(text)
		if match == nil {
			return nil
		}
		n, _ := new(big.Int).SetString(match[1], 10)
		k := big.NewInt(1)
		if match[2] != "" {
			k.SetString(match[2], 10)
		}
		text = strings.TrimSpace(text)
		rates = append(rates, rate{
			text: text, n: n, period: k.Mul(k, big.NewInt(unitMS[match[3]])), options: strings.Join(strings.Fields(match[4]), " "),
		})
	}
	if len(rates) < 2 {
		return nil
	}
	for i := range rates {
		rates[i].capacity = big.NewInt(capacity(algorithm + " " + rates[i].text))
	}
	var moot []string
	for i, b := range rates {
		for j, a := range rates {
			// Of two equal ones the later is moot.
			if i == j || !implied(algorithm, a, b) || (j > i && implied(algorithm, b, a)) {
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
	if a.n.Cmp(b.n) == 0 && a.period.Cmp(b.period) == 0 && a.capacity.Cmp(b.capacity) == 0 && a.options == b.options {
		return true
	}
	// In each case: the most that a lets through in a span in which b can count it, against what b holds.
	spans := ceilDiv(b.period, a.period)
	switch algorithm {
	case "", "gcra", "leaky_bucket":
		return slower(a, b) && a.capacity.Cmp(b.capacity) <= 0
	case "token_bucket":
		// Both add in steps, each at times of its own: b may be a whole step behind when a has just made one.
		held := new(big.Int).Sub(b.capacity, b.n)
		return slower(a, b) && held.Cmp(new(big.Int).Add(a.capacity, a.n)) >= 0
	case "sliding_log":
		return b.n.Cmp(spans.Mul(spans, a.n)) >= 0
	case "fixed_window":
		aligned := func(r rate) bool { return r.options == "align=clock" }
		if aligned(a) && aligned(b) && (divides(a.period, b.period) || divides(b.period, a.period)) {
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
