package policies

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/span"
)

var spanForm = regexp.MustCompile(`^(?:0|(?:\d+(?:ms|s|m|h|d))+)$`)

// parseSpan reads 0, 90s, 1m30s, 500ms, 2d: whole numbers of ms, s, m, h, d.
func parseSpan(text string) (time.Duration, error) {
	if !spanForm.MatchString(text) {
		return 0, fmt.Errorf("%s is no duration; write one such as 0s, 500ms, 1m30s or 2d", shown(text))
	}
	d, err := span.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("%s is longer than 36500d", shown(text))
	}
	return d, nil
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
