// Package throttle limits how often an error that may occur in every request is logged.
package throttle

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Second allows one event a second. The zero value is ready to use.
type Second struct{ next atomic.Int64 } // Unix time in ns

// Allow reports whether an event may happen now.
func (s *Second) Allow() bool {
	now, next := time.Now().UnixNano(), s.next.Load()
	return now >= next && s.next.CompareAndSwap(next, now+int64(time.Second))
}

// Log returns a function that logs an error with text, at most once a second.
func Log(text string) func(ctx context.Context, err error, args ...any) {
	var second Second
	return func(ctx context.Context, err error, args ...any) {
		if second.Allow() {
			slog.ErrorContext(ctx, text, append(args, "error", err)...)
		}
	}
}
