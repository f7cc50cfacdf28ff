package policies

import (
	"fmt"
	"strings"
)

// spanText writes a whole number of ms as a duration of a test file.
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
