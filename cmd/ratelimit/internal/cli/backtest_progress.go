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

// backtestProgress is how much of a step is done, and what to say of it, of logs of a size in bytes; 0: that is not known.
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

// collector has Go's garbage collector wait until there are 256 MiB of garbage, unless GOGC says otherwise: the engine makes much
// of it, and by default the collector runs whenever there is as much garbage as data, of which there is little at first.
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
