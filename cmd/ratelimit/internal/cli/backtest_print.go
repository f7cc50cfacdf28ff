package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/backtest"
	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

func (l look) backtest(report *backtest.Report) string {
	var lines []string
	log := report.Log
	head := fmt.Sprintf("%s, %s to %s UTC", plural(log.Requests, "request"), dateTime(log.First), dateTime(log.Last))
	if log.Requests == 0 {
		head = "no requests"
	}
	lines = append(lines, l.wrap(bold, head)...)
	var given, suggested []backtest.Result
	for _, limit := range report.Limits {
		if limit.Suggested == nil {
			given = append(given, limit)
		} else {
			suggested = append(suggested, limit)
		}
	}
	if len(given) > 0 {
		rows := [][]string{{"LIMIT", "ALLOWED", "DENIED", "", "KEYS DENIED", "OF KEYS"}}
		for _, r := range given {
			rows = append(rows, []string{r.Limit, grouped(r.Allowed), grouped(r.Denied), figures.Percent(r.Denied, r.Requests), grouped(r.KeysDenied), grouped(r.Keys)})
		}
		lines = append(append(lines, ""), l.table(rows)...)
	}
	lines = append(lines, l.units(given)...)
	for _, r := range given {
		lines = append(lines, l.classes(r)...)
		lines = append(lines, l.denials(r)...)
	}
	if len(suggested) > 0 {
		lines = append(lines, l.suggestions(suggested)...)
	}
	if len(suggested) == 0 && len(report.Periods) > 0 && report.Periods[0].N > 0 {
		rows := [][]string{{"PERIOD", "N"}} // interrupted before anything else was found
		for _, p := range report.Periods {
			rows = append(rows, []string{p.Name(), grouped(p.N)})
		}
		lines = slices.Concat(lines, []string{""}, l.wrap(bold, "n that the share of keys never exceeds within a period:"), l.table(rows))
	}
	lines = append(lines, l.notes(report)...)
	return strings.Join(lines, "\n") + "\n"
}

func dateTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateTime) }

// classes returns a table of what each class of a policy got. It returns nil if there are no classes.
func (l look) classes(r backtest.Result) []string {
	if len(r.Classes) == 0 {
		return nil
	}
	rows := [][]string{{"CLASS", "ALLOWED", "DENIED", ""}}
	if r.Cost != "" {
		rows[0] = append(rows[0], "UNITS ALLOWED", "UNITS DENIED", "")
	}
	for _, c := range r.Classes {
		row := []string{c.Name(), grouped(c.Allowed), grouped(c.Denied), figures.Percent(c.Denied, c.Requests)}
		if r.Cost != "" {
			row = append(row, grouped(c.Units.Allowed), grouped(c.Units.Denied), figures.Percent(c.Units.Denied, c.AllUnits()))
		}
		rows = append(rows, row)
	}
	return slices.Concat([]string{""}, l.wrap(bold, r.Limit+" by class"), l.table(rows))
}

// denials describes when a limit denied requests, and which keys it denied.
func (l look) denials(r backtest.Result) []string {
	if r.Denied == 0 {
		return nil
	}
	lines := append([]string{""}, l.wrap(bold, fmt.Sprintf("%s by %s denied, from %s to %s UTC", r.Limit, r.Key,
		r.FirstDenied.Format(time.DateTime), r.LastDenied.Format(time.DateTime)))...)
	lines = append(lines, l.paint(red, l.timeLine(r)))
	rows := [][]string{{"KEY", "DENIED", "OF REQUESTS", "FIRST", "LAST"}}
	if r.Cost != "" {
		rows[0] = []string{"KEY", "DENIED", "OF REQUESTS", "UNITS DENIED", "OF UNITS"}
	}
	for _, k := range r.Worst {
		row := []string{backtest.Shown(k.Key), grouped(k.Denied), grouped(k.Requests)}
		if r.Cost != "" {
			row = append(row, grouped(k.UnitsDenied), grouped(k.Units))
		} else {
			row = append(row, k.FirstDenied.Format(time.DateTime), k.LastDenied.Format(time.DateTime))
		}
		rows = append(rows, row)
	}
	if len(r.Worst) > 0 {
		lines = append(lines, l.table(rows)...)
	}
	return lines
}

