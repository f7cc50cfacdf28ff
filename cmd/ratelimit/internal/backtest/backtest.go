// Package backtest replays access logs through limits and policies: whom each would have denied, when and how often. The
// library's own text decides, in the engine of package embedded, with the clock set to the time of each request.
//
// Where things are: key.go what is counted together; logs.go the files, merged by time; pass.go how requests get to workers,
// one a core, each with an engine and its share of the keys; decide.go, series.go what a limit does; windows.go, suggest.go which
// limit to choose; report.go what came of it all; page.go, plot.go the report as HTML.
package backtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

// Candidate is a limit, or a policy as @name, to be tried.
type Candidate struct {
	Limit string
	Keys  []Key // one; of a policy of several keys one for each, in its order
}

// Options say what to do.
type Options struct {
	Library    string // the text that decides
	Candidates []Candidate
	Workers    int // engines; each takes a core

	Format   string            // as accesslog.Options has it
	Called   map[string]string // likewise
	Unsorted time.Duration     // how much later than a newer one a line may come

	Key     Key             // for suggestions
	Share   float64         // of keys that a suggestion leaves untouched, 0 to 1; 0: suggest nothing
	Curves  bool            // draw how many keys and requests each n would touch
	Periods []time.Duration // of suggestions and curves

	Worst    int // how many of the worst keys to report
	Progress func(Progress)
}

// Progress is how far a run has come.
type Progress struct {
	Step, Steps int   // a step goes through all requests once
	Requests    int64 // of this step, so far
	Of          int64 // 0: not known yet
	Bytes       int64 // of the logs that were read, as they are stored
	Decisions   int64 // of all steps
}

// Run replays the logs. When ctx ends early, the report is of what was measured up to there, and says so. The error is that
// a limit cannot be read, or a log not at all.
func Run(ctx context.Context, inputs []Input, opts Options) (*Report, error) {
	r := &run{Options: opts}
	keys := []Key{}
	if opts.Share > 0 || opts.Curves {
		keys = append(keys, opts.Key)
	}
	for _, c := range opts.Candidates {
		var slots []int
		for _, key := range c.Keys {
			at := slices.IndexFunc(keys, func(k Key) bool { return k.text == key.text })
			if at < 0 {
				at = len(keys)
				keys = append(keys, key)
			}
			slots = append(slots, at)
		}
		r.slots = append(r.slots, slots)
	}
	if len(keys) > MostKeys {
		return nil, fmt.Errorf("%d different keys; a run counts by at most %d", len(keys), MostKeys)
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	defer r.stop()
	for i, c := range opts.Candidates {
		if err := r.check(c, len(r.slots[i])); err != nil {
			return nil, err
		}
	}
	var err error
	if r.logs, err = open(ctx, inputs, keys, opts); err != nil {
		return nil, err
	}
	defer r.logs.close()
	report, err := r.steps(ctx)
	if err != nil {
		return nil, err
	}
	if report.Log.Requests == 0 && ctx.Err() == nil {
		return nil, nothing(report.Log)
	}
	return report, nil
}

// nothing is the error of logs without a request.
func nothing(l Log) error {
	if len(l.Problems) == 0 {
		return fmt.Errorf("the logs are empty; give others")
	}
	return fmt.Errorf("none of %d lines could be used: %s", l.Lines, l.Problems[0])
}

type run struct {
	Options
	slots   [][]int // of each candidate, which keys of a request it takes
	engines []*engine
	logs    *logs
	step    int
	decided int64
}

func (r *run) start() error {
	for range max(1, r.Workers) {
		server, err := embedded.Start(embedded.WithLibrary(r.Library), embedded.WithTime(time.UnixMilli(1)))
		if err != nil {
			r.stop()
			return fmt.Errorf("the engine does not start: %w", err)
		}
		r.engines = append(r.engines, &engine{server: server})
	}
	return nil
}

func (r *run) stop() {
	for _, e := range r.engines {
		_ = e.server.Close()
	}
	r.engines = nil
}

// check has the library read a limit.
func (r *run) check(c Candidate, keys int) error {
	words := []any{"FCALL", "ratelimit_take", keys}
	for i := range keys {
		words = append(words, fmt.Sprint(i))
	}
	if _, err := r.engines[0].server.Do(append(words, c.Limit, "COST", 0)...); err != nil {
		text := strings.TrimPrefix(err.Error(), "RATELIMIT ")
		_, text, _ = strings.Cut(text, " ")
		return fmt.Errorf("limit %q: %s", c.Limit, text)
	}
	return nil
}

// steps goes through the requests as often as it takes.
func (r *run) steps(ctx context.Context) (*Report, error) {
	steps := 1
	var kept *spool
	if r.Share > 0 {
		steps = 3
		var err error
		if kept, err = newSpool(); err != nil {
			return nil, err
		}
		defer kept.close()
	}
	candidates, slots := r.Candidates, r.slots
	deciders, jobs := r.deciders(candidates, slots)
	var found []*windows
	if r.Share > 0 || r.Curves {
		for i := range jobs {
			w := newWindows(share{uint32(i), uint32(len(jobs))}, r.Periods)
			found, jobs[i] = append(found, w), append(jobs[i], w)
		}
	}
	err := pass(jobs, func(emit func(event) error) error {
		return r.logs.each(ctx, func(e event) error {
			r.progress(steps, r.logs.Requests, 0, len(candidates))
			if kept != nil && e.keys[0] > 0 {
				if err := kept.put(e); err != nil {
					return err
				}
			}
			return emit(e)
		})
	})
	if err != nil {
		return nil, err
	}
	report := r.report(candidates, slots, deciders)
	if found != nil {
		report.Periods = r.periods(found)
	}
	if kept != nil && ctx.Err() == nil && report.Log.Requests > 0 {
		if err := r.suggest(ctx, kept, report, steps); err != nil {
			return nil, err
		}
	}
	report.Interrupted = ctx.Err() != nil
	for i := range report.Limits {
		report.Limits[i].Interrupted = report.Interrupted
	}
	return report, nil
}

// deciders makes the jobs that decide: for each candidate one on each engine.
func (r *run) deciders(candidates []Candidate, slots [][]int) ([][]*decider, [][]job) {
	deciders := make([][]*decider, len(candidates))
	jobs := make([][]job, len(r.engines))
	for i, c := range candidates {
		for w, e := range r.engines {
			d := newDecider(e, share{uint32(w), uint32(len(r.engines))}, i, c, slots[i])
			deciders[i], jobs[w] = append(deciders[i], d), append(jobs[w], d)
		}
	}
	return deciders, jobs
}

// progress tells of every thousandth request.
func (r *run) progress(steps int, requests, of int64, decisions int) {
	r.decided += int64(decisions)
	if requests%1000 == 0 && r.Progress != nil {
		r.Progress(Progress{Step: r.step + 1, Steps: steps, Requests: requests, Of: of, Bytes: r.logs.bytes, Decisions: r.decided})
	}
}
