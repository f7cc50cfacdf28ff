package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the result of a run, which --json prints.
type report struct {
	Date      time.Time    `json:"date"`
	Server    string       `json:"server"`
	Machine   string       `json:"machine"`
	Libraries []string     `json:"libraries"`
	Unit      string       `json:"unit"` // the unit of all figures: microseconds or instructions
	Plan      plan         `json:"plan"`
	Seconds   float64      `json:"seconds"`
	Cases     []caseReport `json:"cases"`
}

type caseReport struct {
	Name  string `json:"name"`
	Limit string `json:"limit,omitempty"`
	Note  string `json:"note"`
	Rows  []row  `json:"rows"`
}

// row holds the figures of one contender: server time or instructions per decision, over all
// rounds.
type row struct {
	Name   string    `json:"name"`
	Peer   bool      `json:"peer"`
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
	Rounds []float64 `json:"rounds"`

	Bound float64 `json:"boundMicroseconds,omitempty"` // maximum for Least; slower rounds are not checked, because they may include other work on the machine

	// Ratio is the time of the case's first row divided by the time of this row. It is nil in the
	// first row.
	Ratio *ratio `json:"ratio"`
}

type ratio struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	Aim    float64 `json:"aim,omitempty"` // maximum ratio
}

func (r *report) add(c benchCase, figures []turns) {
	report := caseReport{Name: c.name, Note: c.note}
	if c.work.count > 0 {
		report.Limit = c.work.rate()
	}
	for i, contender := range c.contenders {
		line := row{Name: contender.name, Peer: contender.peer, Bound: contender.most, Rounds: figures[i]}
		line.Median, line.Least, line.Most = spread(figures[i])
		if i > 0 && !c.few {
			ratios := make([]float64, len(figures[i]))
			for round := range ratios {
				ratios[round] = figures[0][round] / figures[i][round]
			}
			line.Ratio = &ratio{Aim: contender.aim}
			line.Ratio.Median, line.Ratio.Least, line.Ratio.Most = spread(ratios)
		}
		report.Rows = append(report.Rows, line)
	}
	r.Cases = append(r.Cases, report)
}

// spread returns the median, the minimum and the maximum of figures, which must not be empty.
func spread(figures []float64) (median, least, most float64) {
	sorted := slices.Sorted(slices.Values(figures))
	half := len(sorted) / 2
	median = sorted[half]
	if len(sorted)%2 == 0 {
		median = (sorted[half-1] + sorted[half]) / 2
	}
	return median, sorted[0], sorted[len(sorted)-1]
}

var legends = map[string]string{
	"microseconds": "Server time in microseconds for each decision (INFO commandstats)",
	"instructions": "Instructions of the server for each decision (callgrind)",
}

// aim describes r's aim and says whether r met it, or returns "" if r has no aim. It compares the
// ratio as rounded in the report.
func (r row) aim() string {
	switch {
	case r.Bound > 0 && r.Least <= r.Bound:
		return fmt.Sprintf("at most %.0f µs: met", r.Bound)
	case r.Bound > 0:
		return fmt.Sprintf("at most %.0f µs: missed", r.Bound)
	case r.Ratio == nil || r.Ratio.Aim == 0:
		return ""
	case math.Round(r.Ratio.Median*100)/100 <= r.Ratio.Aim:
		return fmt.Sprintf("at most %.2f: met", r.Ratio.Aim)
	default:
		return fmt.Sprintf("at most %.2f: missed", r.Ratio.Aim)
	}
}

func (r report) writeText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "%s, %s, %s\n%d rounds of %d calls each, in turns; %d keys; %s; %.0f s\n",
		r.Server, r.Date.Format("2006-01-02 15:04 UTC"), r.Machine, r.Plan.Rounds, r.Plan.Calls, r.Plan.Keys,
		strings.Join(r.Libraries, " against "), r.Seconds)
	fmt.Fprintf(table, "%s: median, least and most of the rounds.\n", legends[r.Unit])
	fmt.Fprintln(table, "Ratio: the first row of the case divided by this one, the median of the rounds' ratios.")
	for _, c := range r.Cases {
		title := c.Name
		if c.Limit != "" {
			title += " (" + c.Limit + ")"
		}
		fmt.Fprintf(table, "\n%s: %s\n", title, c.Note)
		for _, line := range c.Rows {
			ratio := ""
			if line.Ratio != nil {
				ratio = fmt.Sprintf("%.2f", line.Ratio.Median)
			}
			fmt.Fprintf(table, "  %s\t%.2f (%.2f to %.2f)\t%s\t%s\n", line.Name, line.Median, line.Least, line.Most, ratio, line.aim())
		}
	}
	return table.Flush()
}
