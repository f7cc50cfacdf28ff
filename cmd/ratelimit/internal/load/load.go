// Package load asks a limiter for decisions, as many and as fast as it is told to, and reports how it replied.
//
// In a closed loop each worker asks again once it has its reply, so a slow server is asked less. In an open loop decisions
// begin at set times, whatever the server does, and a latency counts from the time at which its decision was to begin: what
// waits for a free worker is slow, too. (Gil Tene calls the mistake of not doing so coordinated omission.)
package load

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Options say how to ask. Count or For, or both, end the run.
type Options struct {
	Workers  int                // how many ask at one time
	Rate     float64            // decisions that are to begin each second, in an open loop; 0: a closed loop
	Count    int64              // decisions in all; 0: no bound
	For      time.Duration      // how long decisions may begin; 0: no bound
	Keys     int                // how many keys there are
	Zipf     float64            // above 1: key i is asked for in proportion to (1+i)^-Zipf; 0: each as often
	Seed     uint64             // of the keys that are drawn
	Kind     func(error) string // by what errors are counted together; nil: by their text
	Progress func(Progress)     // called several times a second, if it is not nil
}

// Progress is how far a run has come.
type Progress struct {
	Decisions int64 // with errors
	Took      time.Duration
}

// Ask is one decision over a key, counted from 0. Several goroutines call it.
type Ask func(ctx context.Context, key int) (allowed bool, err error)

// A Report is what a run has measured. Latencies are those of replies, not of errors.
type Report struct {
	Allowed, Denied, Errors int64
	Took                    time.Duration
	NotBegun                int64     // decisions of an open loop that were due within Options.For, and had no worker until its end
	Interrupted             bool      // the context ended before the run
	Seconds                 []Counts  // by the second in which they ended
	Messages                []Message // of errors, the first that came first; at most 5 kinds
	latency                 *hdrhistogram.Histogram
}

// Counts are decisions.
type Counts struct{ Allowed, Denied, Errors int64 }

// A Message is an error, the first of its kind, and how often that kind came.
type Message struct {
	Text  string `json:"text"`
	Count int64  `json:"count"`
}

const (
	mostMessages = 5
	longest      = 10 * time.Minute // latency that is told from longer ones
	digits       = 3                // of a latency
	progressing  = 100 * time.Millisecond
)

// Run asks until the run is over or ctx ends. Calls that the end of ctx interrupts do not count.
func Run(ctx context.Context, ask Ask, o Options) *Report {
	r := &run{ask: ask, o: o, report: Report{latency: hdrhistogram.New(1, longest.Microseconds(), digits)}, began: time.Now()}
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
		due := int64(math.Ceil(o.Rate * o.For.Seconds()))
		if o.Count > 0 {
			due = min(due, o.Count)
		}
		r.report.NotBegun = max(0, due-r.report.Decisions())
	}
	return &r.report
}

type run struct {
	ask   Ask
	o     Options
	began time.Time
	next  atomic.Int64 // the number of the decision to begin next
	late  atomic.Bool  // whether the time was over before a decision that was due could begin

	mu     sync.Mutex
	report Report
	kinds  []string // of report.Messages
}

// keys returns a source of keys for a worker.
func (r *run) keys(worker uint64) func() int {
	source := rand.New(rand.NewPCG(r.o.Seed, worker))
	if r.o.Zipf == 0 {
		return func() int { return source.IntN(r.o.Keys) }
	}
	zipf := rand.NewZipf(source, r.o.Zipf, 1, uint64(r.o.Keys-1))
	return func() int { return int(zipf.Uint64()) }
}

// work asks for one decision after the other.
func (r *run) work(ctx context.Context, key func() int) {
	for {
		n := r.next.Add(1) - 1
		if r.o.Count > 0 && n >= r.o.Count {
			return
		}
		begin := time.Now()
		if r.o.Rate > 0 {
			begin = r.began.Add(time.Duration(float64(n) / r.o.Rate * float64(time.Second)))
		}
		if r.o.For > 0 && begin.Sub(r.began) >= r.o.For {
			return
		}
		if r.o.For > 0 && time.Since(r.began) >= r.o.For {
			r.late.Store(true)
			return
		}
		if !sleep(ctx, time.Until(begin)) {
			return
		}
		allowed, err := r.ask(ctx, key())
		if ctx.Err() != nil {
			return
		}
		r.note(allowed, err, begin, time.Now())
	}
}

// sleep returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *run) note(allowed bool, err error, begin, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &r.report
	second := int(end.Sub(r.began) / time.Second)
	for len(rep.Seconds) <= second {
		rep.Seconds = append(rep.Seconds, Counts{})
	}
	now := &rep.Seconds[second]
	switch {
	case err != nil:
		rep.Errors++
		now.Errors++
		r.message(err)
		return
	case allowed:
		rep.Allowed++
		now.Allowed++
	default:
		rep.Denied++
		now.Denied++
	}
	_ = rep.latency.RecordValue(min(max(end.Sub(begin).Microseconds(), 1), longest.Microseconds())) // it is within bounds
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

// watch tells of the progress until the run is over.
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

// Decisions are all that were asked for, with errors.
func (r *Report) Decisions() int64 { return r.Allowed + r.Denied + r.Errors }

// PerSecond is how many decisions were made a second, without errors.
func (r *Report) PerSecond() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Allowed+r.Denied) / r.Took.Seconds()
}

// Latency is the time in which this share of the replies came, from 0 to 1 (all), exact to three digits; 0 without replies.
func (r *Report) Latency(share float64) time.Duration {
	return time.Duration(r.latency.ValueAtQuantile(100*share)) * time.Microsecond
}
