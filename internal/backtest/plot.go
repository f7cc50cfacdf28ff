package backtest

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// plot is the picture to choose n by: how many keys and how many requests each n would touch.
func (p Period) plot(s *Suggested) string {
	requests, keys := figures.Line{Name: "requests"}, figures.Line{Name: "keys"}
	for _, point := range p.Curve {
		if point.Requests > 0 {
			requests.Across, requests.Up = append(requests.Across, float64(point.N)), append(requests.Up, float64(point.Requests))
		}
		if point.Keys > 0 {
			keys.Across, keys.Up = append(keys.Across, float64(point.N)), append(keys.Up, float64(point.Keys))
		}
	}
	lines := figures.Lines{
		Title:  "Requests and keys that n in " + p.Name() + " would touch, by n",
		Above:  []string{"requests beyond n in " + p.Name() + ", and keys that have any"},
		Across: figures.Axis{Label: "n", Marks: powers(p.Most), Text: figures.Count},
		Up:     figures.Axis{Marks: powers(p.Keys), Text: figures.Count},
	}
	if len(requests.Up) == 0 {
		return "" // no key came twice within a period
	}
	lines.Up.Marks = powers(int64(max(requests.Up[0], keys.Up[0])))
	lines.Lines = []figures.Line{requests, keys}
	if s != nil {
		if bound := (1 - s.Share) * float64(p.Keys); bound >= 1 {
			lines.Bounds = []figures.Bound{{Name: fmt.Sprintf("%.6g%% of keys", 100-100*s.Share), Up: bound}}
		}
	}
	return lines.SVG()
}

// powers are those of ten from 1 to one that is not below n.
func powers(n int64) []float64 {
	marks := []float64{1, 10}
	for marks[len(marks)-1] < float64(n) {
		marks = append(marks, marks[len(marks)-1]*10)
	}
	return marks
}

const (
	lineLeft, lineRight = 8, figures.Width - 8
	lineTop, lineBottom = 34, 134
)

// timeLine is a picture of what a limit allowed, with what it denied on top, over time.
func timeLine(r Result) string {
	p := figures.NewPicture("Requests over time under " + r.Limit)
	if len(r.Series) == 0 {
		return ""
	}
	most := int64(1)
	for _, m := range r.Series {
		most = max(most, m.Allowed+m.Denied)
	}
	p.Text(lineLeft, 18, "", "up to "+figures.Grouped(most)+" requests in "+lasting(r.Seconds)+":")
	p.Text(lineLeft+300, 18, "bold fc0", "allowed")
	p.Text(lineLeft+370, 18, "bold fc1", "denied")
	width := float64(lineRight-lineLeft) / float64(len(r.Series))
	y := func(n int64) float64 { return lineBottom - float64(n)/float64(most)*(lineBottom-lineTop) }
	var allowed, denied strings.Builder
	for i, m := range r.Series {
		x := lineLeft + float64(i)*width
		box := func(out *strings.Builder, from, to int64) {
			if to > from {
				fmt.Fprintf(out, "M%.2f %.2fV%.2fh%.2fV%.2fz", x, y(from), min(y(to), y(from)-1), width, y(from))
			}
		}
		box(&allowed, 0, m.Allowed)
		box(&denied, m.Allowed, m.Allowed+m.Denied)
	}
	p.Path(lineBottom, "fc0", allowed.String())
	p.Path(lineBottom, "fc1", denied.String())
	p.Path(lineBottom, "grid", fmt.Sprintf("M%d %dH%d", lineLeft, lineBottom, lineRight))
	first, last := r.Series[0].Start, r.Series[len(r.Series)-1].Start
	p.Text(lineLeft, lineBottom+20, "", first.Format("2006-01-02 15:04:05"))
	p.Text(lineRight, lineBottom+20, "right", last.Format("2006-01-02 15:04:05"))
	return p.String()
}

// lasting is one of widths as text.
func lasting(seconds int64) string {
	for _, unit := range []struct {
		name string
		of   int64
	}{{"day", 86_400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		if n := seconds / unit.of; n > 1 {
			return fmt.Sprintf("%d %ss", n, unit.name)
		} else if n == 1 {
			return "a " + unit.name
		}
	}
	return ""
}
