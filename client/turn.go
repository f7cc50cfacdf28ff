package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// turn is a turn in the queue of a leaky_bucket, which a take has granted.
type turn struct {
	waiter *waits
	req    *Request
	res    Result
	act    time.Time // when the turn comes
}

// wait waits for the turn. It returns an error if the turn would come after latest or after the
// deadline of ctx, or if ctx is done first. It then gives the turn back, unless the request has an
// OnceKey. If latest is the zero Time, only ctx bounds the wait.
func (t *turn) wait(ctx context.Context, latest time.Time) error {
	w := t.waiter
	delay := t.delay()
	cause := outlasts(ctx, delay)
	if cause == nil && (latest.IsZero() || !t.act.After(latest)) {
		if cause = w.lifetime.wait(ctx, nil, time.After(delay)); cause == nil {
			return nil
		}
		delay = t.delay()
	}
	closed := cause == errClosed
	if closed {
		cause = afterClose("take", w.keys(t.req.Keys))
	}
	e := w.limitedTake(t.req, t.res.Index, delay, cause)
	if t.req.OnceKey != "" {
		return limited("take", e.Keys[0], delay, cause,
			fmt.Sprintf("the turn of %s comes in %v; it is kept for who asks again with the OnceKey %q", t.req.wanted(), delay, t.req.OnceKey))
	}
	if err := t.giveBack(ctx); err != nil {
		return limited("take", e.Keys[0], delay, both(cause, err),
			fmt.Sprintf("%s, which would have to be waited for, %v at least, could not be given back", t.req.wanted(), delay))
	}
	if closed {
		return cause
	}
	return e
}

// delay returns how long to wait for the turn; 0 means that it has come.
func (t *turn) delay() time.Duration { return max(time.Until(t.act), 0) }

// giveBack refunds what a server charged ([Result.Charged]) for a turn that has not come yet: nothing
// if a Fallback decided. It sends the refund even if ctx is done. If ctx is not done, its deadline
// applies, but its cancellation does not. Callers already in the queue keep their turns, and callers
// that arrive afterwards get earlier turns, so a new caller may have the same turn as one in the
// queue.
func (t *turn) giveBack(ctx context.Context) error {
	w := t.waiter
	if t.delay() == 0 {
		return nil
	}
	back := *t.req
	var unknown error
	if back.Costs, unknown = t.res.Charged(back); unknown != nil {
		return notGivenBack(ctx, w.common, w.observers, t.req, unknown)
	}
	if slices.Max(back.Costs) == 0 {
		return nil
	}
	if w.refunder == nil {
		return errors.New("the limiter has no Refund")
	}
	to := toReturn(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok && ended(ctx) == nil {
		var cancel context.CancelFunc
		to, cancel = context.WithDeadline(to, deadline)
		defer cancel()
	}
	res, err := w.refunder.Refund(to, back)
	if err == nil && !res.Allowed {
		return limited("refund", w.keyOf(t.req, res.Index), res.RetryAfter, nil,
			fmt.Sprintf("%s could not be given back, since the key is blocked for %v; try again then", t.req.wanted(), res.RetryAfter))
	}
	return err
}

// notGivenBack returns the error for a refund that is not sent, because the outcome of the take of
// req is unknown, and reports the call. why is the error of the take.
func notGivenBack(ctx context.Context, c *common, o *observers, req *Request, why error) error {
	var err error = &Error{
		Op: "refund", Keys: slices.Clone(c.keys(req.Keys)), Err: why, unknown: true,
		sentence: fmt.Sprintf("not sent, since the units may not have been taken: the outcome of the take is unknown (%v)", why),
	}
	o.report(ctx, "refund", time.Now(), req.Limits, &Result{}, &err)
	return err
}
