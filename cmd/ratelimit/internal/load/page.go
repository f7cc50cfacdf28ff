package load

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// A Percentile is the time within which a share of the replies arrived.
type Percentile struct {
	Key   string // p50, p90, p99, p999, max
	Name  string // for display
	Share float64
}

// Percentiles lists the percentiles that a report shows.
var Percentiles = []Percentile{
	{"p50", "half within", 0.5}, {"p90", "90% within", 0.9}, {"p99", "99% within", 0.99}, {"p999", "99.9% within", 0.999}, {"max", "all within", 1},
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": figures.Grouped, "latency": func(p Percentile, r *Report) string { return r.Latency(p.Share).String() },
	"style": func() template.CSS { return figures.PageStyle }, "took": func(d time.Duration) string { return d.Round(time.Millisecond).String() },
}).Parse(pageText))

// WritePage writes the report as a self-contained HTML page. The title describes the run.
func (r *Report) WritePage(w io.Writer, title string) error {
	return page.Execute(w, struct {
		*Report
		Title           string
		WholePerSecond  int64
		Percentiles     []Percentile
		OverTime, Curve template.HTML
	}{r, title, int64(r.PerSecond()), Percentiles, figures.Inline(r.overTime(), "over-time"), figures.Inline(r.curve(), "curve")})
}

// overTime draws the decisions of each second. If the run ended within the first tenth of its last
// second, overTime omits that second, because it would look like a stall.
func (r *Report) overTime() string {
	seconds := r.Seconds
	if whole := int(r.Took / time.Second); whole > 0 && r.Took%time.Second < time.Second/10 {
		seconds = seconds[:min(whole, len(seconds))]
	}
	b := figures.Bars{
		Title: "Decisions by the second", Each: "a second", What: "decisions", Kinds: []string{"allowed", "denied", "errors"},
		First: "0 s", Last: fmt.Sprintf("%d s", len(seconds)),
	}
	for _, s := range seconds {
		b.Counts = append(b.Counts, []int64{s.Allowed, s.Denied, s.Errors})
	}
	return b.SVG()
}

// curve draws a chart of latency by percentile. Its x axis expands the slow end: 90%, 99%, 99.9%
// and so on are equally far apart.
func (r *Report) curve() string {
	if r.Allowed+r.Denied == 0 {
		return ""
	}
	replies := figures.Line{Name: "replies"}
	for slowest := 1.0; slowest <= float64(r.Allowed+r.Denied); slowest *= 1.2589 { // ten points for each power of ten
		replies.Across = append(replies.Across, slowest)
		replies.Up = append(replies.Up, float64(max(r.Latency(1-1/slowest), time.Microsecond).Microseconds()))
	}
	marks := figures.Powers(replies.Across[len(replies.Across)-1])
	up := figures.Powers(float64(r.Latency(1).Microseconds()))
	for len(up) > 2 && up[1] <= replies.Up[0] {
		up = up[1:]
	}
	return figures.Lines{
		Title: "Latency by the share of the replies that were faster", Above: []string{"latency, by how many replies were faster"},
		Across: figures.Axis{Label: "faster replies", Marks: marks, Text: func(slowest float64) string {
			if mark := slices.Index(marks, slowest); len(marks) > 5 && mark%2 == 1 {
				return "" // no room
			}
			return strconv.FormatFloat(100-100/slowest, 'f', -1, 64) + "%"
		}},
		Up:    figures.Axis{Marks: up, Text: func(us float64) string { return (time.Duration(us) * time.Microsecond).String() }},
		Lines: []figures.Line{replies},
	}.SVG()
}
