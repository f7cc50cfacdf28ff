package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// LimitedError is the error of [Client.Wait], [Lease.Wait], [Lease.Hold] and [Reservation.Cancel] where the limit or a
// block is in the way and waiting does not help, or no longer. Nothing was taken, unless the text says so: what could not be
// given back, or is kept under an OnceKey.
type LimitedError struct {
	Key string // as it was sent, prefix included; of several the one that denied, or the first where that is not known

	// RetryAfter is how long it would have taken at least, as far as is known; 0 if nothing is known, and [Never] where
	// more was asked for than the limit ever holds.
	RetryAfter time.Duration

	// Err is context.DeadlineExceeded where the wait would have been longer than the context lasts; the context's error
	// where it ended meanwhile; why no server decided, as Result.Err; several of these; or nil.
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
// it asks again every one to two seconds.
//
// Callers of one key and limit in a Client are served in the order in which they came, whatever their n. The server is
// asked by the first of them, and for the others only as far as its last reply left units for all. Among Clients there
// is no order: who was denied asks again after RetryAfter, and who was denied then too, since another was quicker, adds
// up to RetryAfter at random, twice that the next time and so on, a second at most.
func (c *Client) WaitN(ctx context.Context, key string, limit Limit, n int64) error {
	return c.WaitRequest(ctx, Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}}, time.Time{})
}

// WaitRequest is WaitN for a whole Request: it waits until it has taken the costs of req from all of its keys. It begins no
// wait that is known to go beyond until, but returns a [*LimitedError] at once, as it does for the deadline of ctx; the
// zero Time sets no such bound.
//
// Callers whose keys and limits are the same are served in order. UpTo is an error ([ErrBadArgs]). A place in the queue of a
// leaky_bucket that was taken with an OnceKey is not given back, but kept for who asks again with that key.
func (c *Client) WaitRequest(ctx context.Context, req Request, until time.Time) error {
	keys := c.keys(req.Keys)
	err := req.check()
	if err == nil && req.UpTo {
		err = errors.New("BADARGS UpTo is set, but who waits gets the whole cost; leave UpTo false")
	}
	if err != nil {
		return refused("take", keys, err)
	}
	if deadline, ok := ctx.Deadline(); ok && (until.IsZero() || deadline.Before(until)) {
		until = deadline
	}
	res, err := c.inTurn(ctx, turn{
		verb: "take", keys: keys, n: req.largest(), deadline: until,
		name: nameOf("take", keys, req.Limits),
		ask:  func(ctx context.Context) (Result, error) { return c.Take(ctx, req) },
		pause: func(res Result, denials int) time.Duration {
			return spread(res.RetryAfter, denials, until)
		},
		refuse: func(denied Result, cause error) error { return c.notHad(req, denied.Index, denied.RetryAfter, cause) },
	})
	if err != nil || res.RetryAfter == 0 {
		return err
	}
	return c.reservation(req, res).wait(ctx, until)
}

// spread is how long to wait after a denial that came after so many others. Where many processes wait for one key, each
// unit goes to one of them, and the others have asked in vain: they ask less often the more they are.
func spread(wait time.Duration, denials int, deadline time.Time) time.Duration {
	wait = max(wait, time.Millisecond)
	most := min(min(wait, time.Second)*time.Duration(min(denials, 1000)), time.Second)
	if !deadline.IsZero() {
		most = min(most, (time.Until(deadline)-wait)/2)
	}
	if most <= 0 || wait > math.MaxInt64-most {
		return wait
	}
	return wait + rand.N(most)
}

// notHad is the error of who waits for units in vain; index is the key that denied, from 1 on.
func (c *Client) notHad(req Request, index int, wait time.Duration, cause error) *LimitedError {
	e := &LimitedError{Key: c.keys(req.Keys)[max(index, 1)-1], RetryAfter: wait, Err: cause}
	units := req.wanted()
	switch {
	case wait == Never:
		e.text = units + " is more than the limit ever holds; ask for less at once, or raise its burst"
	case wait > 0:
		e.text = fmt.Sprintf("%s would have to be waited for, %v at least; nothing was taken, come back then or allow more time", units, wait)
	default:
		e.text = "it was not the turn of " + units + " in time; nothing was taken"
	}
	return e
}

// nameOf is the name of a queue, another for other keys or limits.
func nameOf(verb string, keys []string, limits []Limit) string {
	name := []byte(verb)
	for _, key := range keys {
		name = strconv.AppendQuote(name, key)
	}
	for _, limit := range limits {
		name = strconv.AppendQuote(append(name, ' '), string(limit))
	}
	return string(name)
}

// outlasts is DeadlineExceeded if a wait would be longer than ctx lasts, or nil.
func outlasts(ctx context.Context, wait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Now().Add(wait).After(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// both is two errors in one sentence; each may be nil.
func both(err, why error) error {
	switch {
	case why == nil:
		return err
	case err == nil:
		return why
	}
	return fmt.Errorf("%w; %w", err, why)
}
