package client

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// Lease allows one piece of work to run while the lease is held. Under a limit such as
// "concurrency 3 lease=30s", at most three leases of a key are held at a time. A Lease made by
// [Client.Lease] is not held yet: Acquire takes it, Renew extends it, and Release gives it up. Run
// does all three around a function. If the holder stops renewing, for example after a crash, the
// lease expires by the server's clock.
//
// A Lease is safe for concurrent use, but use it for only one piece of work.
type Lease struct {
	// ID identifies the lease among those of the key.
	ID string

	// Class and Floor are as in [Request], for Acquire: places that are kept free. Set them before the
	// first call. A lease that is held is renewed whatever they are.
	Class string
	Floor int

	client  *Client
	keys    []string
	args    []any // the limit and the id
	limit   Limit
	holding atomic.Bool // whether Run is running
}

// Lease returns the lease of key with this id under limit, such as "concurrency 3 lease=30s", or
// a policy with such a limit. It sends nothing.
//
// id identifies the lease among those of the key. It has 1 to 256 bytes and is unique to a piece of
// work. If id is empty, Lease makes a random one that cannot be guessed. Anyone who knows key and
// id can renew and release the lease, in another process too.
func (c *Client) Lease(key string, limit Limit, id string) *Lease {
	if id == "" {
		id = rand.Text()
	}
	return &Lease{ID: id, client: c, keys: c.keys([]string{key}), args: []any{string(limit), id}, limit: limit}
}

// Acquire takes the lease if fewer than n leases of the key are held, where n is the number in the
// limit. If the lease is already held, Acquire extends it, even if the key is blocked or n was
// lowered. In the Result, Lease is how long this lease is held, Limit is n, and Remaining is the
// number of leases that are left. RetryAfter is the time until a lease is available if none is
// renewed or released. ResetAfter is the time until all leases of the key have expired.
//
// The same lease is never taken twice, so Acquire retries up to three times if a reply is lost,
// unless ctx is done. After [ErrOutcomeUnknown], call it again or call Release. If Allowed is false,
// the lease is not held.
func (l *Lease) Acquire(ctx context.Context) (Result, error) { return l.decide(ctx, "acquire") }

// Renew extends the lease to the lease time of the limit, counted from now. It never shortens the
// lease: if the lease time of the limit is now shorter than the time that is left, the lease is held
// for the time that is left. If the lease is not held, because it expired or was never acquired,
// Allowed is false and RetryAfter is [Never]. Another caller may then hold a lease in its place:
// stop, or call Acquire again. Renew the lease well before it expires, for example when a third of
// Result.Lease has passed. Lost replies are handled as in Acquire.
func (l *Lease) Renew(ctx context.Context) (Result, error) { return l.decide(ctx, "renew") }

// Release releases the lease, and reports whether it was held. It never releases the lease of
// another holder. So it is safe to call it again, for example after [ErrOutcomeUnknown], and for a
// lease that was never acquired.
func (l *Lease) Release(ctx context.Context) (bool, error) {
	n, err := l.client.count(ctx, "release", l.keys, l.args, 0)
	if n == 1 || errors.Is(err, ErrOutcomeUnknown) {
		l.client.waits.queues.nudge(l.queue())
	}
	return n == 1, err
}

func (l *Lease) shares() *Request { return &Request{Class: l.Class, Floor: l.Floor} }

func (l *Lease) decide(ctx context.Context, verb string) (res Result, err error) {
	class := ""
	if verb == "acquire" {
		class = l.Class
	}
	defer l.client.observers.reportClass(ctx, verb, time.Now(), []Limit{l.limit}, class, &res, &err)
	call := call{verb: verb, keys: l.keys, args: l.args, mode: repeatable}
	if verb == "acquire" {
		shares, _, err := l.shares().shares(verb)
		if err != nil {
			return Result{}, refused(verb, l.keys, err)
		}
		call.args = slices.Concat(l.args, shares)
	}
	return ask(ctx, l.client.server, &call, aDecision, func(reply any) (Result, bool) { return parseLease(reply, &Request{Keys: l.keys}) })
}
