package main

import (
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		figures             []float64
		median, least, most float64
	}{
		{[]float64{4}, 4, 4, 4},
		{[]float64{9, 1, 5}, 5, 1, 9},
		{[]float64{4, 1, 8, 2}, 3, 1, 8},
	} {
		median, least, most := spread(test.figures)
		if median != test.median || least != test.least || most != test.most {
			t.Errorf("%v: %v, %v, %v, want %v, %v, %v", test.figures, median, least, most, test.median, test.least, test.most)
		}
	}
}

// TestReport checks a report. The ratio is computed within each round, so that a slow round does
// not distort it.
func TestReport(t *testing.T) {
	r := report{Date: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), Server: "Redis 7.0.15", Machine: "two CPUs", Seconds: 12,
		Libraries: []string{"ours"}, Plan: plan{Keys: 10, Calls: 20, Rounds: 3}}
	r.add(benchCase{name: "gcra", note: "a note", work: workload{count: 5, period: time.Minute}, contenders: []contender{
		{name: "ours"}, {name: "theirs", peer: true, aim: 0.65}, {name: "another", aim: 0.3}, {name: "floor"},
	}}, []turns{{2, 20, 2}, {3.06, 30.6, 3.06}, {4, 40, 4}, {1, 10, 1}})

	if got := r.Cases[0].Rows[1].Ratio; got.Most-got.Least > 1e-9 {
		t.Errorf("the ratio goes from %v to %v, want the same in each round", got.Least, got.Most)
	}
	var text strings.Builder
	require(t, r.writeText(&text))
	const wantText = `
gcra (5/m): a note
  ours      2.00 (2.00 to 20.00)                 
  theirs    3.06 (3.06 to 30.60)   0.65          at most 0.65: met
  another   4.00 (4.00 to 40.00)   0.50          at most 0.30: missed
  floor     1.00 (1.00 to 10.00)   2.00          
`
	// Ignore trailing spaces and the alignment of columns.
	if got := squeeze(text.String()); !strings.HasSuffix(got, squeeze(wantText)) {
		t.Errorf("the text is\n%s\nwant its end\n%s", got, squeeze(wantText))
	}
}

func squeeze(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
