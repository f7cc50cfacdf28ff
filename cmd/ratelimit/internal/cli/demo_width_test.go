package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// In a narrow terminal nothing is cut off and nothing wraps, except lines for copying.
func TestDemoOnANarrowTerminal(t *testing.T) {
	copied := regexp.MustCompile(`^  (FCALL|ratelimit|redis-cli) `)
	for _, width := range []int{20, 35, 36, 40, 44, 45, 53, 54, 38, 39, 58, 59, 68, 69, 76, 77, 80, 200} {
		plain, _ := demo{terminal: true, width: width, env: []string{"TERM=dumb"}}.run(t)
		for line := range strings.Lines(plain.stdout) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > width && !copied.MatchString(line) {
				t.Errorf("%d columns: a line of %d characters: %s", width, n, line)
			}
		}
		moving, _ := demo{terminal: true, width: width, height: 60}.run(t)
		if !strings.Contains(moving.stdout, "\x1b[?7l") {
			t.Errorf("%d columns: the chart does not move", width)
		}
		if end, want := screenOf(moving.stdout, width), screen(plain.stdout); end != want {
			t.Errorf("%d columns: the screen shows:\n%s\nwant:\n%s", width, end, want)
		}
	}
	for height, moves := range map[int]bool{16: false, 17: true} {
		got, _ := demo{terminal: true, width: 80, height: height}.run(t)
		if moved := strings.Contains(got.stdout, "\x1b[16A"); moved != moves {
			t.Errorf("%d lines: the chart moves: %v, want %v", height, moved, moves)
		}
	}
}

// At any width, every name, limit and number is shown, and every request is in a bar.
func TestDemoInEveryWidth(t *testing.T) {
	for _, total := range []time.Duration{shortestDemo, usualDemo, longestDemo} {
		srv := withLibrary(t)
		rdb := admin(t, srv.Addr())
		c, err := client.New(rdb, client.WithTimeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		s := newShow(c, "demo:", total)
		if err := s.play(t.Context(), &puppetPace{at: began, srv: srv}, 1, time.Minute, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		for width := 20; width <= 200; width++ {
			l := look{bars: []rune(" ▁▂▃▄▅▆▇█"), width: width}
			chart, summary := s.chart(l), s.summary(l)
			for _, line := range append(chart, summary...) {
				if n := len([]rune(strings.TrimRight(line, " "))); n > width {
					t.Errorf("%v, %d columns: a line of %d characters: %q", total, width, n, line)
				}
			}
			drawn, table := oneText(chart), oneText(summary)
			for _, act := range s.scene {
				contains(t, width, drawn, act.title)
				for _, c := range act.callers {
					tally := s.tallies[c]
					allowed, denied := tally.totals()
					limit, numbers := joinLimits(c.limits), []any{c.name, allowed + denied, allowed, denied, tally.ideal}
					switch {
					case width < narrowTable:
						contains(t, width, table, fmt.Sprintf(" %s: asked %d, allowed %d, denied %d, ideal %d ", numbers...)+limit+" ")
					case width < limitsTable:
						contains(t, width, table, fmt.Sprintf(" %s %d %d %d %d ", numbers...)+limit+" ")
					default:
						contains(t, width, table, fmt.Sprintf(" %s "+limit+" %d %d %d %d ", numbers...))
					}
					name := fmt.Sprintf(" %s (%s)", c.name, c.plan)
					if width >= wideChart {
						name = fmt.Sprintf(" %s %s ", c.name, c.plan)
					}
					contains(t, width, drawn, name)
					contains(t, width, drawn, fmt.Sprintf(" %d let through", allowed))
					contains(t, width, drawn, fmt.Sprintf(" %d turned away", denied))
					if len(c.keys) > 1 && denied > 0 {
						contains(t, width, table, fmt.Sprintf(" %s: %d denied by the user's own %s, %d by the company's %s ", c.name, tally.by[0], c.limits[0], tally.by[1], c.limits[1]))
					}
				}
			}
			if axis := chart[len(chart)-1]; !regexp.MustCompile(`^ +0s( +\d+s)+ *$`).MatchString(axis) {
				t.Errorf("%v, %d columns: the axis is %q", total, width, axis)
			}
			merged, most, busiest := l.merged(), s.full(l.merged()), 0
			for _, c := range callersOf(s.scene) {
				var sum [columns]int
				for i, n := range s.tallies[c].allowed {
					sum[i/merged] += n + s.tallies[c].denied[i]
					busiest = max(busiest, sum[i/merged])
				}
			}
			if bars := columns / merged; busiest > most || l.indent()+bars > width || bars < columns && width >= narrowIndent+columns+lastSecond {
				t.Errorf("%v, %d columns: %d bars of up to %d requests, and the busiest has %d", total, width, bars, most, busiest)
			}
		}
	}
}

// oneText joins the words of lines, with a space before and after each.
func oneText(lines []string) string {
	return " " + strings.Join(strings.Fields(strings.Join(lines, " ")), " ") + " "
}

func contains(t *testing.T, width int, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%d columns: no %q in:\n%s", width, want, text)
	}
}

var escape = regexp.MustCompile("\x1b\\[[?0-9;]*[a-zA-Z]")

// screen returns what a wide terminal finally shows of a text, without addresses.
func screen(text string) string { return screenOf(text, 1000) }

// screenOf returns what a terminal of this width shows. If wrapping is off, the terminal truncates
// lines.
func screenOf(text string, width int) string {
	var shown []string
	row, wraps := 0, true
	for line := range strings.Lines(text) {
		if i, j := strings.LastIndex(line, "\x1b[?7l"), strings.LastIndex(line, "\x1b[?7h"); i != j {
			wraps = j > i
		}
		if up := regexp.MustCompile("\x1b\\[([0-9]+)A").FindStringSubmatch(line); up != nil {
			var n int
			_, _ = fmt.Sscan(up[1], &n)
			row -= n
		}
		line = escape.ReplaceAllString(strings.TrimRight(line, "\n"), "")
		if cells := []rune(strings.TrimRight(line, " ")); !wraps && len(cells) > width {
			line = string(cells[:width])
		}
		if row == len(shown) {
			shown = append(shown, "")
		}
		shown[row] = strings.TrimRight(line, " ")
		row++
	}
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(strings.Join(shown, "\n"), "ADDR")
}
