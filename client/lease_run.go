package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ErrLeaseLost means that a lease was lost while the function of [Lease.Run] ran, so another
// caller may have acquired one in its place. The [context.Cause] of the function's context and the
// error from Run then match it.
var ErrLeaseLost = errors.New("lease lost")

// longestPoll is the longest pause of Lease.Wait between calls. Servers do not announce the leases
// that other processes release, so Wait has to poll.
const longestPoll = time.Second

// Wait waits until it has acquired the lease, and then returns nil. It cannot predict when a lease
// becomes available, because other holders may renew theirs or release them early. So it waits
// until ctx is done, and then returns an [ErrLimited]. Other errors are those of [Lease.Acquire].
// After an [ErrOutcomeUnknown] the lease may be held until it expires.
//
// Callers of one Client that wait for the same key and limit are served in order of arrival. The
// first of them calls the server as soon as the same Client releases a lease of this key and limit,
// with the same Class and Floor.
// It also calls the server about once a second, to notice releases by other processes.
func (l *Lease) Wait(ctx context.Context) error {
	_, err := l.client.waits.inTurn(ctx, queued{
		verb: "acquire", keys: l.keys, limits: []Limit{l.limit}, n: 1, name: l.queue(),
		try: l.Acquire,
		pause: func(res Result, _ int) time.Duration {
			most := max(min(res.RetryAfter, longestPoll), 2*time.Millisecond)
			return most - rand.N(most/2)
		},
		refuse: func(denied Result, cause error) error {
			if denied.RetryAfter == Never {
				return limited("acquire", l.keys[0], Never, cause, l.neverFree())
			}
			return limited("acquire", l.keys[0], denied.RetryAfter, cause, fmt.Sprintf("the context ended before a place of %q was free", l.limit))
		},
	})
	return err
}

// neverFree returns the error text for a lease that is denied even if no other lease is held.
func (l *Lease) neverFree() string {
	return fmt.Sprintf("no place of %q is ever free for this lease: the limit has none, or its Class or Floor leaves all of them to others", l.limit)
}

// queue returns the name of the queue of callers that wait for a lease of this key and limit, with this
// Class and Floor.
func (l *Lease) queue() string {
	return nameOf("acquire", l.keys, []Limit{l.limit}) + l.shares().sharing()
}

// Run runs f while it holds the lease, and returns the error from f. It acquires the lease, renews
// it whenever a third of the time for which it is held (Result.Lease) has passed, and releases it
// when f has returned or panicked.
//
// If no lease is available, Run returns an [ErrLimited] immediately and does not run f. To wait
// for a lease, call [Lease.Wait] first; its context can have a different deadline.
//
// The context of f is canceled when ctx is done or the lease is lost. The lease is lost if a
// renewal finds that it is not held, if no renewal succeeds before it expires, or if the Client is
// closed. Then [context.Cause] returns an [ErrLeaseLost] that says how the lease was lost. Run
// returns the same error, joined with the error from f. Run measures the lease time with the
// monotonic clock of this process, from just before it sent the call that acquired the lease or
// last renewed it. So the lease does not expire earlier on the server, unless the server's clock
// runs faster or is set forward. A redeployed policy or an override with a shorter lease time does
// not shorten a lease that is held. f should return soon after its context is canceled, because another caller may then
// acquire a lease.
//
// Run renews the lease until f returns, even if ctx is done. It ignores a failed release, because
// the lease then expires on the server. If another Run of the same Lease is running, the error is
// [ErrMisconfigured]. If the library on the server is too old to say how long a lease is held, Run
// releases the lease, does not run f, and returns [ErrNotDeployed]. Under a shadow policy f runs
// even if no lease is available, and goes on if the lease is lost. If a deployment changes whether the
// policy is a shadow, Run follows it at the next renewal.
func (l *Lease) Run(ctx context.Context, f func(ctx context.Context) error) (err error) {
	if f == nil {
		return l.client.observers.refuse(ctx, "acquire", l.keys, []Limit{l.limit}, errors.New("BADARGS Run got no function; give it the work to do while the lease is held"))
	}
	if !l.holding.CompareAndSwap(false, true) {
		return l.client.observers.refuse(ctx, "acquire", l.keys, []Limit{l.limit}, fmt.Errorf("BADARGS the lease %q is in another Run; make a lease for each piece of work", l.ID))
	}
	defer l.holding.Store(false)

	sent := time.Now()
	res, err := l.Acquire(ctx)
	switch {
	case err != nil:
		return err
	case !res.Allowed && res.RetryAfter == Never:
		return limited("acquire", l.keys[0], Never, nil, l.neverFree())
	case !res.Allowed:
		return limited("acquire", l.keys[0], res.RetryAfter, nil, fmt.Sprintf("no place of %q is free, in %v at the latest; try again, or call Wait before Run", l.limit, res.RetryAfter))
	case notHeld(res):
		return f(ctx)
	case res.Lease == 0:
		_, _ = l.Release(context.WithoutCancel(ctx))
		return l.tooOld("acquire")
	}

	holding, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var lost error
	done := make(chan struct{})
	if !l.client.lifetime.run(func() {
		defer close(done)
		if lost = l.keep(renewing, sent, &res); lost != nil {
			lose(lost)
		}
	}) {
		_, _ = l.Release(toReturn(context.WithoutCancel(ctx)))
		return afterClose("renew", l.keys)
	}
	defer func() {
		stop()
		<-done
		if lost == nil || errors.Is(lost, errClosed) {
			found, e := l.Release(toReturn(context.WithoutCancel(ctx)))
			if lost == nil && e == nil && !found && res.Shadow == nil {
				lost = l.lost("it was not held any more at the end", nil)
			}
		}
		switch {
		case lost == nil || errors.Is(err, ErrLeaseLost):
		case err == nil:
			err = lost
		default:
			err = fmt.Errorf("%w; the function returned: %w", lost, err)
		}
	}()
	return f(holding)
}

