// Package throttle limits how often an error that may occur in every request is logged.
package throttle

import (
	"sync/atomic"
	"time"
)

// Throttle limits how often an event happens. The zero value is ready to use.
type Throttle struct{ next atomic.Int64 } // Unix time in ns

// Allow reports whether an event may happen now. After it has returned true, it returns false until
// d has passed.
func (t *Throttle) Allow(d time.Duration) bool {
	now, next := time.Now().UnixNano(), t.next.Load()
	return now >= next && t.next.CompareAndSwap(next, now+int64(d))
}

// Misconfigured is the text of the log line for a client.ErrMisconfigured. Fix is the value of its
// attribute fix.
const (
	Misconfigured = "a rate limit is misconfigured, and no retry helps"
	Fix           = "correct the limit or the request in the program, or deploy the policy that it names; Check finds wrong limits at start"
)
