package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Reservation is the outcome of [Client.ReserveN]. It is safe for concurrent use.
type Reservation struct {
	client *Client
	req    Request
	res    Result
	act    time.Time // when to proceed; for leaky_bucket, when the turn in the queue comes

	mu       sync.Mutex // guards canceled
	canceled bool
}

// Reserve is ReserveN with n = 1.
func (c *Client) Reserve(ctx context.Context, key string, limit Limit) (*Reservation, error) {
	return c.ReserveN(ctx, key, limit, 1)
}

// ReserveN takes n units from key under limit, or none, as [Client.AllowN] does, and returns a
// Reservation that can give them back. Its methods are named as in golang.org/x/time/rate. That
// package also reserves future units, with a Delay until they are available. Here, only a
// leaky_bucket, which has a queue, gives an OK Reservation with a Delay. Under any other limit, the
// Reservation is OK only if the units are available now. Otherwise Result().RetryAfter is the time
// to wait before a retry; [Client.WaitN] waits that long.
func (c *Client) ReserveN(ctx context.Context, key string, limit Limit, n int64) (*Reservation, error) {
	req := Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}}
	res, err := c.Take(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.reservation(req, res), nil
}

func (c *Client) reservation(req Request, res Result) *Reservation {
	return &Reservation{client: c, req: req, res: res, act: time.Now().Add(res.RetryAfter)}
}

// OK reports whether the units were taken. If not, Delay returns the longest time.Duration, and
// Cancel does nothing.
func (r *Reservation) OK() bool { return r.res.Allowed }

// Delay returns how long to wait before proceeding; 0 means immediately.
func (r *Reservation) Delay() time.Duration {
	if !r.res.Allowed {
		return math.MaxInt64
	}
	return max(time.Until(r.act), 0)
}

// Result returns the decision. If OK is false, its RetryAfter is the time to wait.
func (r *Reservation) Result() Result { return r.res }

// Cancel gives back the units, as [Client.RefundN] does. Call it if the work will not be done. It
// refunds at most once: later calls do nothing, even after an [ErrOutcomeUnknown]. If Cancel gave
// nothing back, for example because the key is blocked ([*LimitedError]), it can be called again.
// Cancel gives back only what a server charged ([Result.Charged]). So it does nothing if a Fallback
// decided, or for a shadow policy that would have denied the call. If a Fallback decided because the
// reply of the server was lost, nobody knows what was charged: Cancel gives nothing back, and
// returns an [ErrOutcomeUnknown].
//
// In golang.org/x/time/rate, Cancel does nothing after the Delay has passed. Here, this applies
// only to a leaky_bucket, because the caller has then left the queue. Under any other limit there
// is no Delay, and Cancel gives the units back at any time. If Cancel is called during the Delay,
// callers already in the queue keep their turns, and callers that arrive afterwards get earlier
// turns. A new caller may then have the same turn as one in the queue.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.canceled:
		return nil
	case r.res.RetryAfter > 0 && r.Delay() == 0:
		return nil
	}
	back := r.req
	var unknown error
	if back.Costs, unknown = r.res.Charged(r.req); unknown != nil {
		return r.client.notGivenBack(ctx, &r.req, unknown)
	}
	if slices.Max(back.Costs) == 0 {
		return nil
	}
	res, err := r.client.Refund(ctx, back)
	if err == nil && !res.Allowed {
		e := r.client.limitedError(r.req, res.Index, res.RetryAfter, nil)
		e.text = fmt.Sprintf("%s could not be given back, since the key is blocked for %v; try again then", r.req.wanted(), res.RetryAfter)
		return e
	}
	r.canceled = err == nil || errors.Is(err, ErrOutcomeUnknown)
	return err
}

// notGivenBack returns the error for a refund that is not sent, because the outcome of the take of
// req is unknown, and reports the call. why is the error of the take.
func (c *Client) notGivenBack(ctx context.Context, req *Request, why error) error {
	var err error = &Error{
		Op: "refund", Keys: c.server.keys(req.Keys), Err: why, unknown: true,
		sentence: fmt.Sprintf("not sent, since the units may not have been taken: the outcome of the take is unknown (%v)", why),
	}
	c.observers.report(ctx, "refund", time.Now(), req.Limits, &Result{}, &err)
	return err
}

// wait waits for the turn in the queue of a leaky_bucket. It returns an error if the turn would
// come after latest or after the deadline of ctx, or if ctx is done first. It then gives the turn
// back, unless the request has an OnceKey. If latest is the zero Time, only ctx bounds the wait.
func (r *Reservation) wait(ctx context.Context, latest time.Time) error {
	delay := r.Delay()
	cause := outlasts(ctx, delay)
	if cause == nil && (latest.IsZero() || !r.act.After(latest)) {
		if cause = r.client.server.lifetime.wait(ctx, nil, time.After(delay)); cause == nil {
			return nil
		}
		delay = r.Delay()
	}
	closed := cause == errClosed
	if closed {
		cause = afterClose("take", r.client.server.keys(r.req.Keys))
	}
	e := r.client.limitedError(r.req, r.res.Index, delay, cause)
	if r.req.OnceKey != "" {
		e.text = fmt.Sprintf("the turn of %s comes in %v; it is kept for who asks again with the OnceKey %q", r.req.wanted(), delay, r.req.OnceKey)
	} else if err := r.giveBack(ctx); err != nil {
		e.Err = both(cause, err)
		e.text = fmt.Sprintf("%s, which would have to be waited for, %v at least, could not be given back", r.req.wanted(), delay)
	} else if closed {
		return cause
	}
	return e
}

// giveBack calls Cancel even if ctx is done. If ctx is not done, its deadline applies to Cancel,
// but its cancellation does not.
func (r *Reservation) giveBack(ctx context.Context) error {
	back := toReturn(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok && ended(ctx) == nil {
		var cancel context.CancelFunc
		back, cancel = context.WithDeadline(back, deadline)
		defer cancel()
	}
	return r.Cancel(back)
}
