package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ratelimit-functions/ratelimit/client/internal/throttle"
)

// LogTo returns an [Observer] that writes to logger, or to [slog.Default] if logger is nil. Calls
// decided by a server and canceled calls are logged at level Debug. If no server decided, LogTo
// logs a warning with the error, at most once a second. The warning includes the number of
// suppressed warnings and, after a panic in a hook of the Redis client, the stack of the panic. An
// [ErrMisconfigured], which no retry can fix, is logged at level Error with its remedy, also at
// most once a second. If a [Fallback] decides, LogTo logs one warning a minute, with the number of
// decisions. When a circuit breaker opens or closes, LogTo logs the address of its node.
//
// LogTo logs the names of policies. It does not log keys, but the text of an error contains the
// keys of its call.
func LogTo(logger *slog.Logger) Observer {
	logger = cmp.Or(logger, slog.Default())
	l := &callLog{logger: logger}
	return Observer{Call: l.call, Breaker: l.breaker, log: &fallbackLog{logger: logger}}
}

type callLog struct {
	logger           *slog.Logger
	warnings, errors throttled
}

// throttled limits log lines to one per second.
type throttled struct {
	throttle.Throttle
	more atomic.Int64 // lines suppressed since the last line was logged
}

func (l *callLog) call(ctx context.Context, o Observation) {
	attrs := make([]slog.Attr, 0, 8)
	level, text := slog.LevelDebug, "rate limit asked"
	fallback := o.Outcome == outcomeAllowed || o.Outcome == outcomeDenied // logged by fallbackLog
	if o.Err != nil && o.ErrorType != "canceled" && !fallback {
		lines := &l.warnings
		level, text = slog.LevelWarn, "no server decided on a rate limit"
		if o.Outcome == outcomeMisconfigured {
			lines = &l.errors
			level, text = slog.LevelError, throttle.Misconfigured
			attrs = append(attrs, slog.String("fix", throttle.Fix))
		}
		if !lines.Allow(time.Second) {
			lines.more.Add(1)
			return
		}
		attrs = append(attrs, slog.Any("error", o.Err), slog.Int64("more", lines.more.Swap(0)))
		if p, ok := errors.AsType[panicked](o.Err); ok {
			attrs = append(attrs, slog.String("stack", p.stack))
		}
	}
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs = append(attrs, slog.String("operation", o.Op), slog.String("outcome", o.Outcome),
		slog.String("source", cmp.Or(o.Source, "none")), slog.Duration("duration", o.Duration))
	if o.Policy != "" {
		attrs = append(attrs, slog.String("policy", o.Policy))
	}
	if o.Class != "" {
		attrs = append(attrs, slog.String("class", o.Class))
	}
	l.logger.LogAttrs(ctx, level, text, attrs...)
}

func (l *callLog) breaker(node, from, to string) {
	level := slog.LevelDebug // for changes between open and half-open, which repeat while a node is down
	switch {
	case from == "closed":
		level = slog.LevelWarn
	case to == "closed":
		level = slog.LevelInfo
	}
	l.logger.LogAttrs(context.Background(), level, "circuit breaker of a rate limit server",
		slog.String("node", node), slog.String("from", from), slog.String("to", to))
}
