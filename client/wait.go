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

// LimitedError is the error from [Client.Wait], [Lease.Wait], [Lease.Hold] and [Reservation.Cancel]
// if a limit or a block prevents the operation for longer than the caller can wait. Nothing was
// taken, unless Error says that units could not be given back or are kept under an OnceKey. If the
// error matches [ErrOutcomeUnknown], the units may have been taken, at most once.
type LimitedError struct {
	// Key is the key that denied, with the client's prefix. If it is unknown which of several keys
	// denied, Key is the first of them.
	Key string

	// RetryAfter is a lower bound on the time until the operation can succeed. It is 0 if this is
	// unknown, and [Never] if the operation needs more units than the limit can ever have.
	RetryAfter time.Duration

	// Err is the cause of the failure, or nil. It can wrap several of these errors:
	// context.DeadlineExceeded if the wait would outlast the context, the error of a context that
	// ended during the wait, and the reason why no server decided (see Result.Err).
	Err error

	text string
}

// Error describes the wait, the reason why it failed, and what to do.
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

// WaitN waits until n units are available under limit, takes them from key, and returns nil, like
// WaitN of golang.org/x/time/rate. With leaky_bucket it also waits for its turn in the queue.
//
// WaitN returns a [*LimitedError] immediately, and takes nothing, if n is above the capacity of the
// limit. It does the same if the wait for units, or for the end of a block, is known to exceed the
// deadline of ctx. It also returns a LimitedError as soon as ctx is done. If the caller cannot wait
// for its turn in the queue of a leaky_bucket, WaitN gives the turn back. A caller that arrives
// later may then get the same turn as a caller that is already in the queue. Other errors are those
// of [Client.AllowN]. A [Fallback] applies as it does to AllowN: with FailOpen, WaitN returns nil;
// with FailClosed, it retries every one to two seconds. If a Fallback denies a call whose reply was
// lost, WaitN does not retry, because the units may have been taken: it returns a LimitedError that
// matches [ErrOutcomeUnknown].
//
// Callers of one key and limit in a Client are served in order of arrival, regardless of n. The
// first of them calls the server. The others call it at the same time only if the last reply left
// enough units for all of them. Callers of different Clients are served in no particular order. A
// caller that was denied retries after RetryAfter. After each further denial, it also waits for a
// random time, whose maximum grows with the number of denials, up to a second.
func (c *Client) WaitN(ctx context.Context, key string, limit Limit, n int64) error {
	return c.WaitRequest(ctx, Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}}, time.Time{})
}

// WaitRequest is WaitN for a whole Request: it waits until it has taken the costs of req from all
// of its keys. If the wait would end after until or after the deadline of ctx, it returns a
// [*LimitedError] immediately. If until is the zero Time, only ctx bounds the wait.
//
// Callers with the same keys and limits are served in order of arrival. If UpTo or Force is set, the
// error is [ErrBadArgs]. If req has an OnceKey, WaitRequest does not give back a turn in the queue
// of a leaky_bucket: a caller that repeats the request gets the same turn. This Client knows when the
// turn comes. Another Client, for example after a restart, cannot know how old the reply is: there,
// the turn comes later, as if the first reply to that Client were new. If a Fallback denies a
// call with an OnceKey whose reply was lost, WaitRequest retries in the first quarter of OnceTTL.
func (c *Client) WaitRequest(ctx context.Context, req Request, until time.Time) error {
	keys := c.server.keys(req.Keys)
	err := req.check()
	if err == nil && req.UpTo {
		err = errors.New("BADARGS UpTo is set, but who waits gets the whole cost; leave UpTo false")
	}
	if err == nil && req.Force {
		err = errors.New("BADARGS Force is set, but a call with it never waits; call Take")
	}
	if err != nil {
		return c.observers.refuse(ctx, "take", keys, req.Limits, err)
	}
	if deadline, ok := ctx.Deadline(); ok && (until.IsZero() || deadline.Before(until)) {
		until = deadline
	}
	// Close waits until a turn that cannot be waited for is given back.
	defer c.server.lifetime.hold()()
	var sent time.Time
	take := req
	take.Each = req.Each || req.policies() > 1 // so that Charged is exact
	res, err := c.inTurn(ctx, turn{
		verb: "take", keys: keys, limits: req.Limits, n: req.largest(), deadline: until,
		name: nameOf("take", keys, req.Limits), within: req.OnceTTL / 4,
		try: func(ctx context.Context) (Result, error) {
			sent = time.Now()
			return c.Take(ctx, take)
		},
		pause: func(res Result, denials int) time.Duration {
			return spread(res.RetryAfter, denials, until)
		},
		refuse: func(denied Result, cause error) error {
			return c.limitedError(req, denied.Index, denied.RetryAfter, cause)
		},
	})
	if err != nil || res.RetryAfter == 0 {
		return err
	}
	r := c.reservation(req, res)
	if req.OnceKey != "" {
		r.act = c.turns.at(req, res, sent, r.act)
	}
	return r.wait(ctx, until)
}

