package client

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// LogTo makes an [Observer] that writes to logger; nil is [slog.Default]. Calls that a server decided are logged at the level
// Debug. Where none did, that is a warning with the error, at most one a second, which tells how many more there were; a
// call that was cancelled is not worth one. A circuit breaker that opens or closes is logged by the address of its node.
//
// Keys are not logged, but an error names those of its call.
func LogTo(logger *slog.Logger) Observer {
	if logger == nil {
		logger = slog.Default()
	}
	l := &callLog{logger: logger}
	return Observer{Call: l.call, Breaker: l.breaker}
}

type callLog struct {
	logger *slog.Logger
	next   atomic.Int64 // when the next warning is due: Unix time in ns
	more   atomic.Int64 // warnings that were left out since the last
}

func (l *callLog) call(ctx context.Context, o Observation) {
	attrs := make([]slog.Attr, 0, 6)
	level, text := slog.LevelDebug, "rate limit asked"
	if o.Err != nil && o.ErrorType() != "canceled" {
		now := time.Now().UnixNano()
		if due := l.next.Load(); now < due || !l.next.CompareAndSwap(due, now+int64(time.Second)) {
			l.more.Add(1)
			return
		}
		level, text = slog.LevelWarn, "no server decided on a rate limit"
		attrs = append(attrs, slog.Any("error", o.Err), slog.Int64("more", l.more.Swap(0)))
	}
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs = append(attrs, slog.String("operation", o.Operation), slog.String("outcome", string(o.Outcome)),
		slog.String("source", o.Source.String()), slog.Duration("duration", o.Duration))
	l.logger.LogAttrs(ctx, level, text, attrs...)
}

func (l *callLog) breaker(change BreakerChange) {
	level := slog.LevelDebug // a half-open breaker is on its way to one of the others
	switch {
	case change.From == "closed":
		level = slog.LevelWarn
	case change.To == "closed":
		level = slog.LevelInfo
	}
	l.logger.LogAttrs(context.Background(), level, "circuit breaker of a rate limit server",
		slog.String("node", change.Node), slog.String("from", change.From), slog.String("to", change.To))
}
