package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/client"
)

// look is how the demo may write: it depends on where the output goes.
type look struct {
	moving bool   // a terminal: what was drawn can be drawn over
	colour bool   // a terminal, and NO_COLOR is not set
	bars   []rune // the first for nothing, the last for a full column
}

func (a *app) look() look {
	l := look{bars: []rune(" ▁▂▃▄▅▆▇█")}
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
	if !l.colour || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// bar shows one column's count.
func (l look) bar(n, most int) rune {
	top := len(l.bars) - 1
	return l.bars[min((n*top+most-1)/most, top)]
}

const labelWidth = 20

// full is how many requests a full bar stands for: what the busiest caller plans for one column.
func (s *show) full() int {
	most := 1
	for _, c := range callersOf(s.scene) {
		var planned [columns]int
		for _, at := range c.times {
			column := s.column(at)
			planned[column]++
			most = max(most, planned[column])
		}
	}
	return most
}

// chart draws every caller's requests over time: one row for those let through, one for those turned away.
func (s *show) chart(l look) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.full()
	var lines []string
	for _, act := range s.scene {
		lines = append(lines, l.paint(bold, act.title))
		for _, c := range act.callers {
			t := s.tallies[c]
			allowed, denied := t.totals()
			lines = append(lines,
				pad("  "+c.name, 9)+l.paint(faint, pad(c.plan, labelWidth-9))+s.row(l, green, t.allowed, most)+
					l.paint(green, fmt.Sprintf("%5d let through", allowed)),
				pad("", labelWidth)+s.row(l, red, t.denied, most)+
					l.paint(red, fmt.Sprintf("%5d turned away", denied)))
		}
	}
	return append(lines, l.paint(faint, s.axis()))
}

func (s *show) row(l look, style string, counts [columns]int, most int) string {
	cells := make([]rune, columns)
	for i, n := range counts {
		cells[i] = l.bar(n, most)
	}
	return l.paint(style, string(cells))
}

// axis names the seconds under the columns.
func (s *show) axis() string {
	line := []rune(strings.Repeat(" ", labelWidth+columns+8))
	every := max(1, int((s.total/8+time.Second-1)/time.Second))
	for second := 0; time.Duration(second)*time.Second <= s.total; second += every {
		text := []rune(fmt.Sprintf("%ds", second))
		copy(line[labelWidth+int(time.Duration(second)*time.Second*columns/s.total):], text)
	}
	return strings.TrimRight(string(line), " ")
}

// canvas is a drawing that can be drawn over.
type canvas struct {
	w     io.Writer
	lines int // drawn before
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

// summary is the table under the chart.
func (s *show) summary(l look) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	const row = "%-8s%-30s%7s%9s%8s%7s"
	lines := []string{l.paint(bold, fmt.Sprintf(row, "CALLER", "LIMIT", "ASKED", "ALLOWED", "DENIED", "IDEAL"))}
	var notes []string
	for _, c := range callersOf(s.scene) {
		t := s.tallies[c]
		allowed, denied := t.totals()
		lines = append(lines, fmt.Sprintf(row, c.name, joinLimits(c.limits),
			fmt.Sprint(allowed+denied), fmt.Sprint(allowed), fmt.Sprint(denied), fmt.Sprint(t.ideal)))
		if len(c.keys) > 1 && denied > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d denied by the user's own %s, %d by the company's %s", c.name,
				t.by[0], c.limits[0], t.by[1], c.limits[1]))
		}
	}
	lines = append(lines, notes...)
	return append(lines, l.paint(faint, "ideal: what the textbook would let through; latency may shift it by one or two"))
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
