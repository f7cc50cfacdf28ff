// Package limittext parses limits, such as "10/s burst=20", without a server. The library is the
// authority on limits: a test compares every field with the reply from ratelimit_info.
package limittext

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limit is a limit as the library parses it.
type Limit struct {
	Algorithm string
	Rates     []Rate // empty for concurrency
}

// Rate is one rate of a limit.
type Rate struct {
	N        int64         // units per period; 0 denies every call
	Period   time.Duration // a month counts as 31 days, a year as 366 days
	Capacity int64         // maximum number of units at once
}

// Leases is the name of the algorithm for leases.
const Leases = "concurrency"

// Bounds that the library enforces.
const (
	longestText   = 1024
	longestPeriod = 32 // bytes
	mostRates     = 16
	mostCount     = 1 << 53
	mostBuckets   = 1000
	mostLeases    = 5000
	longestMS     = 36500 * dayMS
	dayMS         = 86400000
)

var (
	units    = map[string]int64{"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": dayMS}
	calendar = map[string]int64{"w": 7 * dayMS, "mo": 31 * dayMS, "y": 366 * dayMS}

	// options of each algorithm
	options = map[string][]string{
		"gcra": {"burst"}, "token_bucket": {"burst"}, "leaky_bucket": {"burst"}, "sliding_log": nil,
		"fixed_window": {"align", "zone", "from"}, "sliding_window": {"buckets"},
	}

	// most is the maximum sum of buckets (sliding_window) or of n (sliding_log) over the rates of a
	// limit.
	most = map[string]int64{"sliding_window": 3000, "sliding_log": 100000}

	named  = regexp.MustCompile(`(?s)^[ \t-\r]*([A-Za-z_][A-Za-z0-9_]*)[ \t-\r]+(.*)$`)
	leases = regexp.MustCompile(`^[ \t-\r]*concurrency[ \t-\r]+([^ \t-\r]+)[ \t-\r]+lease=([^ \t-\r]+)[ \t-\r]*$`)
	zone   = regexp.MustCompile(`^[+-](\d\d):([0-5]\d)$`)
)

// Parse parses a limit. It returns an error for a policy.
func Parse(text string) (Limit, error) {
	if len(text) > longestText {
		return Limit{}, fmt.Errorf("the limit has %d bytes, and at most %d are allowed", len(text), longestText)
	}
	limit := Limit{Algorithm: "gcra"}
	rates := text
	if m := named.FindStringSubmatch(text); m != nil {
		limit.Algorithm, rates = m[1], m[2]
	}
	if limit.Algorithm == Leases {
		return limit, checkLeases(text)
	}
	if _, ok := options[limit.Algorithm]; !ok {
		return Limit{}, fmt.Errorf("the algorithm %q is unknown", limit.Algorithm)
	}
	sum := int64(0)
	for part := range strings.SplitSeq(rates, ",") {
		rate, bounded, err := parseRate(limit.Algorithm, part)
		if err != nil {
			return Limit{}, err
		}
		limit.Rates, sum = append(limit.Rates, rate), sum+bounded
	}
	never := slices.ContainsFunc(limit.Rates, func(r Rate) bool { return r.N == 0 })
	switch bound, ok := most[limit.Algorithm]; {
	case len(limit.Rates) > mostRates:
		return Limit{}, fmt.Errorf("the limit has %d rates, and at most %d are allowed", len(limit.Rates), mostRates)
	case ok && sum > bound:
		return Limit{}, fmt.Errorf("the limit asks for %d buckets or calls, and at most %d are allowed", sum, bound)
	case never && len(limit.Rates) > 1:
		return Limit{}, fmt.Errorf("the count 0 takes no other rate")
	case !never && (limit.Algorithm == "gcra" || limit.Algorithm == "leaky_bucket") && !countable(limit.Rates):
		return Limit{}, fmt.Errorf("n/period is too fast for this burst to be counted exactly; use a smaller n or burst")
	}
	return limit, nil
}

