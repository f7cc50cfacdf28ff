package cli

import (
	"strings"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// look is the output style, which depends on where the output goes.
type look struct {
	moving bool   // whether the output is a terminal that can be redrawn
	colour bool   // whether to use colors: moving is true, and NO_COLOR is not set
	bars   []rune // characters for a column, from empty to full
	width  int    // width of a line
	height int    // height of the terminal; 0: unknown
}

// usualWidth is the line width if there is no terminal.
const usualWidth = 80

func (a *app) look() look {
	l := look{bars: []rune(" ▁▂▃▄▅▆▇█"), width: usualWidth}
	if a.terminal {
		if width, height := a.size(); width > 0 {
			l.width, l.height = width, height
		}
	}
	l.moving = a.terminal && a.env("TERM") != "dumb"
	l.colour = l.moving && a.env("NO_COLOR") == ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set takes precedence
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

// wrap breaks prose into lines that fit, all with the indentation of the first line.
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

func (l look) prose(style, text string) string { return strings.Join(l.wrap(style, text), "\n") }

// bar returns the character for a count of n. most is the count that a full bar represents.
func (l look) bar(n, most int) rune {
	top := len(l.bars) - 1
	return l.bars[min((n*top+most-1)/most, top)]
}
