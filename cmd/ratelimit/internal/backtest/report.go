package backtest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	Log         Log
	Limits      []Result // in the order of the candidates, then one suggestion for each period
	Periods     []Period
	Interrupted bool

	key string // the definition of the keys that Periods describes
}

// Result is what one limit would have done.
type Result struct {
	Limit       string     `json:"limit"`
	Key         string     `json:"key"`
	Requests    int64      `json:"requests"`
	Allowed     int64      `json:"allowed"`
	Denied      int64      `json:"denied"`
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
	Problems    []string   `json:"problems"`
	Interrupted bool       `json:"interrupted"`
	Suggested   *Suggested `json:"suggested,omitempty"`
}

// WorstKey is one of the keys with the most denials.
type WorstKey struct {
	Key         string    `json:"key"`
	Requests    int64     `json:"requests"`
	Denied      int64     `json:"denied"`
	FirstDenied time.Time `json:"first_denied"`
	LastDenied  time.Time `json:"last_denied"`
}

// Moment is an interval of a time line, with its start.
type Moment struct {
	Start time.Time `json:"start"`
	Interval
}

// Suggested says how a suggested limit was found.
type Suggested struct {
	Period string  `json:"period"`
	Share  float64 `json:"share"`
	N      int64   `json:"n"`
	Burst  int64   `json:"burst"`
	Curve  []Point `json:"curve"`
}

// report adds up the counts of each candidate's deciders.
func (r *run) report(candidates []Candidate, slots [][]int, deciders [][]*decider) *Report {
	report := &Report{Log: r.logs.Log, Limits: []Result{}, key: r.Key.text}
	for i, c := range candidates {
		sum := tally{keys: map[uint64]*denials{}}
		for _, d := range deciders[i] {
			sum.merge(d.tally)
		}
		report.Limits = append(report.Limits, r.result(c, slots[i], sum))
	}
	return report
}

func (r *run) result(c Candidate, slots []int, sum tally) Result {
	log := r.logs.Log
	result := Result{
		Limit: c.Limit, Key: keyText(c.Keys), Requests: sum.requests, Allowed: sum.requests - sum.denied, Denied: sum.denied,
		KeysDenied: int64(len(sum.keys)), Worst: []WorstKey{}, Seconds: sum.series.width(), Series: sum.series.moments(),
		Lines: log.Lines, BadLines: log.Bad, LateLines: log.Late, Keyless: log.Keyless + sum.keyless,
		Problems: append([]string{}, log.Problems...),
	}
	for _, slot := range slices.Compact(slices.Sorted(slices.Values(slots))) {
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
		result.Worst = append(result.Worst, WorstKey{t.names[at], int64(t.counts[at]), k.count, utc(k.first), utc(k.last)})
	}
	return result
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func keyText(keys []Key) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.text
	}
	return strings.Join(texts, ", ")
}
