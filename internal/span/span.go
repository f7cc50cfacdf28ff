// Package span parses and formats durations in the units of a limit.
package span

import (
	"fmt"
	"regexp"
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

// Format returns d, a positive number of milliseconds, as a period of a limit: one whole number and
// one unit.
func Format(d time.Duration) string {
	for _, unit := range units {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return d.String()
}

// sums matches the library's error for a period that does not begin with a number, which is also its
// error for a sum such as 1m30s.
var sums = regexp.MustCompile(`the period "(\w+)" does not begin with a whole number from 1 to \d+`)

// Correct replaces the library's error for a period such as 1m30s: the period of a limit has one
// unit. Other texts are returned unchanged.
func Correct(text string) string {
	return sums.ReplaceAllStringFunc(text, func(found string) string {
		period := sums.FindStringSubmatch(found)[1]
		d, err := Parse(period)
		if err != nil || d == 0 {
			return found
		}
		return fmt.Sprintf("the period %q has more than one unit; write %s", period, Format(d))
	})
}
