package backtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return figures.PageStyle }, "count": figures.Grouped, "percent": figures.Percent, "key": Shown, "date": func(t time.Time) string { return t.Format(time.DateTime) },
	"share": func(s float64) string { return fmt.Sprintf("%.6g%%", 100*s) },
}).Parse(pageText))

// WritePage writes the report as a self-contained HTML page.
func (r *Report) WritePage(w io.Writer) error {
	type section struct {
		Result
		Picture template.HTML
	}
	type curve struct {
		Period
		Picture template.HTML
		Result  *Result // result of the suggested limit, or nil if there is none
	}
	content := struct {
		*Report
		First, Last time.Time
		Sections    []section
		Curves      []curve
		Suggested   *Suggested
		Untouched   string
		Key         string
	}{Report: r, First: utc(r.Log.First), Last: utc(r.Log.Last)}
	pictures := 0
	inline := func(svg string) template.HTML {
		pictures++
		return figures.Inline(svg, fmt.Sprintf("title%d", pictures))
	}
	suggested := map[string]*Result{}
	for i, limit := range r.Limits {
		if limit.Suggested != nil {
			suggested[limit.Suggested.Period], content.Suggested = &r.Limits[i], limit.Suggested
			content.Untouched = limit.Untouched()
			continue
		}
		content.Sections = append(content.Sections, section{limit, inline(timeLine(limit))})
	}
	for _, p := range r.Periods {
		if p.Keys > 0 {
			content.Key = r.key
			content.Curves = append(content.Curves, curve{p, inline(p.plot(content.Suggested, r.Cost != "")), suggested[p.Name()]})
		}
	}
	return page.Execute(w, content)
}

// longestShown is the maximum number of characters of a key that are shown.
const longestShown = 40

// Shown returns a key in a form that is safe to show: quoted if it contains unprintable characters,
// and truncated if it is long.
func Shown(key string) string {
	key = printable.Key(key)
	if utf8.RuneCountInString(key) > longestShown {
		key = string([]rune(key)[:longestShown-3]) + "..."
	}
	return key
}
