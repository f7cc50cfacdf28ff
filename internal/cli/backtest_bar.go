package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/backtest"
)

// bar is the progress of backtest and of load, one line on a terminal that is drawn over, and nothing elsewhere.
type bar struct {
	w     io.Writer // nil: no terminal
	width int
	size  int64
	began time.Time
	drawn time.Time
}

const redraw = 100 * time.Millisecond

func (a *app) newBar(size int64) *bar {
	b := &bar{size: size, began: time.Now()}
	if isTerminal(a.stderr) && a.env("TERM") != "dumb" {
		b.w, b.width = a.stderr, usualWidth
		if width, _ := terminalSize(a.stderr); width > 0 {
			b.width = width
		}
	}
	return b
}

func (b *bar) show(p backtest.Progress) {
	b.draw(func(took time.Duration) string { return b.line(p, took) })
}

// draw draws a line over the last one, unless that is too new.
func (b *bar) draw(line func(took time.Duration) string) {
	now := time.Now()
	if b.w == nil || now.Sub(b.drawn) < redraw {
		return
	}
	b.drawn = now
	_, _ = fmt.Fprintf(b.w, "\r%s\x1b[K", line(now.Sub(b.began)))
}

// line is what the bar shows, in less than its width.
func (b *bar) line(p backtest.Progress, took time.Duration) string {
	text := fmt.Sprintf("step %d of %d: %s", p.Step, p.Steps, plural(p.Requests, "request"))
	if rate := float64(p.Decisions) / took.Seconds(); rate >= 1 && !math.IsInf(rate, 0) {
		text += fmt.Sprintf(", %s decisions/s", grouped(int64(rate)))
	}
	share := 0.0
	if p.Of > 0 {
		share = float64(p.Requests) / float64(p.Of)
	} else if b.size > 0 {
		share = float64(p.Bytes) / float64(b.size)
	}
	return b.filled(share, text)
}

// filled is a bar of which this share is full, before a text, in less than the width.
func (b *bar) filled(share float64, text string) string {
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

// collector has the collector of garbage wait until there are 256 MiB of it, unless GOGC says otherwise: functions make much,
// and by default it runs whenever there is as much garbage as there is data, which at first is little.
type collector struct {
	usual int
	next  time.Time
}

const mostGarbage = 256 << 20

// tune is to be called now and then, as the data grows.
func (c *collector) tune() {
	now := time.Now()
	if os.Getenv("GOGC") != "" || now.Before(c.next) {
		return
	}
	first := c.next.IsZero()
	c.next = now.Add(time.Second)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	before := debug.SetGCPercent(int(max(50, min(1600, 100*mostGarbage/(sample[0].Value.Uint64()+1)))))
	if first {
		c.usual = before
	}
}

func (c *collector) back() {
	if !c.next.IsZero() {
		debug.SetGCPercent(c.usual)
	}
}
