package backtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// Report is the result of a run.
type Report struct {
	Files       []string // the logs
	Log         Log
	Limits      []Result // in the order of the candidates, then one suggestion for each period
	Periods     []Period
	Interrupted bool
	Cost        string // the field with the costs; "" if each request costs 1

	key string // text of Options.Key, which defines the keys in Periods
}

// Result reports what one limit would have done.
type Result struct {
	Limit       string     `json:"limit"`
	Key         string     `json:"key"`
	Requests    int64      `json:"requests"`
	Allowed     int64      `json:"allowed"`
	Denied      int64      `json:"denied"`
	Cost        string     `json:"cost"`   // the field with the cost of a line; "" if each costs 1
	Charge      string     `json:"charge"` // "before" or "after" a request
	Capacity    int64      `json:"capacity"`
	Above       int64      `json:"above_capacity"` // requests that cost more than the capacity
	Keys        int64      `json:"keys"`
	KeysDenied  int64      `json:"keys_denied"`
	FirstDenied *time.Time `json:"first_denied"`
	LastDenied  *time.Time `json:"last_denied"`
	Worst       []WorstKey `json:"worst"`
	Seconds     int64      `json:"seconds"` // length of an interval of the series
	Series      []Moment   `json:"series"`
	Lines       int64      `json:"lines"`
	BadLines    int64      `json:"bad_lines"`
	LateLines   int64      `json:"late_lines"`
	Keyless     int64      `json:"keyless_lines"`
	Costless    int64      `json:"costless_lines"`
	Problems    []string   `json:"problems"`
	Interrupted bool       `json:"interrupted"`
	Classes     []Class    `json:"classes,omitempty"` // sorted by name; only for policies with classes
	Suggested   *Suggested `json:"suggested,omitempty"`
	Units
}

// WorstKey is one of the keys with the most denials.
type WorstKey struct {
	Key         string    `json:"key"`
	Requests    int64     `json:"requests"`
	Denied      int64     `json:"denied"`
	FirstDenied time.Time `json:"first_denied"`
	LastDenied  time.Time `json:"last_denied"`
	Units       int64     `json:"units"` // units of all requests
	UnitsDenied int64     `json:"units_denied"`
}

// Moment is one Interval of a time line and the time at which it starts.
type Moment struct {
	Start time.Time `json:"start"`
	Interval
}

// Suggested describes how a suggested limit was found.
type Suggested struct {
	Start  bool    `json:"start"` // whether to start with this suggestion
	Period string  `json:"period"`
	Share  float64 `json:"share"`
	N      int64   `json:"n"`
	Burst  int64   `json:"burst"`
	Curve  []Point `json:"curve"`

	period time.Duration
}

func (r *run) report(trials []trial, deciders [][]*decider) *Report {
	report := &Report{Log: r.logs.Log, Cost: r.Cost, Limits: []Result{}, key: r.Key.text}
	for i, t := range trials {
		sum := tally{keys: map[uint64]*denials{}, classes: map[uint32]*Class{}}
		for _, d := range deciders[i] {
			sum.merge(d.tally)
		}
		report.Limits = append(report.Limits, r.result(t, sum))
	}
	return report
}

func (r *run) result(t trial, sum tally) Result {
	log := r.logs.Log
	result := Result{
		Limit: t.Limit, Key: keyText(t.Keys), Requests: sum.requests, Allowed: sum.requests - sum.denied, Denied: sum.denied,
		KeysDenied: int64(len(sum.keys)), Worst: []WorstKey{}, Seconds: sum.series.width(), Series: sum.series.moments(),
		Lines: log.Lines, BadLines: log.Bad, LateLines: log.Late, Keyless: log.Keyless + sum.keyless, Costless: log.Costless,
		Cost: r.Cost, Charge: "before", Units: sum.units, Capacity: t.capacity, Above: sum.above,
		Problems: append([]string{}, log.Problems...),
	}
	if r.After {
		result.Charge = "after"
	}
	if r.logs.class != nil && t.classed {
		result.Classes = r.logs.class.named(sum.classes)
	}
	for _, slot := range slices.Compact(slices.Sorted(slices.Values(t.slots))) {
		result.Keys += r.logs.tables[slot].came()
	}
	if sum.denied > 0 {
		first, last := utc(sum.first), utc(sum.last)
		result.FirstDenied, result.LastDenied = &first, &last
	}
	order := slices.SortedFunc(maps.Keys(sum.keys), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(sum.keys[b].count, sum.keys[a].count), cmp.Compare(a, b))
	})
	for _, key := range order[:min(len(order), r.Worst)] {
		t, k := r.logs.tables[key>>32], sum.keys[key]
		at := uint32(key) - 1
		result.Worst = append(result.Worst, WorstKey{t.names[at], int64(t.counts[at]), k.count, utc(k.first), utc(k.last), t.unitsOf(uint32(key)), k.units})
	}
	return result
}

// AboveText describes what happens to requests that cost more than the capacity.
func (r Result) AboveText() string {
	text := fmt.Sprintf("%s: %s of %s requests (%s) cost more than its capacity of %s, ", r.Limit,
		figures.Grouped(r.Above), figures.Grouped(r.Requests), figures.Percent(r.Above, r.Requests), figures.Grouped(r.Capacity))
	if r.Charge == "after" {
		return text + "and what exceeds a debt of one capacity is not charged"
	}
	return text + "so it can never allow them"
}

// Untouched describes the keys that a suggested limit must not deny. If costs are charged after
// requests, these keys also have no debt.
func (r Result) Untouched() string {
	if r.Charge == "after" {
		return "untouched and without debt"
	}
	return "untouched"
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func keyText(keys []Key) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.text
	}
	return strings.Join(texts, ", ")
}
