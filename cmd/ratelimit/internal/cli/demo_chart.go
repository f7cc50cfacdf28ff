package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// look is the output style of the demo, which depends on where the output goes.
type look struct {
	moving bool   // a terminal, which can be redrawn
	colour bool   // a terminal, and NO_COLOR is not set
	bars   []rune // from an empty to a full column
	width  int    // of a line
	height int    // of the terminal, 0 if unknown
}

// The line width that each layout needs.
const (
	usualWidth   = 80
	wideChart    = labelWidth + columns + 17 // labels before the bars and counts after them
	oneLabel     = 54                        // least width for label and counts in one line
	oneCount     = 36                        // least width for both counts in one line
	wideTable    = 69
	limitsTable  = 59 // below: the limits have their own lines
	narrowTable  = 39 // below: no table
	narrowIndent = 2
	lastSecond   = 3 // space for the axis after the last column
)

func (a *app) look() look {
	l := look{bars: []rune(" ▁▂▃▄▅▆▇█"), width: usualWidth}
	if a.terminal {
		if width, height := a.size(); width > 0 {
			l.width, l.height = width, height
		}
	}
	l.moving = a.terminal && a.env("TERM") != "dumb"
	l.colour = l.moving && a.env("NO_COLOR") == ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set counts
		if locale := a.env(name); locale != "" {
			if upper := strings.ToUpper(locale); !strings.Contains(upper, "UTF-8") && !strings.Contains(upper, "UTF8") {
				l.bars = []rune(" 12345678")
			}
			break
		}
	}
	return l
}

const (
	green = "32"
	red   = "31"
	bold  = "1"
	faint = "2"
)

func (l look) paint(style, text string) string {
	if !l.colour || style == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// wrap breaks prose into lines that fit, all with the indentation of the first.
func (l look) wrap(style, text string) []string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	line := indent
	for _, word := range strings.Fields(text) {
		word = printable.Line(word)
		if line != indent && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > l.width {
			lines = append(lines, l.paint(style, line))
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return append(lines, l.paint(style, line))
}

// prose returns the wrapped text as one string.
func (l look) prose(style, text string) string { return strings.Join(l.wrap(style, text), "\n") }

// indent returns the column at which the bars begin.
func (l look) indent() int {
	if l.width < wideChart {
		return narrowIndent
	}
	return labelWidth
}

// merged returns how many columns of the demo form one column of the chart, so that all fit.
func (l look) merged() int {
	for _, n := range []int{1, 2, 4, 5, 8} {
		if l.indent()+columns/n+lastSecond <= l.width {
			return n
		}
	}
	return 10
}

// bar returns the character for one column's count.
func (l look) bar(n, most int) rune {
	top := len(l.bars) - 1
	return l.bars[min((n*top+most-1)/most, top)]
}

const labelWidth = 20

// full returns how many requests a full bar represents: the most that a caller plans for one column
// of the chart.
func (s *show) full(merged int) int {
	most := 1
	for _, c := range callersOf(s.scene) {
		var planned [columns]int
		for _, at := range c.times {
			column := s.column(at) / merged
			planned[column]++
			most = max(most, planned[column])
		}
	}
	return most
}

// chart draws every caller's requests over time: one row for allowed requests, one for denied ones.
func (s *show) chart(l look) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.full(l.merged())
	var lines []string
	for _, act := range s.scene {
		lines = append(lines, l.wrap(bold, act.title)...)
		for _, c := range act.callers {
			t := s.tallies[c]
			allowed, denied := t.totals()
			if l.width < wideChart {
				lines = append(lines, l.label(c, allowed, denied)...)
				lines = append(lines, pad("", narrowIndent)+s.row(l, green, t.allowed, most), pad("", narrowIndent)+s.row(l, red, t.denied, most))
				continue
			}
			lines = append(lines,
				pad("  "+c.name, 9)+l.paint(faint, pad(c.plan, labelWidth-9))+s.row(l, green, t.allowed, most)+
					l.paint(green, fmt.Sprintf("%5d let through", allowed)),
				pad("", labelWidth)+s.row(l, red, t.denied, most)+
					l.paint(red, fmt.Sprintf("%5d turned away", denied)))
		}
	}
	return append(lines, l.paint(faint, s.axis(l)))
}

// label returns a caller's name and counts for above its bars, if there is no room beside them. The
// number of lines does not depend on the counts, because they change while the chart is redrawn.
func (l look) label(c *caller, allowed, denied int) []string {
	name := "  " + c.name + l.paint(faint, " ("+c.plan+")")
	let, turned := l.paint(green, fmt.Sprintf("%d let through", allowed)), l.paint(red, fmt.Sprintf("%d turned away", denied))
	switch {
	case l.width < oneCount:
		return []string{name, "  " + let, "  " + turned}
	case l.width < oneLabel:
		return []string{name, "  " + let + ", " + turned}
	}
	return []string{name + ": " + let + ", " + turned}
}

func (s *show) row(l look, style string, counts [columns]int, most int) string {
	merged := l.merged()
	cells := make([]rune, columns/merged)
	for i := range cells {
		n := 0
		for _, count := range counts[i*merged : (i+1)*merged] {
			n += count
		}
		cells[i] = l.bar(n, most)
	}
	return l.paint(style, string(cells))
}

// axis labels the seconds under the columns.
func (s *show) axis(l look) string {
	cells := columns / l.merged()
	line := []rune(strings.Repeat(" ", l.indent()+cells+lastSecond))
	place := func(at time.Duration) int { return int(at * time.Duration(cells) / s.total) }
	every := time.Second
	for every < s.total/8 || place(every) <= lastSecond { // labels must not overlap
		every += time.Second
	}
	for at := time.Duration(0); at <= s.total; at += every {
		copy(line[l.indent()+place(at):], []rune(fmt.Sprintf("%ds", at/time.Second)))
	}
	return strings.TrimRight(string(line), " ")
}

// canvas is a drawing that can be redrawn.
type canvas struct {
	w     io.Writer
	lines int // drawn last time
}

func (c *canvas) draw(lines []string) error {
	var out strings.Builder
	if c.lines > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", c.lines)
	}
	for _, line := range lines {
		out.WriteString(strings.TrimRight(line, " "))
		if c.lines > 0 {
			out.WriteString("\x1b[K")
		}
		out.WriteByte('\n')
	}
	c.lines = len(lines)
	_, err := io.WriteString(c.w, out.String())
	return written(err)
}

