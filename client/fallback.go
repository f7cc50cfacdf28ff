package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Fallback is what a call that takes (Allow, AllowN, AllowAtMost, Take) is told when no server decides: it cannot be
// reached, does not reply in time, cannot serve, does not hold the library or refuses the user. It is [ReturnError], [FailOpen],
// [FailClosed] or a [LocalLimiter]. [WithFallback] sets it for a client, Request.Fallback for one call. The zero value is the
// client's, and for a client ReturnError.
//
// A call that was refused for what it asks, such as a limit that cannot be read, ends in an error whatever the Fallback,
// and so does one whose context was cancelled, or had ended before. While no server replies, none reads the limit: then
// only what can be seen without that is refused.
//
// A deadline of the context that passes during the call counts as no reply in time. If somebody else chooses the deadline, as the
// caller of a gRPC server does, give the call context.WithoutCancel: otherwise they choose when the Fallback decides.
type Fallback struct {
	kind  fallbackKind
	share float64 // of a localLimiter
}

type fallbackKind int

const (
	returnError fallbackKind = iota + 1
	failOpen
	failClosed
	localLimiter
)

var (
	// ReturnError returns the error. The caller decides.
	ReturnError = Fallback{kind: returnError}

	// FailOpen lets the call through: Result.Allowed is true, Source is [SourcePolicy], and Err says why.
	FailOpen = Fallback{kind: failOpen}

	// FailClosed denies the call: Result.Allowed is false, RetryAfter is 1 s, Source is [SourcePolicy], and Err says why.
	FailClosed = Fallback{kind: failClosed}
)

// WithFallback sets what calls are told when no server decides; see [Fallback].
func WithFallback(f Fallback) Option {
	return func(c *Client) error {
		if f.kind == 0 {
			return errors.New("the fallback is the zero value; give ReturnError, FailOpen, FailClosed or LocalLimiter")
		}
		if err := f.check(); err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "BADARGS "))
		}
		c.fallback = f
		return nil
	}
}

// mostCost is the largest cost that the library takes.
const mostCost = 1 << 53

// retryAfterOutage is what FailClosed tells to wait: a server that is back is noticed within a second.
const retryAfterOutage = time.Second

// arguments are the errors of a call that no server would take: its caller has to change it.
var arguments = []error{ErrBadLimit, ErrBadCost, ErrBadKeys, ErrBadArgs, ErrBadState, ErrNoPolicy, ErrCrossSlot}

// fallbackOf is the fallback of a request: its own, or the client's.
func (c *Client) fallbackOf(req Request) Fallback {
	if req.Fallback.kind != 0 {
		return req.Fallback
	}
	return c.fallback
}

// withoutDecision is the end of a take for which err came in place of a decision.
func (c *Client) withoutDecision(ctx context.Context, req Request, err error) (Result, error) {
	f := c.fallbackOf(req)
	if f.kind == 0 || f.kind == returnError || !replaceable(ctx, err) {
		return Result{}, err
	}
	if err := req.check(); err != nil {
		return Result{}, refused("take", c.keys(req.keys("take")), err)
	}
	if f.kind == localLimiter {
		return c.decideHere(req, f.share, err)
	}
	res := Result{Source: SourcePolicy, Err: err, Index: 1}
	if f.kind == failClosed {
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

// replaceable tells whether something else may decide in place of err.
func replaceable(ctx context.Context, err error) bool {
	for _, class := range arguments {
		if errors.Is(err, class) {
			return false
		}
	}
	var before endedBefore
	return !errors.As(err, &before) && !errors.Is(err, errClosed) && !errors.Is(ctx.Err(), context.Canceled)
}

// check is what can be seen to be wrong with a request before a server reads it.
func (r Request) check() error {
	switch {
	case len(r.Keys) == 0:
		return errors.New("BADKEYS there is no key; give what is to be limited one, such as user:42")
	case len(r.Limits) == 0:
		return errors.New("BADLIMIT there is no limit; give one such as 100/m")
	}
	for i, key := range r.Keys {
		if slices.Contains(r.Keys[:i], key) {
			return fmt.Errorf("BADKEYS the key %q is given twice; give each once", key)
		}
	}
	policies := false
	for i, limit := range r.Limits {
		if limit == "" {
			return fmt.Errorf("BADLIMIT limit %d is empty; give one such as 100/m", i+1)
		}
		policies = policies || limit[0] == '@'
	}
	if len(r.Limits) > len(r.Keys) || len(r.Limits) < len(r.Keys) && !policies {
		return fmt.Errorf("BADKEYS %d keys and %d limits; give one limit for each key", len(r.Keys), len(r.Limits))
	}
	if n := len(r.Costs); n > 1 && n != len(r.Keys) {
		return fmt.Errorf("BADARGS %d costs for %d keys; give one for all, or one for each", n, len(r.Keys))
	}
	for _, cost := range r.Costs {
		if cost < 0 || cost > mostCost {
			return fmt.Errorf("BADCOST %d: a cost is a whole number from 0 to %d", cost, int64(mostCost))
		}
	}
	return nil
}
