package policies

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	spanForm = regexp.MustCompile(`^(?:\d+(?:ms|s|m|h|d))+$`)
	spanPart = regexp.MustCompile(`(\d+)(ms|s|m|h|d)`)
)

// longestSpan is the longest that the library knows: 36500d.
const longestSpan = 36500 * 24 * time.Hour

// parseSpan reads 0, 90s, 1m30s, 500ms, 2d: whole numbers of ms, s, m, h, d.
func parseSpan(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if !spanForm.MatchString(text) {
		return 0, fmt.Errorf("%s is no duration; write one such as 0s, 500ms, 1m30s or 2d", shown(text))
	}
	var sum time.Duration
	for _, part := range spanPart.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(part[1], 10, 64)
		unit := time.Duration(unitMS[part[2]]) * time.Millisecond
		if err != nil || n > int64(longestSpan/unit) || sum+time.Duration(n)*unit > longestSpan {
			return 0, fmt.Errorf("%s is longer than 36500d", shown(text))
		}
		sum += time.Duration(n) * unit
	}
	return sum, nil
}

// spanText writes a whole number of ms the way parseSpan reads it.
func spanText(ms int64) string {
	if ms == 0 {
		return "0s"
	}
	var text strings.Builder
	for _, unit := range []string{"d", "h", "m", "s", "ms"} {
		if n := ms / unitMS[unit]; n > 0 {
			fmt.Fprintf(&text, "%d%s", n, unit)
			ms %= unitMS[unit]
		}
	}
	return text.String()
}
