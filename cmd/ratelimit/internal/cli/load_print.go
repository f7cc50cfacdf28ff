package cli

import (
	"math"
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/load"
	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// perSecondText formats a rate as it was given, with whole numbers grouped.
func perSecondText(rate float64) string {
	if whole := int64(rate); float64(whole) == rate {
		return grouped(whole)
	}
	return strconv.FormatFloat(rate, 'f', -1, 64)
}

func (a *app) printLoad(f loadFlags, s servers, r *load.Report, expected []loadExpected) {
	total := r.Decisions()
	a.printf("%s\n%s, for %s\n\n", f.title(), s.Name, human(r.Took))
	rows := [][]string{
		{"decisions", grouped(total), ""},
		{"allowed", grouped(r.Allowed), figures.Percent(r.Allowed, total)},
		{"denied", grouped(r.Denied), figures.Percent(r.Denied, total)},
		{"errors", grouped(r.Errors), figures.Percent(r.Errors, total)},
	}
	if r.NotBegun > 0 {
		rows = append(rows, []string{"not begun", grouped(r.NotBegun), "of the rate: no worker was free in time"})
	}
	rows = append(rows, []string{"a second", grouped(int64(r.PerSecond())), ""})
	if r.Allowed+r.Denied > 0 {
		for _, p := range load.Percentiles {
			rows = append(rows, []string{p.Name, r.Latency(p.Share).String(), ""})
		}
	}
	a.write(table(rows))
	if len(r.Steps) > 0 {
		rows := [][]string{{"FROM", "DUE A SECOND", "DECISIONS", "DENIED", "ERRORS", "NOT BEGUN", "HALF WITHIN", "99% WITHIN", "ALL WITHIN"}}
		for _, s := range r.Steps {
			row := []string{human(s.Start), perSecondText(math.Round(10*s.Rate) / 10), grouped(s.Decisions()), grouped(s.Denied), grouped(s.Errors), grouped(s.NotBegun)}
			for _, share := range []float64{0.5, 0.99, 1} {
				row = append(row, s.LatencyText(share))
			}
			rows = append(rows, row)
		}
		a.printf("\n")
		a.write(table(rows))
	}
	if len(expected) > 0 {
		rows := [][]string{{"EXPECTED", "MEASURED", ""}}
		for _, e := range expected {
			rows = append(rows, []string{e.Expectation, e.Measured, map[bool]string{true: "met", false: "not met"}[e.Met]})
		}
		a.printf("\n")
		a.write(table(rows))
	}
	for _, m := range r.Messages {
		first := ""
		if m.Count > 1 {
			first = ", the first"
		}
		a.printf("\n%s%s: %s\n", plural(m.Count, "error"), first, m.Text)
	}
}

type loadReport struct {
	Limit       string  `json:"limit"`
	Concurrency int     `json:"concurrency"`
	Rate        float64 `json:"rate,omitempty"` // only with --rate
	loadCounts
	NotBegun    int64          `json:"not_begun,omitempty"` // with --rate or --ramp: decisions that were due, but for which no worker was free before the end
	Seconds     float64        `json:"seconds"`
	PerSecond   float64        `json:"per_second"` // without errors
	Messages    []load.Message `json:"messages"`   // error messages, at most 5
	Interrupted bool           `json:"interrupted"`
	Ramp        []float64      `json:"ramp,omitempty"`     // the rates at the start and at the end
	Steps       []loadStep     `json:"steps,omitempty"`    // steps of a ramp
	Expected    []loadExpected `json:"expected,omitempty"` // the expectations
}

type loadStep struct {
	From float64 `json:"from"` // seconds since the start
	Rate float64 `json:"rate"` // decisions a second that were due, in the middle of the step
	loadCounts
	NotBegun int64 `json:"not_begun"`
}

type loadCounts struct {
	Decisions int64            `json:"decisions"`
	Allowed   int64            `json:"allowed"`
	Denied    int64            `json:"denied"`
	Errors    int64            `json:"errors"`
	LatencyUS map[string]int64 `json:"latency_us"` // by percentile: p50, p90, p99, p999, max
}

func newLoadCounts(c load.Counts, latency func(share float64) time.Duration) loadCounts {
	counts := loadCounts{c.Decisions(), c.Allowed, c.Denied, c.Errors, map[string]int64{}}
	for _, p := range load.Percentiles {
		counts.LatencyUS[p.Key] = latency(p.Share).Microseconds()
	}
	return counts
}

type loadExpected struct {
	Expectation string `json:"expectation"`
	Measured    string `json:"measured"`
	Met         bool   `json:"met"`
}

func loadJSON(f loadFlags, r *load.Report, expected []loadExpected) loadReport {
	report := loadReport{
		Limit: f.limit, Concurrency: f.concurrency, Rate: f.rate, loadCounts: newLoadCounts(r.Counts, r.Latency), NotBegun: r.NotBegun,
		Seconds: r.Took.Seconds(), PerSecond: r.PerSecond(),
		Messages: append([]load.Message{}, r.Messages...), Interrupted: r.Interrupted, Expected: expected,
	}
	if f.ramped != nil {
		report.Ramp = []float64{f.ramped.From, f.ramped.To}
	}
	for _, s := range r.Steps {
		report.Steps = append(report.Steps, loadStep{s.Start.Seconds(), s.Rate, newLoadCounts(s.Counts, s.Latency), s.NotBegun})
	}
	return report
}
