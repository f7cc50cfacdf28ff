package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Reservation is what [Client.ReserveN] took, or was denied. It is safe for concurrent use.
type Reservation struct {
	client *Client
	req    Request
	res    Result
	act    time.Time // when to go ahead; for leaky_bucket the turn

	mu       sync.Mutex // of Cancel
	canceled bool
}

// Reserve is ReserveN with n = 1.
func (c *Client) Reserve(ctx context.Context, key string, limit Limit) (*Reservation, error) {
	return c.ReserveN(ctx, key, limit, 1)
}

// ReserveN takes n units from key under limit, or none, as [Client.AllowN] does, and returns a Reservation that can give
// them back. Its words are those of golang.org/x/time/rate, but a server gives no units of the future away: there a
// Reservation is OK with a Delay until the units are there. Here it is OK with a Delay for leaky_bucket alone, which has
// a queue; with other limits it is OK without one if the units are there now, and else not OK: Result().RetryAfter says
// when to come back, and [Client.WaitN] waits for that.
func (c *Client) ReserveN(ctx context.Context, key string, limit Limit, n int64) (*Reservation, error) {
	req := Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}}
	res, err := c.Take(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.reservation(req, res), nil
}

// reservation is what came of req just now.
func (c *Client) reservation(req Request, res Result) *Reservation {
	return &Reservation{client: c, req: req, res: res, act: time.Now().Add(res.RetryAfter)}
}

// OK tells whether the units were taken. If not, Delay is the longest time.Duration, and Cancel does nothing.
func (r *Reservation) OK() bool { return r.res.Allowed }

// Delay is how long to wait from now on before going ahead; 0 means at once.
func (r *Reservation) Delay() time.Duration {
	if !r.res.Allowed {
		return math.MaxInt64
	}
	return max(time.Until(r.act), 0)
}

// Result is the decision as it was made; RetryAfter of one that is not OK is there.
func (r *Reservation) Result() Result { return r.res }

// Cancel gives back what was taken, once, by [Client.RefundN]: when what it was taken for is not done. Further calls do
// nothing, also after an [ErrOutcomeUnknown]; but one that gave nothing back can be repeated, such as a [*LimitedError]
// because the key is blocked. What a Fallback allowed was taken from no server, and is not given back.
//
// In golang.org/x/time/rate a Reservation whose time has come gives nothing back. Here that is so for a place in the
// queue of a leaky_bucket, which has been left then. One that is given back before closes the queue up for those who
// come later, while who is behind keeps the turn that it was told: two may then have the same.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.canceled, !r.res.Allowed, r.req.largest() == 0, r.res.Source == SourceLocal, r.res.Source == SourcePolicy:
		return nil
	case r.res.RetryAfter > 0 && r.Delay() == 0:
		return nil
	}
	res, err := r.client.Refund(ctx, r.req)
	if err == nil && !res.Allowed {
		e := r.client.notHad(r.req, res.Index, res.RetryAfter, nil)
		e.text = fmt.Sprintf("%s could not be given back, since the key is blocked for %v; try again then", r.req.wanted(), res.RetryAfter)
		return e
	}
	r.canceled = err == nil || errors.Is(err, ErrOutcomeUnknown)
	return err
}

// wait waits for the turn in the queue of a leaky_bucket, or gives it back.
func (r *Reservation) wait(ctx context.Context, until time.Time) error {
	delay := r.res.RetryAfter
	cause := outlasts(ctx, delay)
	if cause == nil && (until.IsZero() || !r.act.After(until)) {
		timer := time.NewTimer(delay)
		cause = r.client.wait(ctx, nil, timer.C)
		timer.Stop()
		if cause == nil {
			return nil
		}
		delay = r.Delay()
	}
	e := r.client.notHad(r.req, r.res.Index, delay, cause)
	if r.req.OnceKey != "" {
		e.text = fmt.Sprintf("the turn of %s comes in %v; it is kept for who asks again with the OnceKey %q", r.req.wanted(), delay, r.req.OnceKey)
	} else if err := r.giveBack(ctx); err != nil {
		e.Err = both(cause, err)
		e.text = fmt.Sprintf("%s, which would have to be waited for, %v at least, could not be given back", r.req.wanted(), delay)
	}
	return e
}

// giveBack is Cancel, also where ctx has ended; where it has not, by its deadline.
func (r *Reservation) giveBack(ctx context.Context) error {
	back := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok && ended(ctx) == nil {
		var cancel context.CancelFunc
		back, cancel = context.WithDeadline(back, deadline)
		defer cancel()
	}
	return r.Cancel(back)
}
