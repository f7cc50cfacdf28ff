package load

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Ramp is an open loop whose rate changes evenly, from From to To decisions per second, over
// Options.For.
type Ramp struct{ From, To float64 }

// A Step is a tenth of a ramp, with the decisions that were due in that time.
type Step struct {
	Start, End time.Duration
	Rate       float64 // decisions per second in the middle of the step
	NotBegun   int64   // decisions that were due, but had no free worker
	Counts
	latency *hdrhistogram.Histogram
}

const stepsOfRamp = 10

// open reports whether the run is an open loop.
func (o Options) open() bool { return o.Rate > 0 || o.Ramp != nil }

// due returns the due time of decision n, relative to the start.
func (o Options) due(n int64) time.Duration {
	if o.Ramp == nil {
		return time.Duration(float64(n) / o.Rate * float64(time.Second))
	}
	if n == 0 {
		return 0
	}
	// After t seconds, From*t + slope*t²/2 decisions have been due.
	slope := (o.Ramp.To - o.Ramp.From) / o.For.Seconds()
	root := o.Ramp.From*o.Ramp.From + 2*slope*float64(n)
	if root < 0 { // the rate falls to 0 before decision n
		return math.MaxInt64
	}
	seconds := 2 * float64(n) / (o.Ramp.From + math.Sqrt(root))
	if seconds >= o.For.Seconds() {
		return max(o.For, time.Duration(min(seconds, 1e9)*float64(time.Second)))
	}
	return time.Duration(seconds * float64(time.Second))
}

// dueBefore returns the number of decisions that are due before the time at, which is relative to
// the start.
func (o Options) dueBefore(at time.Duration) int64 {
	t := at.Seconds()
	if o.Ramp == nil {
		return int64(math.Ceil(o.Rate * t))
	}
	slope := (o.Ramp.To - o.Ramp.From) / o.For.Seconds()
	return int64(math.Ceil(o.Ramp.From*t + slope*t*t/2))
}

// steps returns the steps of the ramp, or nil if there is none.
func (o Options) steps() (steps []Step) {
	if o.Ramp == nil {
		return nil
	}
	for i := range stepsOfRamp {
		steps = append(steps, Step{
			Start: o.For * time.Duration(i) / stepsOfRamp, End: o.For * time.Duration(i+1) / stepsOfRamp,
			Rate:    o.Ramp.From + (o.Ramp.To-o.Ramp.From)*(float64(i)+0.5)/stepsOfRamp,
			latency: newHistogram(),
		})
	}
	return steps
}

// step returns the step in which a decision was due, or nil without a ramp. due is relative to the
// start, and total is the duration of the ramp.
func (r *Report) step(due, total time.Duration) *Step {
	if len(r.Steps) == 0 {
		return nil
	}
	return &r.Steps[min(len(r.Steps)-1, int(float64(due)/float64(total)*float64(len(r.Steps))))]
}

// Latency returns the time within which the given share of the step's replies arrived; see
// [Report.Latency].
func (s Step) Latency(share float64) time.Duration { return latency(s.latency, share) }

// LatencyText formats Latency for display; it returns "-" if there were no replies.
func (s Step) LatencyText(share float64) string {
	if s.Allowed+s.Denied == 0 {
		return "-"
	}
	return s.Latency(share).String()
}
