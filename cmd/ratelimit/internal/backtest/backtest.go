// Package backtest replays access logs through limits and policies, and reports which keys each
// limit would have denied, when, and how often. The library itself decides, in the engine of
// package embedded, with the clock set to the time of each request.
//
// The files are
//
//	key.go                   defines the keys
//	logs.go                  reads the log files and merges them by time
//	pass.go                  gives requests to workers, each with an engine and some of the keys
//	decide.go, series.go     count the decisions under a limit
//	classes.go               counts the decisions by class
//	windows.go, suggest.go   suggest limits
//	start.go                 chooses the suggestion to start with
//	report.go                makes the report
//	page.go, plot.go         write the report as HTML
package backtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

// Candidate is a limit, or a policy as @name, to test.
type Candidate struct {
	Limit string
	Keys  []Key // one key, or one for each key of the policy, in order
}

// Options configures a run.
type Options struct {
	Library    string // source code of the library that decides
	Candidates []Candidate
	Workers    int // number of engines; each uses one core

	Format   string            // see accesslog.Options
	Called   map[string]string // see accesslog.Options
	Unsorted time.Duration     // how much older a line may be than an earlier line

	Cost string // field with the cost of each line; "" means that each line costs 1

	// After charges costs after requests: a request is allowed if one unit fits, and its cost is
	// then charged with FORCE.
	After bool

	// ClassBy is the field with the class of each line, for policies with classes; "" means that no line
	// has a class. A line without the field is a call without a class.
	ClassBy string

	Key     Key             // key for suggestions
	Share   float64         // minimum share of keys that a suggested limit never denies, 0 to 1; 0: no suggestions
	Curves  bool            // plot the numbers of keys and requests that a limit of n would deny, for a range of n
	Periods []time.Duration // periods of suggestions and curves

	Worst    int // length of each list of keys with the most denials or requests
	Progress func(Progress)
}

// Progress reports how far a run has advanced.
type Progress struct {
	Step, Steps int   // each step processes all requests once
	Requests    int64 // requests processed in this step
	Of          int64 // requests in this step; 0 if not known yet
	Bytes       int64 // read from the log files, before decompression
	Decisions   int64 // decisions made, in all steps together
}

// Run checks the limits, opens the logs with openLogs, and replays them. If ctx is canceled, the
// report contains the results so far, and says that it is incomplete. Run returns an error if a
// limit cannot be parsed, if a log cannot be opened, or if the logs contain no usable line.
func Run(ctx context.Context, openLogs func() ([]Input, error), opts Options) (*Report, error) {
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
		r.trials = append(r.trials, trial{Candidate: c, slots: slots})
	}
	if len(keys) > MostKeys {
		return nil, fmt.Errorf("%d different keys; a run counts by at most %d", len(keys), MostKeys)
	}
	if r.ClassBy != "" && len(keys) == MostKeys {
		return nil, fmt.Errorf("%d different keys and classes; with classes, a run counts by at most %d keys", len(keys), MostKeys-1)
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	defer r.stop()
	for i := range r.trials {
		if err := r.check(&r.trials[i]); err != nil {
			return nil, err
		}
	}
	if r.ClassBy != "" && !slices.ContainsFunc(r.trials, func(t trial) bool { return t.classed }) {
		return nil, fmt.Errorf("no policy of the run has classes, but the lines have them in %s; replay one that has, as in --policy api", r.ClassBy)
	}
	inputs, err := openLogs()
	if err != nil {
		return nil, err
	}
	if r.logs, err = open(ctx, inputs, keys, opts); err != nil {
		return nil, err
	}
	defer r.logs.close()
	report, err := r.steps(ctx)
	if err != nil {
		return nil, err
	}
	for _, input := range inputs {
		report.Files = append(report.Files, input.Name)
	}
	if report.Log.Requests == 0 && ctx.Err() == nil {
		return nil, nothing(report.Log)
	}
	return report, nil
}

// nothing returns the error for logs that contain no usable line.
func nothing(l Log) error {
	if len(l.Problems) == 0 {
		return fmt.Errorf("the logs are empty; give others")
	}
	if l.Costless == l.Lines {
		return fmt.Errorf("none of %d lines has a usable cost: %s; give --cost another field, and one within another as in usage.total_tokens", l.Lines, l.Problems[0])
	}
	return fmt.Errorf("none of %d lines could be used: %s", l.Lines, l.Problems[0])
}

type run struct {
	Options
	trials  []trial
	engines []*engine
	logs    *logs
	step    int
	decided int64
}

// trial is a candidate with the data that the run needs.
type trial struct {
	Candidate
	slots    []int // indices of the candidate's keys in event.keys
	capacity int64 // see the function capacity; the larger one of a policy and its canary
	classed  bool  // whether it is a policy that takes classes
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

// refused returns the error for a limit with which the library refuses a call.
func refused(limit string, err error) error {
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), "RATELIMIT "), " ")
	return fmt.Errorf("limit %q: %s", limit, text)
}

