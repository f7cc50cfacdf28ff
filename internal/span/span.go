// Package span parses and formats durations in the units of a limit.
package span

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// longest is the maximum duration that the library accepts: 36500d.
const longest = 36500 * 24 * time.Hour

var (
	form = regexp.MustCompile(`^(?:0|(?:(?:0|[1-9]\d*)(?:ms|s|m|h|d))+)$`)
	part = regexp.MustCompile(`(\d+)(\D+)`)
)

// Parse parses a duration in the units of a limit, or a sum of several: 0, 500ms, 1m30s, 2d, 1d12h.
// Numbers must be whole and have no leading zeros. The result is never negative, and at most
// 36500d.
func Parse(text string) (time.Duration, error) {
	if !form.MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration; write one such as 500ms, 1m30s or 2d", text)
	}
	var sum time.Duration
	for _, p := range part.FindAllStringSubmatch(text, -1) {
		unit, times := p[2], time.Duration(1)
		if unit == "d" {
			unit, times = "h", 24
		}
		d, err := time.ParseDuration(p[1] + unit)
		if err != nil || d > (longest-sum)/times {
			return 0, fmt.Errorf("%q is longer than 36500d", text)
		}
		sum += d * times
	}
	return sum, nil
}

var units = []struct {
	name string
	of   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// Text formats a duration that is not negative, in whole milliseconds, so that [Parse] parses it:
// 0s, 1m30s, 1d12h.
func Text(d time.Duration) string {
	if d < time.Millisecond {
		return "0s"
	}
	var text strings.Builder
	for _, unit := range units {
		if n := d / unit.of; n > 0 {
			fmt.Fprintf(&text, "%d%s", n, unit.name)
			d %= unit.of
		}
	}
	return text.String()
}

// Format returns d as the period of a limit: one whole number and one unit. d must be a positive
// multiple of a millisecond.
func Format(d time.Duration) string {
	for _, unit := range units {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return d.String()
}