// parseRate parses n/period [option=value ...]. bounded is the rate's number of buckets or, for
// sliding_log, of calls. Parse limits the sum of bounded over all rates.
func parseRate(algorithm, text string) (rate Rate, bounded int64, err error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' })
	if len(words) == 0 {
		return rate, 0, fmt.Errorf("a rate is missing")
	}
	count, period, ok := strings.Cut(words[0], "/")
	if !ok {
		return rate, 0, fmt.Errorf("%q is not a rate such as 100/m", words[0])
	}
	if rate.N, ok = number(count); !ok {
		return rate, 0, fmt.Errorf("the count %q is not a whole number from 0 to 2^53", count)
	}
	ms, unit, err := parsePeriod(period, algorithm == "fixed_window")
	if err != nil {
		return rate, 0, err
	}
	given := map[string]string{}
	for _, word := range words[1:] {
		name, value, found := strings.Cut(word, "=")
		if _, twice := given[name]; !found || twice || !slices.Contains(options[algorithm], name) {
			return rate, 0, fmt.Errorf("the option %q is given twice, or %s does not have it", word, algorithm)
		}
		given[name] = value
	}
	rate.Period, rate.Capacity = time.Duration(ms)*time.Millisecond, rate.N
	if rate.N == 0 {
		if len(given) > 0 || calendar[unit] > 0 {
			return rate, 0, fmt.Errorf("the count 0 takes no option, and a period in ms, s, m, h or d")
		}
		return rate, 0, nil
	}
	bounded, err = complete(&rate, algorithm, ms, unit, given)
	if err == nil && exceeds(rate.Capacity, rate.N, longestMS, ms) {
		err = fmt.Errorf("the limit takes longer than 36500d to refill")
	}
	return rate, bounded, err
}

// exceeds reports whether a/b > c/d, exactly. All numbers are positive.
func exceeds(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(d))
	otherHigh, otherLow := bits.Mul64(uint64(c), uint64(b))
	return high > otherHigh || high == otherHigh && low > otherLow
}

// complete checks the options of a rate, and sets its capacity. given maps the options' names to
// their values. ms is the period in ms, and unit is the unit in which it is written. bounded is as
// in parseRate.
func complete(rate *Rate, algorithm string, ms int64, unit string, given map[string]string) (bounded int64, err error) {
	bounded = 1
	if algorithm == "sliding_log" {
		bounded = rate.N
	}
	for name, value := range given {
		n, ok := number(value)
		switch name {
		case "burst":
			rate.Capacity, ok = n, ok && n > 0
		case "buckets":
			bounded, ok = n, ok && n > 0 && n <= mostBuckets && ms%n == 0
		case "align":
			ok = value == "clock"
		case "from":
			ok = ok && n > 0 && n <= 31 && unit == "mo"
		case "zone":
			ok = given["align"] != "" && ms%dayMS == 0 && validZone(value)
		}
		if !ok {
			return 0, fmt.Errorf("%s=%s is not valid here", name, value)
		}
	}
	if calendar[unit] > 0 && given["align"] == "" {
		return 0, fmt.Errorf("the period %s needs align=clock", unit)
	}
	return bounded, nil
}

// parsePeriod parses a period such as "m" or "10s". It accepts weeks, months and years of the
// calendar only if withCalendar is true.
func parsePeriod(text string, withCalendar bool) (ms int64, unit string, err error) {
	digits := strings.TrimRightFunc(text, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' })
	unit = text[len(digits):]
	k, ok := int64(1), true
	if digits != "" {
		k, ok = number(digits)
	}
	length, known := units[unit]
	if longest, of := calendar[unit]; of && withCalendar {
		length, known, ok = longest, true, ok && k == 1
	}
	if !known || !ok || k == 0 || len(text) > longestPeriod || k > longestMS/length {
		return 0, "", fmt.Errorf("%q is not a period such as 1s, 5m or 30d, of at most 36500d", text)
	}
	return k * length, unit, nil
}

// checkLeases returns an error unless text is a limit for leases.
func checkLeases(text string) error {
	m := leases.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("the limit is not of the form concurrency n lease=30s")
	}
	if n, ok := number(m[1]); !ok || n == 0 || n > mostLeases {
		return fmt.Errorf("the count %q is not a whole number from 1 to %d", m[1], mostLeases)
	}
	_, _, err := parsePeriod(m[2], false)
	return err
}

// number parses decimal digits, up to 2^53.
func number(text string) (int64, bool) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n <= mostCount
}

// validZone reports whether text is an offset from UTC of at most 18 hours.
func validZone(text string) bool {
	m := zone.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	hours, _ := number(m[1])
	minutes, _ := number(m[2])
	return hours*60+minutes <= 18*60
}
