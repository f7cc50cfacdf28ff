package loader

import (
	"testing"
	"time"
)

// A difference between clocks that a slow reply could explain is not reported.
func TestClocksOfSlowReplies(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		times []clockReading
		found bool
	}{
		{[]clockReading{{"a", 0, 1 * ms}}, false},
		{[]clockReading{{"a", 0, 1 * ms}, {"b", 503 * ms, 1 * ms}}, true},
		{[]clockReading{{"a", 0, 1 * ms}, {"b", 502 * ms, 1 * ms}}, false},
		{[]clockReading{{"a", 0, 600 * ms}, {"b", 1000 * ms, 1 * ms}}, false},
		{[]clockReading{{"a", 0, 1 * ms}, {"b", 1000 * ms, 600 * ms}}, false},
		{[]clockReading{{"a", 0, 300 * ms}, {"b", 1000 * ms, 300 * ms}}, false},
		{[]clockReading{{"a", 0, 300 * ms}, {"b", -2000 * ms, 300 * ms}, {"c", -1000 * ms, 1 * ms}}, true},
	} {
		x := &examination{times: row.times}
		if x.clocks(); (len(x.Findings) == 1) != row.found {
			t.Errorf("%v: %+v", row.times, x.Findings)
		}
	}
}
