package backtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return figures.PageStyle }, "count": figures.Grouped, "percent": figures.Percent, "key": Shown, "date": func(t time.Time) string { return t.Format(time.DateTime) },
	"share": func(s float64) string { return fmt.Sprintf("%.6g%%", 100*s) }, "rest": func(s float64) string { return fmt.Sprintf("%.6g%%", 100-100*s) },
	"per": per,
}).Parse(pageText))

// WritePage writes the report as a self-contained HTML page. command is the command line that made
// the report.
func (r *Report) WritePage(w io.Writer, command string) error {
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
		Names       string // names of the logs
		Command     string
		First, Last time.Time
		Sections    []section
		Curves      []curve
		Pictures    bool
		Start       *Result
		Why         string
		Untouched   string
		Key, Noun   string
	}{Report: r, Names: names(r.Files), Command: printable.Line(command), First: utc(r.Log.First), Last: utc(r.Log.Last), Start: r.Start(), Key: r.key, Noun: noun(r.key)}
	pictures := 0
	inline := func(svg string) template.HTML {
		pictures++
		return figures.Inline(svg, fmt.Sprintf("title%d", pictures))
	}
	suggested := map[string]*Result{}
	for i, limit := range r.Limits {
		if limit.Suggested != nil {
			suggested[limit.Suggested.Period] = &r.Limits[i]
			continue
		}
		content.Sections = append(content.Sections, section{limit, inline(timeLine(limit))})
	}
	var found *Suggested
	if content.Start != nil {
		found, content.Why, content.Untouched = content.Start.Suggested, content.Start.Why(len(suggested)), content.Start.Untouched()
	}
	for _, p := range r.Periods {
		if p.Keys > 0 {
			next := curve{p, inline(p.plot(found, r.key, r.Cost != "")), suggested[p.Name()]}
			content.Curves, content.Pictures = append(content.Curves, next), content.Pictures || next.Picture != ""
		}
	}
	return page.Execute(w, content)
}

// names lists the logs, or only the first ones if there are many.
func names(files []string) string {
	const most = 3
	shown := files[:min(len(files), most)]
	text := printable.Line(strings.Join(shown, ", "))
	if more := len(files) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
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
