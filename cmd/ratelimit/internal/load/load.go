// Package load sends requests to a limiter, at a given rate or as fast as possible, and reports the
// replies.
//
// In a closed loop each worker sends its next request after it has a reply, so a slow server gets
// fewer requests. In an open loop requests are due at fixed times, regardless of the server's
// speed, and latency is measured from the due time, so it includes the wait for a free worker.
// (Leaving this wait out is the mistake known as coordinated omission.)
package load

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// Options configures a run. The run ends when it reaches Count or For, whichever is first.
type Options struct {
	Workers  int                // number of concurrent requests
	Rate     float64            // requests per second in an open loop, or 0 for a closed loop
	Ramp     *Ramp              // if not nil, replaces Rate
	Count    int64              // total number of decisions; 0: no limit
	For      time.Duration      // time during which requests may start; 0: no limit
	Keys     int                // number of keys
	Zipf     float64            // Zipf exponent of the keys, above 1; 0: all keys are equally likely
	Seed     uint64             // seed of the random keys
	Kind     func(error) string // returns the kind of an error, for Report.Messages; the default is its text
	Progress func(Progress)     // if not nil, called several times a second
}

// Progress reports how far a run has advanced.
type Progress struct {
	Decisions int64 // including errors
	Took      time.Duration
}

// Ask makes one decision for a key. Keys are numbered from 0. Ask must be safe for concurrent use.
type Ask func(ctx context.Context, key int) (allowed bool, err error)

// A Report is the result of a run. Latencies are measured for decisions, but not for errors.
type Report struct {
	Counts
	Took        time.Duration
	NotBegun    int64     // decisions of an open loop that were due within Options.For, but had no free worker
	Interrupted bool      // whether the context ended before the run was over
	Seconds     []Counts  // counts by the second in which the decisions ended
	Steps       []Step    // steps of a ramp; a decision counts in the step in which it was due
	Messages    []Message // error messages in the order of their first occurrence; at most 5 kinds
	latency     *hdrhistogram.Histogram
}

// Counts holds the numbers of allowed, denied and failed decisions.
type Counts struct{ Allowed, Denied, Errors int64 }

// Decisions returns the number of all decisions, including errors.
func (c Counts) Decisions() int64 { return c.Allowed + c.Denied + c.Errors }

func (c *Counts) add(allowed bool, err error) {
	switch {
	case err != nil:
		c.Errors++
	case allowed:
		c.Allowed++
	default:
		c.Denied++
	}
}

// A Message is the first error of one kind, and the number of errors of that kind.
type Message struct {
	Text  string `json:"text"`
	Count int64  `json:"count"`
}

const (
	mostMessages = 5
	longest      = 10 * time.Minute // longer latencies count as 10 minutes
	digits       = 3                // significant digits of a latency
	progressing  = 100 * time.Millisecond
)

// Run makes decisions until the run is over or ctx is done. Calls interrupted by ctx are not
// counted.
func Run(ctx context.Context, ask Ask, o Options) *Report {
	r := &run{ask: ask, o: o, report: Report{latency: newHistogram(), Steps: o.steps()}, began: time.Now()}
	var workers, watcher sync.WaitGroup
	over := make(chan struct{})
	if o.Progress != nil {
		watcher.Go(func() { r.watch(over) })
	}
	for i := range o.Workers {
		workers.Go(func() { r.work(ctx, r.keys(uint64(i))) })
	}
	workers.Wait()
	close(over)
	watcher.Wait()
	r.report.Took = time.Since(r.began)
	r.report.Interrupted = ctx.Err() != nil
	if r.late.Load() && !r.report.Interrupted {
		due := o.dueBefore(o.For)
		if o.Count > 0 {
			due = min(due, o.Count)
		}
		r.report.NotBegun = max(0, due-r.report.Decisions())
		for i, s := range r.report.Steps {
			r.report.Steps[i].NotBegun = max(0, o.dueBefore(s.End)-o.dueBefore(s.Start)-s.Decisions())
		}
	}
	return &r.report
}

type run struct {
	ask   Ask
	o     Options
	began time.Time
	next  atomic.Int64 // number of the next decision
	late  atomic.Bool  // whether time ran out before a due decision could start

	mu     sync.Mutex
	report Report
	kinds  []string // kinds[i] is the kind of report.Messages[i]
}

// keys returns a source of random keys for a worker.
func (r *run) keys(worker uint64) func() int {
	source := rand.New(rand.NewPCG(r.o.Seed, worker))
	if r.o.Zipf == 0 {
		return func() int { return source.IntN(r.o.Keys) }
	}
	zipf := rand.NewZipf(source, r.o.Zipf, 1, uint64(r.o.Keys-1))
	return func() int { return int(zipf.Uint64()) }
}

func (r *run) work(ctx context.Context, key func() int) {
	for {
		n := r.next.Add(1) - 1
		if r.o.Count > 0 && n >= r.o.Count {
			return
		}
		begin := time.Now()
		due := begin.Sub(r.began)
		if r.o.open() {
			due = r.o.due(n)
			begin = r.began.Add(due)
		}
		if r.o.For > 0 && due >= r.o.For {
			return
		}
		if r.o.For > 0 && time.Since(r.began) >= r.o.For {
			r.late.Store(true)
			return
		}
		if sleep.For(ctx, time.Until(begin)) != nil {
			return
		}
		allowed, err := r.ask(ctx, key())
		if ctx.Err() != nil {
			return
		}
		r.note(allowed, err, due, time.Now())
	}
}

// note counts a decision. due is its due time, relative to the start, and end is when it ended. The
// latency of an error is not recorded.
func (r *run) note(allowed bool, err error, due time.Duration, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &r.report
	took := min(max((end.Sub(r.began)-due).Microseconds(), 1), longest.Microseconds())
	second := int(end.Sub(r.began) / time.Second)
	for len(rep.Seconds) <= second {
		rep.Seconds = append(rep.Seconds, Counts{})
	}
	rep.Seconds[second].add(allowed, err)
	step := rep.step(due, r.o.For)
	if step != nil {
		step.add(allowed, err)
	}
	if rep.add(allowed, err); err != nil {
		r.message(err)
		return
	}
	_ = rep.latency.RecordValue(took) // always within bounds
	if step != nil {
		_ = step.latency.RecordValue(took)
	}
}

func (r *run) message(err error) {
	kind := err.Error()
	if r.o.Kind != nil {
		kind = r.o.Kind(err)
	}
	if i := slices.Index(r.kinds, kind); i >= 0 {
		r.report.Messages[i].Count++
	} else if len(r.kinds) < mostMessages {
		r.kinds = append(r.kinds, kind)
		r.report.Messages = append(r.report.Messages, Message{err.Error(), 1})
	}
}

func (r *run) watch(over <-chan struct{}) {
	ticker := time.NewTicker(progressing)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
			r.mu.Lock()
			n := r.report.Decisions()
			r.mu.Unlock()
			r.o.Progress(Progress{n, time.Since(r.began)})
		}
	}
}

// PerSecond returns the number of decisions per second, without errors.
func (r *Report) PerSecond() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Allowed+r.Denied) / r.Took.Seconds()
}

// Latency returns the time within which the given share of the replies arrived, rounded to three
// digits. share is between 0 and 1; 1 means all replies. If there were no replies, Latency returns
// 0.
func (r *Report) Latency(share float64) time.Duration {
	return latency(r.latency, share)
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), digits)
}

func latency(of *hdrhistogram.Histogram, share float64) time.Duration {
	return time.Duration(of.ValueAtQuantile(100*share)) * time.Microsecond
}
