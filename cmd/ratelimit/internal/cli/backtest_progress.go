package cli

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/backtest"
)

// backtestProgress returns the completed share of a step, and a description of the progress. size
// is the size of the logs in bytes, or 0 if it is not known.
func backtestProgress(p backtest.Progress, size int64, took time.Duration) (share float64, text string) {
	text = fmt.Sprintf("step %d of %d: %s", p.Step, p.Steps, plural(p.Requests, "request"))
	if rate := float64(p.Decisions) / took.Seconds(); rate >= 1 && !math.IsInf(rate, 0) {
		text += fmt.Sprintf(", %s decisions/s", grouped(int64(rate)))
	}
	if p.Of > 0 {
		share = float64(p.Requests) / float64(p.Of)
	} else if size > 0 {
		share = float64(p.Bytes) / float64(size)
	}
	return share, text
}

// collector delays Go's garbage collection until there are about 256 MiB of garbage, unless GOGC is
// set. By default, Go collects garbage when there is as much of it as live data. The engine makes a
// lot of garbage and, at first, has little live data, so Go would collect too often.
type collector struct {
	usual int
	next  time.Time
}

const mostGarbage = 256 << 20

// tune adjusts the collector. Call it regularly as the data grows.
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
