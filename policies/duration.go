package policies

import (
	"fmt"
	"strings"
)

// spanText formats a whole number of ms as a duration in a test file.
func spanText(ms int64) string {
	if ms == 0 {
		return "0s"
	}
	var text strings.Builder
	for _, unit := range []struct {
		name string
		ms   int64
	}{{"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}, {"ms", 1}} {
		if n := ms / unit.ms; n > 0 {
			fmt.Fprintf(&text, "%d%s", n, unit.name)
			ms %= unit.ms
		}
	}
	return text.String()
}
