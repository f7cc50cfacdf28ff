package client

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"
)

// Lease is one of the places that a limit such as Concurrency(3, 30*time.Second) gives out, held or not: [Client.Lease]
// makes one, Acquire takes the place, Renew keeps it, Release gives it back; Hold does all of it around a function. A
// holder that does none of it, because it is gone, loses the place by itself when the lease has lapsed: by the server's
// clock.
//
// It is safe for concurrent use; but it stands for one piece of work.
type Lease struct {
	client *Client
	keys   []string
	args   []any
	id     string

	holding atomic.Bool // Hold runs
}

// Lease names a lease of key under limit, a [Concurrency] limit or a policy of one. It sends nothing.
//
// id tells the lease from others of the key: 1 to 256 bytes, one for each piece of work. With the empty id it gets a
// random one that nobody can guess. Who knows key and id can renew and release the lease, in another process too.
func (c *Client) Lease(key string, limit Limit, id string) *Lease {
	if id == "" {
		id = rand.Text()
	}
	return &Lease{client: c, keys: c.keys([]string{key}), args: []any{string(limit), id}, id: id}
}

// ID is the id that tells this lease from others of its key.
func (l *Lease) ID() string { return l.id }

// Acquire takes the lease if fewer than n are held, and prolongs it if it is held already. Of the Result, Limit is n,
// Remaining how many more could be taken, RetryAfter when a place is free at the latest, and ResetAfter when all have
// lapsed.
//
// Since the same lease is never taken twice, a call whose reply was lost is asked again up to three times as long as ctx
// lasts, and may be called again after [ErrOutcomeUnknown]. Release it if you do not.
func (l *Lease) Acquire(ctx context.Context) (Result, error) { return l.decide(ctx, "acquire") }

// Renew prolongs the lease, from now on by the lease= of the limit. Allowed is false, and RetryAfter [Never], if it is
// not held: it has lapsed, or never was. Then the place may be another's: stop, or Acquire anew. Renew well before it
// lapses, for example after a third of that time. A lost reply is dealt with as in Acquire.
func (l *Lease) Renew(ctx context.Context) (Result, error) { return l.decide(ctx, "renew") }

// Release gives the place back, and tells whether the lease was held until now. It can neither free another's place nor
// free one twice, so it may be called again, as after [ErrOutcomeUnknown], and for a lease that was never acquired.
func (l *Lease) Release(ctx context.Context) (bool, error) {
	n, err := l.client.count(ctx, "release", l.keys, l.args, 0)
	if n == 1 {
		l.client.queues.nudge(l.queue())
	}
	return n == 1, err
}

func (l *Lease) decide(ctx context.Context, verb string) (res Result, err error) {
	if l.client.onCall != nil {
		defer func(began time.Time) { l.client.observeResult(ctx, verb, began, res, err) }(time.Now())
	}
	reply, err := l.client.ask(ctx, call{verb: verb, keys: l.keys, args: l.args, way: again})
	if err != nil {
		return Result{}, err
	}
	return decision(verb, l.keys, Request{Keys: l.keys}, reply)
}
