package backtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// plot draws the chart for choosing n: how many requests and how many keys each n would deny. cost
// is true if requests have costs.
func (p Period) plot(s *Suggested, key string, cost bool) string {
	who := noun(key) + "s"
	requests, keys := figures.Line{Name: "requests"}, figures.Line{Name: who}
	for _, point := range p.Curve {
		if point.Requests > 0 {
			requests.Across, requests.Up = append(requests.Across, float64(point.N)), append(requests.Up, float64(point.Requests))
		}
		if point.Keys > 0 {
			keys.Across, keys.Up = append(keys.Across, float64(point.N)), append(keys.Up, float64(point.Keys))
		}
	}
	if len(requests.Up) == 0 {
		return "" // n = 1 would deny no request
	}
	n := "n"
	if cost {
		n = "n units"
	}
	above := []string{"Requests over the limit, and " + who + " affected,", "if the limit were " + n + " per " + per(p.Period) + " (log scales)"}
	lines := figures.Lines{
		Title: strings.Join(above, " "), Above: above,
		Across: figures.Axis{Label: n + " per " + per(p.Period) + ", for each " + noun(key), Marks: figures.Powers(float64(p.Most)), Text: figures.Brief},
		Up:     figures.Axis{Marks: figures.Powers(max(requests.Up[0], keys.Up[0])), Text: figures.Count},
		Lines:  []figures.Line{requests, keys},
	}
	if s != nil {
		if bound := (1 - s.Share) * float64(p.Keys); bound >= 1 {
			lines.Bounds = []figures.Bound{{Name: fmt.Sprintf("%.6g%% of %s", 100-100*s.Share, who), Up: bound}}
		}
		lines.Marks = []figures.Mark{{Name: "suggested: " + figures.Grouped(p.N), Across: float64(p.N)}}
	}
	return lines.SVG()
}

// timeLine draws how many requests a limit allowed and denied over time, as stacked bars. If the
// requests have costs, it draws units.
func timeLine(r Result) string {
	bars := figures.Bars{
		Title: "Requests over time under " + r.Limit, Each: widthText(r.Seconds), What: "requests", Kinds: []string{"allowed", "denied"},
	}
	if r.Cost != "" {
		bars.Title, bars.What = "Units over time under "+r.Limit, "units"
	}
	for _, m := range r.Series {
		counts := []int64{m.Allowed, m.Denied}
		if r.Cost != "" {
			counts = []int64{m.Units.Allowed, m.Units.Denied}
		}
		bars.Counts = append(bars.Counts, counts)
	}
	if n := len(r.Series); n > 0 {
		bars.First, bars.Last = r.Series[0].Start.Format(time.DateTime), r.Series[n-1].Start.Format(time.DateTime)
	}
	return bars.SVG()
}

// widthText formats the length of an interval, such as "5 minutes".
func widthText(seconds int64) string {
	text := per(time.Duration(seconds) * time.Second)
	if text[0] > '9' {
		return "a " + text
	}
	return text
}