// notHeld reports whether the call was allowed only because its policy is a shadow policy. The
// lease is then not held.
func notHeld(res Result) bool { return res.Shadow != nil && !res.Shadow.Allowed }

// keep renews a lease until ctx is done. The call that acquired the lease was sent at the time
// `sent`, and *last is its result. keep stores the result of each renewal in *last. It returns an
// error if the lease was lost. Under a shadow policy, a lost lease is no error.
func (l *Lease) keep(ctx context.Context, sent time.Time, last *Result) error {
	var why error // why the last renewal failed
	for {
		ttl := last.Lease
		// The server counts in whole milliseconds, so the lease may expire there up to 1 ms
		// earlier.
		lapses := sent.Add(ttl - time.Millisecond)
		pause := ttl / 3
		if why != nil {
			pause = min(ttl/10, time.Second)
		}
		err := l.client.lifetime.wait(ctx, nil, time.After(min(pause, time.Until(lapses))))
		switch {
		case err == errClosed:
			return l.lost("it cannot be renewed any more", err)
		case err != nil:
			return nil
		case !time.Now().Before(lapses):
			return l.lost(fmt.Sprintf("no renewal succeeded in the %v that it lasts", ttl), why)
		}
		limited, cancel := context.WithDeadline(ctx, lapses)
		now := time.Now()
		res, err := l.Renew(limited)
		cancel()
		switch {
		case err != nil:
			why = err
		case notHeld(res):
			*last = res
			return nil
		case !res.Allowed:
			return l.lost("the server does not hold it any more: it lapsed, or was released or reset", nil)
		case res.Lease == 0: // a library that does not say for how long was deployed in the meantime
			why = l.tooOld("renew")
		default:
			why, sent, *last = nil, now, res
		}
	}
}

// tooOld returns the error for a reply that does not say how long the lease is held.
func (l *Lease) tooOld(verb string) error {
	err := fmt.Errorf("%s did not return how long the lease is held", prefixOfFunctions+verb)
	return &Error{Op: verb, Keys: l.keys, Err: err, kind: typeNotDeployed, sentence: fmt.Sprintf("the library on the server is too old for Run (%v)", err), Remedy: deployIt}
}

// lost returns the error for a lost lease. reason describes the loss. cause is the error that led to
// it, or nil.
func (l *Lease) lost(reason string, cause error) error {
	return both(fmt.Errorf("ratelimit: lease %q: %w, %s (%s); another may have its place", l.keys[0], ErrLeaseLost, reason, l.ID), cause)
}