// summary returns the table under the chart.
func (s *show) summary(l look) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	limitWidth := 30
	switch {
	case l.width < limitsTable:
		limitWidth = 0
	case l.width < wideTable:
		limitWidth = 20
	}
	row := func(caller, limit string, numbers ...any) string {
		return fmt.Sprintf("%-8s%-*.*s", caller, limitWidth, limitWidth, limit) + fmt.Sprintf("%7v%9v%8v%7v", numbers...)
	}
	var lines, notes []string
	if l.width >= narrowTable {
		lines = append(lines, l.paint(bold, row("CALLER", "LIMIT", "ASKED", "ALLOWED", "DENIED", "IDEAL")))
	}
	for _, c := range callersOf(s.scene) {
		t := s.tallies[c]
		allowed, denied := t.totals()
		limit := joinLimits(c.limits)
		if l.width >= narrowTable {
			lines = append(lines, row(c.name, limit, allowed+denied, allowed, denied, t.ideal))
		} else {
			lines = append(lines, l.wrap("", fmt.Sprintf("%s: asked %d, allowed %d, denied %d, ideal %d", c.name, allowed+denied, allowed, denied, t.ideal))...)
		}
		if limitWidth == 0 {
			lines = append(lines, l.wrap(faint, "  "+limit)...)
		}
		if len(c.keys) > 1 && denied > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d denied by the user's own %s, %d by the company's %s", c.name,
				t.by[0], c.limits[0], t.by[1], c.limits[1]))
		}
	}
	for _, note := range notes {
		lines = append(lines, l.wrap("", note)...)
	}
	return append(lines, l.wrap(faint, "ideal: what the textbook would let through; latency may shift it by one or two")...)
}

func joinLimits(limits []client.Limit) string {
	texts := make([]string, len(limits))
	for i, limit := range limits {
		texts[i] = string(limit)
	}
	return strings.Join(texts, " and ")
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
