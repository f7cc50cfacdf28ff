// Package penalty checks penalties: blocks of a key that are each twice as long as the last.
package penalty

import (
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/span"
)

const longest = 36500 * 24 * time.Hour

// Fault returns what is wrong with a penalty whose first block lasts first, whose longest lasts most, and
// which is forgotten forget after the end of a block. It returns "" if the library takes it.
func Fault(first, most, forget time.Duration) string {
	for _, d := range []struct {
		what string
		d    time.Duration
	}{{"a first block", first}, {"a longest block", most}, {"a memory", forget}} {
		if d.d < time.Millisecond || d.d > longest || d.d%time.Millisecond != 0 {
			return fmt.Sprintf("%s of %v; give whole milliseconds, from 1 ms to 36500 days", d.what, d.d)
		}
	}
	if first > most {
		return fmt.Sprintf("a first block of %s, which is above the longest, %s; give the shorter one first", span.Text(first), span.Text(most))
	}
	return ""
}