// turns remembers when the turns of requests with an OnceKey come. A repeated reply has the wait of
// the first reply, and not the time that is left of it.
type turns struct{ table[string, keptTurn] }

// keptTurn is a turn in the queue of a leaky_bucket.
type keptTurn struct {
	reply [5]int64  // the reply that granted the turn
	at    time.Time // when the turn comes
	until time.Time // the server repeats the reply until then, at least
}

// at returns when the turn comes that res grants to req. sent is when the call was sent. latest is
// when the turn comes if res is a new reply.
func (t *turns) at(req Request, res Result, sent, latest time.Time) time.Time {
	reply := [5]int64{res.Limit, res.Remaining, int64(res.RetryAfter), int64(res.ResetAfter), int64(res.Index)}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if kept, ok := t.entries.Get(req.OnceKey); ok && kept.reply == reply && now.Before(kept.until) {
		return kept.at
	}
	t.shrink(func(oldest keptTurn) bool { return now.Before(oldest.until) })
	t.entries.Add(req.OnceKey, keptTurn{reply, latest, sent.Add(req.OnceTTL)})
	return latest
}

// spread returns how long to wait after a denial: the given wait plus a random time. The maximum of
// the random time grows with the number of earlier denials, up to a second. It never extends the
// wait beyond the deadline. So processes that wait for one key do not all retry at once, and send
// fewer calls after each denial.
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

// limitedError returns the error for a caller that got no units for req. index is the number of the
// key that denied, from 1, or 0 if unknown.
func (c *Client) limitedError(req Request, index int, wait time.Duration, cause error) *LimitedError {
	e := &LimitedError{Key: c.server.keys(req.Keys)[max(index, 1)-1], RetryAfter: wait, Err: cause}
	units := req.wanted()
	switch {
	case errors.Is(cause, ErrOutcomeUnknown):
		e.text = units + " may have been taken, at most once; "
		if req.OnceKey == "" {
			e.text += "a new call can be charged too"
		} else {
			e.text += fmt.Sprintf("ask again with the OnceKey %q, which is charged once", req.OnceKey)
		}
	case wait == Never:
		e.text = units + " is more than the limit ever holds; ask for less at once, or raise its burst"
	case wait > 0:
		e.text = fmt.Sprintf("%s would have to be waited for, %v at least; nothing was taken, come back then or allow more time", units, wait)
	default:
		e.text = "it was not the turn of " + units + " in time; nothing was taken"
	}
	return e
}

// nameOf returns the name of the queue for calls with this verb, these keys and these limits.
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

// outlasts returns DeadlineExceeded if the wait would end after the deadline of ctx.
func outlasts(ctx context.Context, wait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Now().Add(wait).After(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// both returns an error that wraps err and why. It accepts nil for either of them.
func both(err, why error) error {
	switch {
	case why == nil:
		return err
	case err == nil:
		return why
	}
	return fmt.Errorf("%w; %w", err, why)
}
