// Package seldom logs errors that may occur in every request.
package seldom

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Log returns a function that logs an error with text, at most once a second.
func Log(text string) func(ctx context.Context, err error, args ...any) {
	var next atomic.Int64 // Unix time in ns
	return func(ctx context.Context, err error, args ...any) {
		now := time.Now().UnixNano()
		if due := next.Load(); now >= due && next.CompareAndSwap(due, now+int64(time.Second)) {
			slog.ErrorContext(ctx, text, append(args, "error", err)...)
		}
	}
}
