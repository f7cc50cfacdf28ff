package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// bar shows the progress of backtest and load in one line that is redrawn, on a terminal only.
type bar struct {
	w     io.Writer // nil if there is no terminal
	width int
	began time.Time
	drawn time.Time
}

const redraw = 100 * time.Millisecond

func (a *app) newBar() *bar {
	b := &bar{began: time.Now()}
	if isTerminal(a.stderr) && a.env("TERM") != "dumb" {
		b.w, b.width = a.stderr, usualWidth
		if width, _ := terminalSize(a.stderr); width > 0 {
			b.width = width
		}
	}
	return b
}

// draw redraws the line, at most once per redraw interval. progress takes the elapsed time, and
// returns the completed share and a description.
func (b *bar) draw(progress func(took time.Duration) (share float64, text string)) {
	now := time.Now()
	if b.w == nil || now.Sub(b.drawn) < redraw {
		return
	}
	b.drawn = now
	_, _ = fmt.Fprintf(b.w, "\r%s\x1b[K", b.line(progress(now.Sub(b.began))))
}

// line returns a bar that is filled to the given share, followed by text; the line is narrower than
// the terminal.
func (b *bar) line(share float64, text string) string {
	if room := b.width - len(text) - 4; room >= 10 && share > 0 {
		full := min(room, int(share*float64(room)))
		text = "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + text
	}
	return text[:min(len(text), max(b.width-1, 0))]
}

func (b *bar) clear() {
	if b.w != nil && !b.drawn.IsZero() {
		_, _ = fmt.Fprint(b.w, "\r\x1b[K")
	}
}
