package backtest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// Period holds the results for one period: what each n would deny, the busiest keys, and the
// suggested limit.
type Period struct {
	Period time.Duration
	Keys   int64   // keys with a request
	Most   int64   // the largest number of units of one key within the period
	Curve  []Point // for each n of ladder, up to the first n that denies no request
	Worst  []Peak  // the keys with the most units within the period
	N      int64   // the smallest n that the given share of keys never exceeds; 0 if no share was given
	Burst  int64   // the smallest burst with which gcra n/period never denies the share of keys
	Limit  string  // the suggested limit; "" if the run ended before it was found
}

// Point counts what a limit of n per period would deny.
type Point struct {
	N        int64 `json:"n"`
	Keys     int64 `json:"keys"`     // keys that use more than n units within one period
	Requests int64 `json:"requests"` // requests that need units beyond the first n of a period
}

// Peak is the largest number of units of one key within a period.
type Peak struct {
	Key  string
	Most int64
}

// periods combines the workers' counts into one Period for each of r.Periods.
func (r *run) periods(found []*windows) []Period {
	var list []Period
	for i, period := range r.Periods {
		p := Period{Period: period}
		type named struct {
			key  uint32
			most int64
		}
		var worst []named
		var all []int64 // for each key, the smallest n that never denies it; sorted
		touched := make([]int64, len(ladder)+1)
		for _, w := range found {
			w.eachMost(i, func(key uint32, most int64) {
				all = append(all, most)
				if at := len(worst) - 1; at < r.Worst-1 || at >= 0 && most > worst[at].most {
					worst = append(worst, named{key, most})
					slices.SortStableFunc(worst, func(a, b named) int { return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.key, b.key)) })
					worst = worst[:min(len(worst), r.Worst)]
				}
			})
			for n, requests := range w.touched[i] {
				touched[n] += requests
			}
		}
		slices.Sort(all)
		p.Keys = int64(len(all))
		if p.Keys == 0 {
			list = append(list, p)
			continue
		}
		p.Most = all[p.Keys-1]
		if r.Share > 0 {
			p.N = max(1, quantile(all, r.Share))
		}
		for _, k := range worst {
			p.Worst = append(p.Worst, Peak{r.logs.tables[0].names[k.key-1], k.most})
		}
		requests := int64(0)
		for _, n := range touched {
			requests += n
		}
		for n, rung := range ladder {
			requests -= touched[n]
			above, _ := slices.BinarySearch(all, rung+1)
			p.Curve = append(p.Curve, Point{rung, p.Keys - int64(above), requests})
			if int64(above) == p.Keys {
				break
			}
		}
		list = append(list, p)
	}
	return list
}

// quantile returns the smallest value that the given share of the values does not exceed.
func quantile(ascending []int64, share float64) int64 {
	need := int(math.Ceil(share*float64(len(ascending)) - 1e-9))
	return ascending[min(max(need, 1), len(ascending))-1]
}

// suggest finds the burst and the limit for each of report.Periods, in which N is already set. It
// replays the requests in kept under these limits, and adds the results to report.
func (r *run) suggest(ctx context.Context, kept *spool, report *Report, steps int) error {
	var rates []rate
	for _, p := range report.Periods {
		rates = append(rates, rate{p.N, p.Period.Milliseconds()})
	}
	again := func(jobs [][]job, decisions int) error {
		r.step++
		done := int64(0)
		return pass(jobs, func(emit func(event) error) error {
			return kept.each(ctx, func(e event) error {
				done++
				r.progress(steps, done, kept.size, decisions)
				return emit(e)
			})
		})
	}
	var found []*bursts
	jobs := make([][]job, len(r.engines))
	for w := range jobs {
		b := &bursts{share: share{uint32(w), uint32(len(jobs))}, after: r.After, rates: rates}
		found, jobs[w] = append(found, b), []job{b}
	}
	if err := again(jobs, 0); err != nil || ctx.Err() != nil {
		return err
	}
	var trials []trial
	for i := range report.Periods {
		var all []int64
		for _, b := range found {
			for _, key := range b.keys {
				if key != nil {
					all = append(all, key[i].most)
				}
			}
		}
		slices.Sort(all)
		p := &report.Periods[i]
		p.Burst = max(1, quantile(all, r.Share))
		p.Limit = fmt.Sprintf("%d/%s", p.N, periodText(p.Period))
		if p.Burst != p.N {
			p.Limit += fmt.Sprintf(" burst=%d", p.Burst)
		}
		t := trial{Candidate: Candidate{p.Limit, []Key{r.Key}}, slots: []int{0}}
		if r.check(&t) != nil { // gcra does not accept such a large n or burst
			p.Limit = fmt.Sprintf("fixed_window %d/%s", p.N, periodText(p.Period))
			t.Limit = p.Limit
			if err := r.check(&t); err != nil {
				return err
			}
		}
		trials = append(trials, t)
	}
	r.stop() // restart the engines with empty keyspaces
	if err := r.start(); err != nil {
		return err
	}
	deciders, jobs := r.deciders(trials)
	if err := again(jobs, len(trials)); err != nil {
		return err
	}
	for i, result := range r.report(trials, deciders).Limits {
		p := report.Periods[i]
		result.Keyless += r.logs.Requests - kept.size
		result.Suggested = &Suggested{Period: p.Name(), Share: r.Share, N: p.N, Burst: p.Burst, Curve: p.Curve, period: p.Period}
		report.Limits = append(report.Limits, result)
	}
	if start := report.Start(); start != nil {
		start.Suggested.Start = true
	}
	return nil
}

// Name returns the period as a flag value: 1s, 10s, 1m.
func (p Period) Name() string { return span.Format(p.Period) }

// periodText formats a period as in a limit: s, 10s, m, 90s.
func periodText(d time.Duration) string {
	text := span.Format(d)
	if rest, one := strings.CutPrefix(text, "1"); one && rest[0] > '9' {
		return rest
	}
	return text
}
