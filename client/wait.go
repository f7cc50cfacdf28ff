package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// LimitedError is the error of [Client.Wait], [Lease.Wait], [Lease.Hold] and [Reservation.Cancel] where the limit or a
// block is in the way and waiting does not help, or no longer. Nothing was taken, unless Err says that it could not be
// given back.
type LimitedError struct {
	Key string // as it was sent, prefix included

	// RetryAfter is how long it would have taken at least, as far as is known; 0 if nothing is known, and [Never] where
	// more was asked for than the limit ever holds.
	RetryAfter time.Duration

	// Err is context.DeadlineExceeded where the wait would have been longer than the context lasts; the context's error
	// where it ended meanwhile; why no server decided, as Result.Err; or nil.
	Err error

	text string
}

// Error says what was waited for, why in vain, and what to do.
func (e *LimitedError) Error() string {
	text := "ratelimit: " + strconv.Quote(e.Key) + ": " + e.text
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

// Unwrap returns Err.
func (e *LimitedError) Unwrap() error { return e.Err }

// Wait is WaitN with n = 1.
func (c *Client) Wait(ctx context.Context, key string, limit Limit) error {
	return c.WaitN(ctx, key, limit, 1)
}

// WaitN waits until it has taken n units from key under limit, as WaitN of golang.org/x/time/rate does, and returns nil
// then, never earlier. With leaky_bucket it also waits for its turn in the queue.
//
// It returns a [*LimitedError] at once, and takes nothing, where the wait is known to go beyond the deadline of ctx, the
// end of a block included, and where n is more than the limit ever holds; and as soon as ctx ends. A place in the queue of a
// leaky_bucket that cannot be waited for is given back, so that a later caller may get the same turn as one who was behind.
// Other errors are those of [Client.AllowN]. A [Fallback] decides as there: with FailOpen WaitN returns nil, with FailClosed
// it asks again once a second.
//
// Callers of one key and limit in a Client are served in the order in which they came, whatever their n. The server is
// asked by the first of them, and for the others only as far as its last reply left units for all. Among Clients there
// is no order: who was denied asks again after RetryAfter, and who was denied then too, since another was quicker, adds
// up to RetryAfter at random, twice that the next time and so on, a second at most.
func (c *Client) WaitN(ctx context.Context, key string, limit Limit, n int64) error {
	req := Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}}
	keys := c.keys(req.Keys)
	if err := req.check(); err != nil {
		return refused("take", keys, err)
	}
	deadline, _ := ctx.Deadline()
	res, err := c.inTurn(ctx, turn{
		verb: "take", keys: keys, n: n, deadline: deadline,
		name: nameOf("take", keys[0], limit),
		ask:  func(ctx context.Context) (Result, error) { return c.Take(ctx, req) },
		pause: func(res Result, denials int) time.Duration {
			return spread(res.RetryAfter, denials, deadline)
		},
		refuse: func(wait time.Duration, cause error) error { return notHad(keys[0], req, wait, cause) },
	})
	if err != nil || res.RetryAfter == 0 {
		return err
	}
	return c.reservation(req, res).wait(ctx)
}

// spread is how long to wait after a denial that came after so many others. Where many processes wait for one key, each
// unit goes to one of them, and the others have asked in vain: they ask less often the more they are.
func spread(wait time.Duration, denials int, deadline time.Time) time.Duration {
	wait = max(wait, time.Millisecond)
	most := min(min(wait, time.Second)*time.Duration(min(denials, 1000)), time.Second)
	if !deadline.IsZero() {
		most = min(most, (time.Until(deadline)-wait)/2)
	}
	if most <= 0 {
		return wait
	}
	return wait + rand.N(most)
}

// notHad is the error of who waits for units in vain.
func notHad(key string, req Request, wait time.Duration, cause error) *LimitedError {
	limit, n := req.Limits[0], req.Costs[0]
	e := &LimitedError{Key: key, RetryAfter: wait, Err: cause}
	units := strconv.FormatInt(n, 10) + " of " + strconv.Quote(string(limit))
	switch {
	case wait == Never:
		e.text = units + " is more than the limit ever holds; ask for less at once, or raise its burst"
	case wait > 0:
		e.text = fmt.Sprintf("%s would have to be waited for, %v at least; nothing was taken, come back then or give the context more time", units, wait)
	default:
		e.text = "the context ended before it was the turn of " + units + "; nothing was taken"
	}
	return e
}

// nameOf is the name of a queue.
func nameOf(verb, key string, limit Limit) string {
	return verb + "\x00" + key + "\x00" + string(limit)
}

// both is two errors in one sentence; the second may be nil.
func both(err, why error) error {
	if why == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, why)
}
