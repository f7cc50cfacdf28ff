package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/client/internal/layer"
)

// waits waits until a [Limiter] allows. It adds an order: callers of one of them with the same keys and
// limits are served in order of arrival, and the first of them calls the Limiter.
type waits struct {
	*common  // of the Client beneath the Limiter, or of no Client
	limiter  Limiter
	refunder interface { // nil: units cannot be given back
		Refund(context.Context, Request) (Result, error)
	}
	sendable  func(context.Context, *call) error // returns the error for a call that cannot be sent
	observers *observers
	name      string  // begins the names of its queues; "" for Client.Wait
	queues    *queues // the waiting callers
	turns     *turns  // their turns under a leaky_bucket
}

// WaitFunc returns a function that waits until limiter allows a request, as [Client.Wait] does. Callers of
// the function with the same keys and limits are served in order of arrival. If limiter is a [*Client],
// they are in the order of its Wait. Closing the Client beneath limiter ends the waits. If a turn in the
// queue of a leaky_bucket cannot be given back, because no layer has a method Refund(context.Context,
// Request) (Result, error), the error says so.
func WaitFunc(limiter Limiter) (wait func(ctx context.Context, req Request) error, err error) {
	if err := layer.Given(limiter); err != nil {
		return nil, fmt.Errorf("ratelimit: client.WaitFunc: %w", err)
	}
	if c, ok := limiter.(*Client); ok {
		return c.Wait, nil
	}
	c, _ := layer.Beneath[*Client](limiter)
	return newWaits(limiter, c).wait, nil
}

// newWaits returns the waits for limiter. c is the Client beneath it, or nil.
func newWaits(limiter Limiter, c *Client) *waits {
	w := &waits{limiter: limiter}
	w.refunder, _ = layer.Beneath[interface {
		Refund(context.Context, Request) (Result, error)
	}](limiter)
	if c != nil {
		w.common, w.observers, w.sendable = c.common, c.observers, c.server.ready
	} else {
		w.common, w.observers = &common{timeout: defaultTimeout, lifetime: newLifetime()}, &observers{}
		w.sendable = w.ready
	}
	if c != nil && c.waits != nil { // shared, so that a change to a key reaches all who wait for it
		w.name, w.queues, w.turns = fmt.Sprintf("%p ", w), c.waits.queues, c.waits.turns
	} else {
		w.queues, w.turns = newQueues(), &turns{newTable[string, keptTurn](mostKeys)}
	}
	return w
}

// Wait waits until it has taken the costs of req from all of its keys, and returns nil:
//
//	err := limiter.Wait(ctx, client.For("user:42", "10/m"))
//
// With leaky_bucket it also waits for its turn in the queue.
//
// Wait returns an [ErrLimited] immediately, and takes nothing, if a cost is above the capacity of the
// limit. It does the same if the wait for units, or for the end of a block, is known to exceed the
// deadline of ctx or req.WaitUntil. It also returns an ErrLimited as soon as ctx is done. If the
// caller cannot wait for its turn in the queue of a leaky_bucket, Wait gives the turn back. A caller
// that arrives later may then get the same turn as a caller that is already in the queue. Other
// errors are those of [Client.Take]. If UpTo or Force is set, the error is [ErrMisconfigured].
//
// A [Fallback] applies as it does to Take: with FailOpen, Wait returns nil; if another one denies, Wait
// retries every one to two seconds, because a server may be back. If a Fallback denies a call whose reply was lost, Wait does not
// retry, because the units may have been taken: it returns an ErrLimited that is also
// [ErrOutcomeUnknown]. With an OnceKey, it retries in the first quarter of OnceTTL.
//
// Callers with the same keys, limits, Class, Floor and Borrow in a Client are served in order of arrival, regardless of
// their costs. The first of them calls the server. The others call it at the same time only if the
// last reply left enough units for all of them. Callers of different Clients are served in no
// particular order. A caller that was denied retries after RetryAfter. After each further denial, it
// also waits for a random time, whose maximum grows with the number of denials, up to a second. Callers
// also retry when this Client changes one of their keys by Reset, Refund, Block, Unblock, Override or
// EndOverride, and after a minute, because another process may have done so.
//
// If req has an OnceKey, Wait does not give back a turn in the queue of a leaky_bucket: a caller that
// repeats the request gets the same turn. This Client knows when the turn comes. Another Client, for
// example after a restart, cannot know how old the reply is: there, the turn comes later, as if the
// first reply to that Client were new.
func (c *Client) Wait(ctx context.Context, req Request) error { return c.waits.wait(ctx, req) }

