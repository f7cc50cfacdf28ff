package client

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// shareOfRemaining limits how many units a process takes in advance: at most 1/shareOfRemaining of
// the remaining units. Otherwise one process could take all of the last units.
const shareOfRemaining = 8

type request struct {
	number uint64
	want   int64         // units requested
	done   chan struct{} // nil until a caller waits
	err    error
	own    bool   // err concerns only the caller that sent the request
	res    Result // the result of the caller that sent the request
	read   time.Time
	kept   int64     // units reserved for the callers that waited, so that no later caller is served first
	until  time.Time // when these units expire
}

// nextSize returns the number of units to request next for k. It is enough for the caller that
// sends the request and those that wait, and more if the key is used often, but at most b.most.
func (b *batches) nextSize(k *keyBatch, now time.Time) int64 {
	switch gap := now.Sub(k.sent); {
	case k.sent.IsZero() || gap > 2*b.ttl:
		k.size = 1
	case gap > b.ttl: // the last batch has expired: request as many units as were spent
		k.size = max(1, k.received-k.left)
	case gap <= b.ttl/2:
		k.size = min(b.most, 2*k.size)
	}
	ahead := min(k.size, k.last.Remaining/shareOfRemaining)
	return min(b.most, max(1+k.waiting, ahead))
}

// caller is a call with cost 1 that found no units in its key's batch.
type caller struct {
	single
	batch   *keyBatch // the key's batch when enter last looked it up; nil before that
	entered uint64    // number of the last request when the call arrived; if a later request is denied, so is the call
	request *request  // the request that the call sends or waits for
	late    error     // why the call can wait no longer
}

// takeShared decides a call with cost 1 for which the batch has no units: one caller requests
// units, and other callers of the key wait for it.
func (b *batches) takeShared(ctx context.Context, req Request, a single) (Result, error) {
	c := caller{single: a}
	var limited *bounded
	for {
		res, next, err := b.enter(&c)
		switch next {
		case decided:
			return res, err
		case askServer:
			return b.next.Take(ctx, req)
		case sendRequest:
			return b.lead(ctx, req, c.batch, c.request)
		}
		if limited == nil {
			limited = b.bounded(ctx)
			defer limited.release()
			ctx = limited
		}
		select {
		case <-c.request.done:
		case <-limited.wait():
			c.late = ended(limited)
		}
	}
}

// step is what a caller does next.
type step int

const (
	decided      step = iota // return the result
	askServer                // send the call alone: the batch is for another limit, or the key now has a leaky_bucket
	sendRequest              // request units for this and other callers
	awaitRequest             // wait for the request in progress
)

// enter decides c's call without a request if possible. Otherwise it returns c's next step. It is
// called when the call arrives, and each time that c stops waiting for a request.
func (b *batches) enter(c *caller) (Result, step, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	waited := c.batch != nil
	if waited {
		if res, ok := c.batch.reserved(now); ok {
			return res, decided, nil
		}
		switch {
		case c.late != nil:
			return Result{}, decided, waitedInVain(b.keys([]string{c.key}), c.late)
		case c.request.err != nil && !c.request.own:
			return Result{}, decided, c.request.err
		}
	}
	k := b.of(c.single, now)
	if k == nil || k.queues(now, b.ttl) {
		return Result{}, askServer, nil
	}
	if res, ok := k.spend(1, now); ok { // a request may have completed since the last check
		return res, decided, nil
	}
	if !waited {
		c.entered = k.requests
	} else if c.batch != k {
		c.entered = 0 // k was made after c arrived, so any denial in k is newer
	}
	c.batch = k
	if d := k.denied; d != nil && d.number > c.entered {
		return d.res, decided, nil
	}
	if k.request == nil {
		c.request = b.begin(k, now)
		return Result{}, sendRequest, nil
	}
	c.request = k.request
	if c.request.done == nil {
		c.request.done = make(chan struct{})
	}
	k.waiting++
	return Result{}, awaitRequest, nil
}

