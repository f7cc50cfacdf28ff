// Package figures draws SVG pictures that follow the reader's choice of a light or dark page, and
// formats the numbers of reports.
package figures

import "strconv"

// Count formats a number with three significant digits, grouped by thousands.
func Count(f float64) string {
	digits := 1.0
	for f/digits >= 1000 {
		digits *= 10
	}
	return Grouped(int64(f/digits+0.5) * int64(digits))
}

// Grouped formats n with thousands separators: 38,231.
func Grouped(n int64) string {
	digits, sign := strconv.FormatInt(n, 10), ""
	if n < 0 {
		digits, sign = digits[1:], "-"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Brief abbreviates a number that is at least 1 and has only one nonzero digit: 10, 2k, 100k, 1M.
func Brief(f float64) string {
	n := int64(f)
	for _, unit := range []string{"", "k", "M"} {
		if n < 1000 {
			return strconv.FormatInt(n, 10) + unit
		}
		n /= 1000
	}
	return Grouped(n) + "G"
}