// check finds the capacity of a trial. It returns an error if the library cannot parse the limit, or if
// the limit cannot be charged as the options say.
func (r *run) check(t *trial) error {
	words := []any{"FCALL", "ratelimit_take", len(t.slots)}
	for i := range t.slots {
		words = append(words, fmt.Sprint(i))
	}
	if _, err := r.engines[0].server.Do(append(words, t.Limit, "COST", 0)...); err != nil {
		return refused(t.Limit, err)
	}
	reply, err := r.engines[0].server.Do("FCALL_RO", "ratelimit_info", 0, t.Limit)
	info, _ := reply.([]any)
	at := slices.Index(info, any("limit"))
	if err != nil || at < 0 {
		return fmt.Errorf("limit %q: the library does not say its capacity: %v, %w", t.Limit, reply, err)
	}
	if t.classed = slices.Contains(info, any("classes")); !t.classed { // classes: any is not in the reply
		_, err := r.engines[0].server.Do(append(words, t.Limit, "COST", 0, "CLASS", "any")...)
		t.classed = err == nil
	}
	lends := r.lends(t.Limit)
	if lends && r.After {
		return fmt.Errorf("limit %q: a guarantee and a pool cannot be charged after a request; leave --charge after out", t.Limit)
	}
	t.capacity = capacity(info[at+1], lends)
	if at := slices.Index(info, any("canary_limit")); at >= 0 { // what the policy never has room for, its canary may have
		t.capacity = max(t.capacity, capacity(info[at+1], lends))
	}
	return nil
}

// capacity returns the smallest capacity of the rates in a field of ratelimit_info. If they are those of a guarantee
// and a pool, it returns the larger one, because what the guarantee never has room for may be borrowed.
func capacity(keys any, lends bool) int64 {
	least, most := int64(math.MaxInt64), int64(0)
	for _, key := range keys.([]any) {
		for rate := range slices.Chunk(key.([]any)[1:], 3) { // skip the shadow flag; each rate is n, period and capacity
			least, most = min(least, rate[2].(int64)), max(most, rate[2].(int64))
		}
	}
	if lends {
		return most
	}
	return least
}

// lends reports whether a limit is a policy with a guarantee and a pool.
func (r *run) lends(limit string) bool {
	reply, _ := r.engines[0].server.Do("FCALL_RO", "ratelimit_info", 0)
	info, _ := reply.([]any)
	at := slices.Index(info, any("borrow_calls")) // only such policies have them
	return at >= 0 && slices.ContainsFunc(info[at+1].([]any), func(calls any) bool { return "@"+calls.([]any)[0].(string) == limit })
}

// steps replays all requests under the given limits. To suggest limits, it then replays the
// requests twice more: see suggest.
func (r *run) steps(ctx context.Context) (*Report, error) {
	steps := 1
	var kept *spool
	if r.Share > 0 {
		steps = 3
		var err error
		if kept, err = newSpool(r.Cost != ""); err != nil {
			return nil, err
		}
		defer kept.close()
	}
	deciders, jobs := r.deciders(r.trials)
	var found []*windows
	if r.Share > 0 || r.Curves {
		for i := range jobs {
			w := newWindows(share{uint32(i), uint32(len(jobs))}, r.Periods, r.After)
			found, jobs[i] = append(found, w), append(jobs[i], w)
		}
	}
	err := pass(jobs, func(emit func(event) error) error {
		return r.logs.each(ctx, func(e event) error {
			r.progress(steps, r.logs.Requests, 0, len(r.trials))
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
	report := r.report(r.trials, deciders)
	if found != nil {
		report.Periods = r.periods(found)
	}
	if kept != nil && kept.size > 0 && ctx.Err() == nil {
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

// deciders creates a decider for each trial on each engine. It returns the deciders grouped by
// trial, and again as jobs grouped by engine.
func (r *run) deciders(trials []trial) ([][]*decider, [][]job) {
	deciders := make([][]*decider, len(trials))
	jobs := make([][]job, len(r.engines))
	for i, t := range trials {
		for w, e := range r.engines {
			d := newDecider(e, share{uint32(w), uint32(len(r.engines))}, i, t, r.logs.class, r.Options)
			deciders[i], jobs[w] = append(deciders[i], d), append(jobs[w], d)
		}
	}
	return deciders, jobs
}

// progress adds decisions to r.decided, and calls r.Progress once every thousand requests. total is
// the number of requests in this step, or 0 if it is not known yet.
func (r *run) progress(steps int, requests, total int64, decisions int) {
	r.decided += int64(decisions)
	if requests%1000 == 0 && r.Progress != nil {
		r.Progress(Progress{Step: r.step + 1, Steps: steps, Requests: requests, Of: total, Bytes: r.logs.bytes, Decisions: r.decided})
	}
}
