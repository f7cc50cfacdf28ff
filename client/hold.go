package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ErrLeaseLost is why the context of [Lease.Hold]'s function ended ([context.Cause]), and what Hold returns, where the lease
// was lost while the function ran: another may have its place.
var ErrLeaseLost = errors.New("lease lost")

// longestPoll is the longest that Lease.Wait waits before it asks again: a place that another process gives back is not
// announced.
const longestPoll = time.Second

// Wait waits until it has acquired the lease, and returns nil then. When a place becomes free nobody can know
// beforehand, as leases are released early and renewed: it waits as long as ctx lasts, and then returns a
// [*LimitedError]. Other errors are those of [Lease.Acquire]; after an [ErrOutcomeUnknown] the lease may be held until
// it lapses.
//
// Callers that wait for the same key and limit in a Client are served in the order in which they came. The first asks as
// soon as a lease of theirs is released in this Client, and for those of other processes about once a second.
func (l *Lease) Wait(ctx context.Context) error {
	_, err := l.client.inTurn(ctx, turn{
		verb: "acquire", keys: l.keys, n: 1, name: l.queue(),
		ask: l.Acquire,
		pause: func(res Result, _ int) time.Duration {
			most := max(min(res.RetryAfter, longestPoll), 2*time.Millisecond)
			return most - rand.N(most/2)
		},
		refuse: func(denied Result, cause error) error {
			return &LimitedError{Key: l.keys[0], RetryAfter: denied.RetryAfter, Err: cause, text: fmt.Sprintf("the context ended before a place of %q was free", l.args[0])}
		},
	})
	return err
}

// queue is the name of the queue of who waits for a place.
func (l *Lease) queue() string { return nameOf("acquire", l.keys, []Limit{Limit(l.args[0].(string))}) }

// Hold runs f while it holds the lease, and returns what f returns. It acquires the lease, renews it each time that a third
// of its lease= has passed, and releases it when f has returned or panicked.
//
// Where no place is free it returns a [*LimitedError] at once and does not run f. To wait for a place, call [Lease.Wait]
// before; it may have a context with a deadline of its own.
//
// The context of f ends with ctx, and when the lease is lost: when a renewal finds that it is not held, when none
// succeeded until it lapsed, or when the Client is closed. [context.Cause] is then an [ErrLeaseLost] that says how it
// was lost, and so is the error of Hold, together with that of f. When it lapses Hold reckons on this process's
// monotonic clock, from before the last renewal that succeeded was sent, so that it is not later than on the server as
// long as both clocks go equally fast. f should end soon after: nothing else keeps two holders apart.
//
// The lease is renewed until f returns, also when ctx has ended. That it could not be released is no error: the place is
// free when the lease lapses. A lease has one Hold at a time ([ErrBadArgs]). Under a shadow policy f runs also without a
// place.
func (l *Lease) Hold(ctx context.Context, f func(ctx context.Context) error) (err error) {
	if f == nil {
		return refused("acquire", l.keys, errors.New("BADARGS Hold got no function; give it the work to do while the lease is held"))
	}
	if !l.holding.CompareAndSwap(false, true) {
		return refused("acquire", l.keys, fmt.Errorf("BADARGS the lease %q is in another Hold; make a lease for each piece of work", l.id))
	}
	defer l.holding.Store(false)

	sent := time.Now()
	res, err := l.Acquire(ctx)
	switch {
	case err != nil:
		return err
	case !res.Allowed:
		return &LimitedError{Key: l.keys[0], RetryAfter: res.RetryAfter, text: fmt.Sprintf("no place of %q is free, in %v at the latest; try again, or call Wait before Hold", l.args[0], res.RetryAfter)}
	case notHeld(res):
		return f(ctx)
	}

	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var lost error
	done := make(chan struct{})
	if !l.client.life.run(func() {
		defer close(done)
		if lost = l.keep(renewing, sent, res.ResetAfter); lost != nil {
			lose(lost)
		}
	}) {
		return afterClose("renew", l.keys)
	}
	defer func() {
		stop()
		<-done
		if lost == nil {
			if found, e := l.Release(context.WithoutCancel(ctx)); e == nil && !found && res.Shadow == nil {
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
	return f(held)
}

// notHeld tells whether a shadow policy let a lease through that it would have refused.
func notHeld(res Result) bool { return res.Shadow != nil && !res.Shadow.Allowed }

// keep renews a lease, which was acquired by a call that was sent at a moment, until ctx ends. It returns how the lease
// was lost, or nil.
func (l *Lease) keep(ctx context.Context, sent time.Time, lasts time.Duration) error {
	var why error // the last renewal failed
	for {
		// The server reckons in whole milliseconds, and so up to one less.
		lapses := sent.Add(lasts - time.Millisecond)
		pause := lasts / 3
		if why != nil {
			pause = min(lasts/10, time.Second)
		}
		timer := time.NewTimer(min(pause, time.Until(lapses)))
		err := l.client.wait(ctx, nil, timer.C)
		timer.Stop()
		switch {
		case err == errClosed:
			return l.lost("it cannot be renewed any more", err)
		case err != nil:
			return nil
		case !time.Now().Before(lapses):
			return l.lost(fmt.Sprintf("no renewal succeeded in the %v that it lasts", lasts), why)
		}
		limited, cancel := context.WithDeadline(ctx, lapses)
		now := time.Now()
		res, err := l.Renew(limited)
		cancel()
		switch {
		case err != nil:
			why = err
		case notHeld(res):
			return nil
		case !res.Allowed:
			return l.lost("the server does not hold it any more: it lapsed, or was released or reset", nil)
		default:
			why, sent, lasts = nil, now, res.ResetAfter
		}
	}
}

// lost is the error of a lease that was lost.
func (l *Lease) lost(how string, why error) error {
	return both(fmt.Errorf("ratelimit: hold %q: %w, %s (%s); another may have its place", l.keys[0], ErrLeaseLost, how, l.id), why)
}