// timeLine draws the denials from the first request to the last; the highest bar stands for the
// interval with the most denials.
func (l look) timeLine(r backtest.Result) string {
	columns := min(len(r.Series), l.width)
	counts := make([]int, columns)
	most := 1
	for i, moment := range r.Series {
		at := i * columns / len(r.Series)
		counts[at] += int(moment.Denied)
		most = max(most, counts[at])
	}
	var line strings.Builder
	for _, n := range counts {
		line.WriteRune(l.bar(n, most))
	}
	return line.String()
}

// units returns a table of the units that each limit allows and denies. It returns nil if the
// requests have no costs.
func (l look) units(list []backtest.Result) []string {
	if len(list) == 0 || list[0].Cost == "" {
		return nil
	}
	lines := append([]string{""}, l.wrap(bold, fmt.Sprintf("units of %s, charged %s each request", list[0].Cost, list[0].Charge))...)
	rows := [][]string{{"LIMIT", "UNITS ALLOWED", "UNITS DENIED", ""}}
	for _, r := range list {
		rows = append(rows, []string{r.Limit, grouped(r.Units.Allowed), grouped(r.Units.Denied), figures.Percent(r.Units.Denied, r.AllUnits())})
	}
	lines = append(lines, l.table(rows)...)
	for _, r := range list {
		if r.Above > 0 {
			lines = append(lines, l.wrap("", r.AboveText())...)
		}
	}
	return lines
}

func (l look) suggestions(list []backtest.Result) []string {
	s := list[0].Suggested
	lines := append([]string{""}, l.wrap(bold, fmt.Sprintf("suggested by %s: the tightest limits that leave %.6g%% of %s %s, and what the library decides under them",
		list[0].Key, 100*s.Share, plural(list[0].Keys, "key"), list[0].Untouched()))...)
	rows := [][]string{{"LIMIT", "DENIED", "", "KEYS DENIED", "WORST KEY"}}
	for _, r := range list {
		worst := "-"
		if len(r.Worst) > 0 {
			worst = fmt.Sprintf("%s (%s)", backtest.Shown(r.Worst[0].Key), grouped(r.Worst[0].Denied))
		}
		rows = append(rows, []string{r.Limit, grouped(r.Denied), figures.Percent(r.Denied, r.Requests), grouped(r.KeysDenied), worst})
	}
	lines = slices.Concat(lines, l.table(rows), l.units(list))
	for _, r := range list {
		if r.Suggested.Start {
			if len(list) > 1 {
				lines = append(lines, "")
				lines = append(lines, l.wrap(bold, "start with "+r.Limit+": "+r.Meaning())...)
				lines = append(lines, l.wrap("", r.Why(len(list)))...)
			}
			lines = append(lines, l.denials(r)...)
		}
	}
	return lines
}

// notes describes the lines that were dropped.
func (l look) notes(report *backtest.Report) []string {
	log := report.Log
	var lines []string
	note := func(n int64, format string, args ...any) {
		if n > 0 {
			lines = append(lines, l.wrap("", fmt.Sprintf("%s (%s) ", plural(n, "line"), figures.Percent(n, log.Lines))+fmt.Sprintf(format, args...))...)
		}
	}
	note(log.Bad, "could not be read")
	note(log.Late, "came too late to be put in order; --unsorted %s would take them all", log.Unsorted())
	note(log.Keyless, "lacked the key")
	note(log.Costless, "had no usable cost in %s", report.Cost)
	listed := map[string]bool{}
	for _, r := range report.Limits {
		if !listed[r.Key] {
			listed[r.Key] = true
			note(r.Keyless-log.Keyless, "had another key, and lacked %s", r.Key)
		}
	}
	for _, problem := range log.Problems {
		lines = append(lines, l.wrap("", "  "+oneLine(problem))...)
	}
	if len(lines) > 0 {
		lines = append([]string{""}, lines...)
	}
	return lines
}

// table formats rows in columns, or as a list if the columns do not fit. The first row is the
// header.
func (l look) table(rows [][]string) []string {
	lines := strings.Split(strings.TrimRight(table(rows), "\n"), "\n")
	fits := true
	for _, line := range lines {
		fits = fits && utf8.RuneCountInString(line) <= l.width
	}
	if fits {
		lines[0] = l.paint(faint, lines[0])
		return lines
	}
	lines = nil
	for _, row := range rows[1:] {
		lines = append(lines, l.wrap("", row[0])...)
		for i := 1; i < len(row); i++ {
			text := "  " + strings.ToLower(rows[0][i]) + " " + row[i]
			for i+1 < len(row) && rows[0][i+1] == "" {
				i++
				text += " (" + row[i] + ")"
			}
			lines = append(lines, l.wrap("", text)...)
		}
	}
	return lines
}
