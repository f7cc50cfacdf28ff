package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/client/internal/throttle"
)

// Fallback selects the result of a call that takes units (Allow, AllowN, Take) if no
// server decides. The server may be unreachable, not reply in time, be unable to serve, lack the
// library, or reject the user. A Fallback is [ReturnError], [FailOpen], [FailClosed] or a
// [LocalFallback]. [WithFallback] sets it for a client, Request.Fallback for one call. The zero
// value of Request.Fallback means the client's Fallback, which is ReturnError by default.
//
// With any Fallback, a call returns an error if its arguments are invalid ([ErrMisconfigured]), for
// example if the limit cannot be parsed. It also returns an error if its context was canceled or
// had ended before the call. While no server replies, only errors that the client itself can detect
// are returned.
//
// A context deadline that passes during the call counts as a missing reply. If the deadline is
// chosen by someone else, such as the caller of a gRPC server, give the call context.WithoutCancel;
// otherwise that caller can trigger the Fallback.
//
// While a Fallback other than ReturnError decides, the client logs a warning at most once a minute,
// with the number of these decisions and the reason. It uses the logger of [LogTo], or else
// [slog.Default].
type Fallback struct {
	kind  fallbackKind
	local *localLimits // for localFallback
}

type fallbackKind int

const (
	returnError fallbackKind = iota + 1
	failOpen
	failClosed
	localFallback
)

var (
	// ReturnError returns the error, and leaves the choice to the caller.
	ReturnError = Fallback{kind: returnError}

	// FailOpen allows the call: Result.Allowed is true, Source is "fallback", and Err is the
	// reason.
	FailOpen = Fallback{kind: failOpen}

	// FailClosed denies the call: Result.Allowed is false, RetryAfter is 1 s, Source is
	// "fallback", and Err is the reason.
	FailClosed = Fallback{kind: failClosed}
)

// WithFallback sets the client's [Fallback], which selects the result of calls if no server
// decides.
func WithFallback(f Fallback) Option {
	return option("WithFallback", "a fallback", func(c *config) error {
		if f.kind == 0 {
			return errors.New("the fallback is the zero value; give ReturnError, FailOpen, FailClosed or LocalFallback")
		}
		if err := f.check(); err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "BADARGS "))
		}
		c.fallback = f
		return nil
	})
}

// retryAfterOutage is the RetryAfter of FailClosed. After this time, the client has noticed if the
// server is back.
const retryAfterOutage = time.Second

// fallbacks is the layer that decides if no server can. It decides nothing else. A [LocalFallback]
// admits no more than its share of a limit per process.
type fallbacks struct {
	*common
	parsed *parsedLimits
	next   Limiter
	preset Fallback // the client's Fallback
	log    *fallbackLog

	// buckets holds the buckets of LocalFallback. If a dropped bucket is needed again, it starts
	// full.
	buckets table[bucketKey, *rate.Limiter]
}

// Take implements [Limiter].
func (f *fallbacks) Take(ctx context.Context, req Request) (Result, error) {
	if err := req.Fallback.check(); err != nil {
		return Result{}, f.refused(&req, err)
	}
	if req.Fallback.kind == 0 {
		req.Fallback = f.preset
	}
	res, err := f.next.Take(ctx, req)
	if err != nil {
		return f.replace(ctx, &req, err)
	}
	if res.Source == sourceServer && req.Fallback.kind == localFallback {
		f.parsed.learn(req.Limits)
	}
	return res, nil
}

// replace returns the result of a take that ended with err instead of a decision.
func (f *fallbacks) replace(ctx context.Context, req *Request, err error) (Result, error) {
	kind := req.Fallback.kind
	if kind == returnError || !replaceable(ctx, err) {
		return Result{}, err
	}
	if err := req.check(); err != nil {
		return Result{}, f.refused(req, err)
	}
	if kind == localFallback {
		res, unknown := f.local(req, err)
		if unknown == nil {
			f.log.decided(ctx, kind, err)
		}
		return res, unknown
	}
	f.log.decided(ctx, kind, err)
	res := Result{Source: sourceFallback, Err: err, Index: 1}
	if kind == failClosed {
		res.RetryAfter = retryAfterOutage
		return res, nil
	}
	res.Allowed = true
	if req.UpTo {
		res.Taken = req.Costs[0]
		res.Allowed = res.Taken > 0
	}
	return res, nil
}

// replaceable reports whether a fallback may decide a call that ended with err.
func replaceable(ctx context.Context, err error) bool {
	var before endedBefore
	return !errors.Is(err, ErrMisconfigured) && !errors.As(err, &before) && !errors.Is(err, errClosed) && !errors.Is(ctx.Err(), context.Canceled)
}

// fallbackLog logs that fallbacks decide. Each kind of fallback has its own line.
type fallbackLog struct {
	logger *slog.Logger // nil: slog.Default()
	lines  [localFallback + 1]struct {
		minute throttle.Throttle
		count  atomic.Int64 // decisions since the last line
	}
}

var fallbackTexts = [...]string{
	failOpen:      "no rate limit applies: no server decides, and FailOpen allows every call",
	failClosed:    "every call with a rate limit is denied: no server decides, and FailClosed denies",
	localFallback: "this process decides on rate limits alone, with its share of each limit",
}

// decided is called after each decision of a fallback. why is the reason that no server decided.
func (l *fallbackLog) decided(ctx context.Context, kind fallbackKind, why error) {
	line := &l.lines[kind]
	line.count.Add(1)
	if !line.minute.Allow(time.Minute) {
		return
	}
	attrs := []slog.Attr{slog.Int64("decisions", line.count.Swap(0)), slog.Any("error", why)}
	if p, ok := errors.AsType[panicked](why); ok {
		attrs = append(attrs, slog.String("stack", p.stack))
	}
	cmp.Or(l.logger, slog.Default()).LogAttrs(ctx, slog.LevelWarn, fallbackTexts[kind], attrs...)
}
