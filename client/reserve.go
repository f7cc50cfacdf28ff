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
	n := r.req.Costs[0]
	switch {
	case r.canceled, !r.res.Allowed, n == 0, r.res.Source == SourceLocal, r.res.Source == SourcePolicy:
		return nil
	case r.res.RetryAfter > 0 && r.Delay() == 0:
		return nil
	}
	limit := r.req.Limits[0]
	res, err := r.client.RefundN(ctx, r.req.Keys[0], limit, n)
	if err == nil && !res.Allowed {
		return &LimitedError{
			Key: r.key(), RetryAfter: res.RetryAfter,
			text: fmt.Sprintf("%d of %q could not be given back, since the key is blocked for %v; try again then", n, string(limit), res.RetryAfter),
		}
	}
	r.canceled = err == nil || errors.Is(err, ErrOutcomeUnknown)
	return err
}

// key is the key as it is sent.
func (r *Reservation) key() string { return r.client.keys(r.req.Keys)[0] }

// wait waits for the turn in the queue of a leaky_bucket, or gives it back.
func (r *Reservation) wait(ctx context.Context) error {
	delay := r.Delay()
	var cause error
	if deadline, ok := ctx.Deadline(); ok && time.Now().Add(delay).After(deadline) {
		cause = context.DeadlineExceeded
	} else {
		timer := time.NewTimer(delay)
		cause = r.client.wait(ctx, nil, timer.C)
		timer.Stop()
	}
	if cause == nil {
		return nil
	}
	delay = r.Delay()
	if err := r.Cancel(context.WithoutCancel(ctx)); err != nil {
		e := notHad(r.key(), r.req, delay, fmt.Errorf("%w; %w", cause, err))
		e.text = fmt.Sprintf("%d of %q, which would have to be waited for, %v at least, could not be given back", r.req.Costs[0], string(r.req.Limits[0]), delay)
		return e
	}
	return notHad(r.key(), r.req, delay, cause)
}