// queues reports whether a leaky_bucket currently decides on the key: the last reply is younger
// than ttl, and it allowed a call that must wait. An override or a redeployed policy can set such a
// limit. Each unit of a leaky_bucket has its own wait, so its units cannot be batched.
func (k *keyBatch) queues(now time.Time, ttl time.Duration) bool {
	return k.last.Allowed && k.last.RetryAfter > 0 && now.Sub(k.read) < ttl
}

// begin makes the next request for k, and drops the expired units of k. b.mu must be held.
func (b *batches) begin(k *keyBatch, now time.Time) *request {
	want := b.nextSize(k, now)
	k.requests++
	k.request = &request{number: k.requests, want: want}
	k.sent, k.used = now, now
	k.left, k.received = 0, 0
	return k.request
}

// lead sends r, which requests units for the call req and for other calls on its key, and returns
// the result of req.
func (b *batches) lead(ctx context.Context, req Request, k *keyBatch, r *request) (Result, error) {
	// Close waits until the units are in the batch, where it finds them.
	defer b.lifetime.hold()()
	defer func() { // ends the request even if Observer.Breaker panics
		b.mu.Lock()
		defer b.mu.Unlock()
		if k.request == r {
			k.finish(r)
		}
	}()
	if r.want > 1 {
		req.Costs, req.UpTo = []int64{r.want}, true
	}
	res, err := b.next.Take(ctx, req)

	b.mu.Lock()
	defer b.mu.Unlock()
	r.err, r.own = err, err != nil && ended(ctx) != nil
	if err == nil {
		b.receive(k, r, &res)
	}
	k.finish(r)
	return res, err
}

// receive adds the units in the reply res to the batch, and changes res into the result for the
// caller that sent r. b.mu must be held.
func (b *batches) receive(k *keyBatch, r *request, res *Result) {
	units := res.Taken
	if r.want == 1 && res.Allowed {
		units = 1
	}
	res.Taken = 0
	if res.Shadow != nil {
		res.Shadow.Taken = 0
	}
	if !res.Allowed {
		k.denied = r
	}
	k.last, k.read = *res, b.now()
	k.size = max(1, min(k.size, units))
	// If an allowed call has to wait, the key now has a leaky_bucket. If Shadow is set, the policy
	// has just become a shadow policy. In both cases, the units must not be batched.
	if res.Allowed && res.RetryAfter == 0 && res.Shadow == nil {
		k.until = k.sent.Add(b.ttl)
		r.kept, r.until = min(units-1, k.waiting), k.until
		k.received, k.left = units, units-1-r.kept
		res.Remaining += k.left
	}
	r.res, r.read = *res, k.read
	if r.kept > 0 {
		k.waiting -= r.kept
		k.reserving = append(k.reserving, r)
	}
}

// reserved ends the wait of a caller. It returns the result of the caller's call if a unit is
// reserved for it: that of the request that took the unit. Later requests may have been denied. b.mu
// must be held.
func (k *keyBatch) reserved(now time.Time) (Result, bool) {
	for len(k.reserving) > 0 {
		r := k.reserving[0]
		if now.Before(r.until) {
			if r.kept--; r.kept == 0 {
				k.reserving = k.reserving[1:]
			}
			return k.result(r.res, r.read, now), true
		}
		k.waiting += r.kept
		k.reserving = k.reserving[1:]
	}
	k.waiting--
	return Result{}, false
}

// finish ends r, the request in progress, and wakes the callers that wait for it. b.mu must be
// held.
func (k *keyBatch) finish(r *request) {
	k.request = nil
	if r.done != nil {
		close(r.done)
	}
}

// waitedInVain returns the error for a call that timed out while it waited for another call's
// request.
func waitedInVain(keys []string, cause error) error {
	return &Error{
		Op: "take", Keys: slices.Clone(keys), Err: cause, kind: typeUnavailable,
		sentence: fmt.Sprintf("not sent, nothing was counted: the request of another call for this key is still under way (%v)", cause),
	}
}
