package backtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// shortWait is the longest wait of a denied key under the suggestions that Start prefers.
const shortWait = 10 * time.Second

// manyPeriods is how many periods a log must cover, so that Start recommends a limit with this period:
// a log of two hours has only two hours to compare.
const manyPeriods = 10

// Start returns the suggestion to start with, or nil if there are no suggestions. It chooses the
// suggestion with the longest period among those under which a denied key waits at most shortWait.
// If there are none, it chooses the suggestion with the shortest wait. It considers only periods that
// the log covers manyPeriods times or, if there are none, the shortest period.
func (r *Report) Start() (start *Result) {
	covered := time.Duration(r.Log.Last-r.Log.First) * time.Millisecond / manyPeriods
	for i := range r.Limits {
		next := &r.Limits[i]
		switch {
		case next.Suggested == nil:
		case start == nil:
			start = next
		case min(next.Suggested.period, start.Suggested.period) > covered: // neither is covered
			if next.Suggested.period < start.Suggested.period {
				start = next
			}
		case next.Suggested.period > covered:
		case start.Suggested.period > covered:
			start = next
		case next.Wait() > shortWait && start.Wait() > shortWait:
			if next.Wait() < start.Wait() {
				start = next
			}
		case next.Wait() <= shortWait && (start.Wait() > shortWait || next.Suggested.period > start.Suggested.period):
			start = next
		}
	}
	return start
}

// Wait returns how long a suggested limit takes to refill the average cost of a request. For
// fixed_window, it returns the period.
func (r Result) Wait() time.Duration {
	if r.Suggested == nil || r.Requests == 0 {
		return 0
	}
	if strings.HasPrefix(r.Limit, "fixed_window") {
		return r.Suggested.period
	}
	units := max(1, float64(r.AllUnits())/float64(r.Requests))
	return min(time.Duration(float64(r.Suggested.period)*units/float64(r.Suggested.N)), r.Suggested.period*1000)
}

// WaitText formats Wait for display.
func (r Result) WaitText() string {
	wait := r.Wait()
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		switch n := wait.Seconds() / unit.of.Seconds(); {
		case n >= 10:
			return fmt.Sprintf("%.0f %s", n, unit.name)
		case n >= 1:
			return fmt.Sprintf("%.2g %s", n, unit.name)
		}
	}
	return "<1 ms"
}

// Why explains why Start chose this suggestion from the given number of suggestions. It returns ""
// if there was no choice.
func (r Result) Why(suggestions int) string {
	text := fmt.Sprintf("A denied %s can go on after about %s. ", r.Noun(), r.WaitText())
	switch {
	case suggestions < 2:
		return ""
	case r.Wait() > shortWait:
		return text + "The other suggestions make it wait longer, or have periods that the log covers less than ten times."
	}
	return text + fmt.Sprintf("A longer period stops more of a steady stream, but makes a denied %s wait longer. Of these limits, this one has the longest period with a wait of at most 10 s that the log covers ten times. If there is none, it has the shortest period.",
		r.Noun())
}

// Meaning explains a suggested limit in words.
func (r Result) Meaning() string {
	s, what := r.Suggested, "request"
	if r.Cost != "" {
		what = "unit"
	}
	if s.N > 1 {
		what += "s"
	}
	rate := fmt.Sprintf("%s %s per %s for each %s", figures.Grouped(s.N), what, per(s.period), r.Noun())
	switch {
	case strings.HasPrefix(r.Limit, "fixed_window"):
		return rate + ", in windows that begin with the first request"
	case s.Burst == 1:
		return rate + ", one at a time"
	}
	return fmt.Sprintf("%s, refilled evenly, and at most %s at once", rate, figures.Grouped(s.Burst))
}

// Noun returns a noun for a key of the result, such as client.
func (r Result) Noun() string { return noun(r.Key) }

func noun(key string) string {
	if key == "client" || key == "user" || key == "path" {
		return key
	}
	return "key"
}

// per returns a period for use after "per": second, 10 seconds, 1500ms.
func per(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := d / unit.of; d%unit.of == 0 && n > 1 {
			return fmt.Sprintf("%d %ss", n, unit.name)
		} else if d == unit.of {
			return unit.name
		}
	}
	return span.Format(d)
}