func (w *waits) wait(ctx context.Context, req Request) error {
	keys := w.keys(req.Keys)
	err := req.check()
	if err == nil && req.UpTo {
		err = errors.New("BADARGS UpTo is set, but who waits gets the whole cost; leave UpTo false")
	}
	if err == nil && req.Force {
		err = errors.New("BADARGS Force is set, but a call with it never waits; call Take")
	}
	if err != nil {
		return w.observers.refuse(ctx, "take", keys, req.Limits, err)
	}
	until := req.WaitUntil
	if deadline, ok := ctx.Deadline(); ok && (until.IsZero() || deadline.Before(until)) {
		until = deadline
	}
	// Close waits until a turn that cannot be waited for is given back.
	defer w.lifetime.hold()()
	var sent time.Time
	take := req
	take.Each = req.Each || req.policies() > 1 // so that Charged is exact
	res, err := w.inTurn(ctx, queued{
		verb: "take", keys: keys, limits: req.Limits, n: req.largest(), deadline: until,
		name: nameOf("take", keys, req.Limits) + req.sharing(), within: req.OnceTTL / 4,
		try: func(ctx context.Context) (Result, error) {
			sent = time.Now()
			return w.limiter.Take(ctx, take)
		},
		pause: func(res Result, denials int) time.Duration {
			return spread(res.RetryAfter, denials, until)
		},
		refuse: func(denied Result, cause error) error {
			return w.limitedTake(&req, denied.Index, denied.RetryAfter, cause)
		},
	})
	if err != nil || res.RetryAfter <= 0 {
		return err
	}
	t := &turn{waiter: w, req: &req, res: res, act: time.Now().Add(res.RetryAfter)}
	if req.OnceKey != "" {
		t.act = w.turns.at(&req, res, sent, t.act)
	}
	return t.wait(ctx, until)
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
func (t *turns) at(req *Request, res Result, sent, latest time.Time) time.Time {
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

// limited returns an [ErrLimited].
func limited(op, key string, wait time.Duration, cause error, text string) *Error {
	if cause != nil {
		text += " (" + cause.Error() + ")"
	}
	return &Error{Op: op, kind: typeLimited, Keys: []string{key}, RetryAfter: wait, Err: cause, sentence: text}
}

// limitedTake returns the error for a caller that got no units for req. index is the number of the
// key that denied, from 1, or 0 if unknown.
func (w *waits) limitedTake(req *Request, index int, wait time.Duration, cause error) *Error {
	text, units := "", req.wanted()
	switch {
	case errors.Is(cause, ErrOutcomeUnknown):
		text = units + " may have been taken, at most once; "
		if req.OnceKey == "" {
			text += "a new call can be charged too"
		} else {
			text += fmt.Sprintf("ask again with the OnceKey %q, which is charged once", req.OnceKey)
		}
	case wait == Never && (req.Class != "" || req.Floor > 0):
		text = units + " and what Class or Floor keeps free is more than the limit ever holds; ask for less at once, or keep less free"
	case wait == Never:
		text = units + " is more than the limit ever holds; ask for less at once, or raise its burst"
	case wait > 0:
		text = fmt.Sprintf("%s would have to be waited for, %v at least; nothing was taken, come back then or allow more time", units, wait)
	default:
		text = "it was not the turn of " + units + " in time; nothing was taken"
	}
	return limited("take", w.keyOf(req, index), wait, cause, text)
}

// keyOf returns the key of req with this number, from 1, or the first one if index is 0 or no number
// of a key.
func (w *waits) keyOf(req *Request, index int) string {
	if index < 1 || index > len(req.Keys) {
		index = 1
	}
	return w.prefix + req.Keys[index-1]
}

// sharing returns what distinguishes the queues of calls with the same keys and limits.
func (r *Request) sharing() string {
	if r.Class == "" && r.Floor == 0 && !r.Borrow {
		return ""
	}
	return fmt.Sprintf(" %q %d %t", r.Class, r.Floor, r.Borrow)
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
