package client

import (
	"context"
	"fmt"
	"time"
)

// shareOfRemaining limits how much a process takes ahead of its callers: at most an eighth of the
// remaining units, so that the first process does not take the last units of a limit.
const shareOfRemaining = 8

// request is a request for units of a key.
type request struct {
	number uint64
	done   chan struct{} // made by the first caller that waits
	err    error
	res    Result // the denial
	kept   int64  // units reserved for the callers that waited, so that no later caller is served first
	until  time.Time
	own    bool // err concerns only the caller that sent the request
}

// nextSize returns how many units the next request for k asks for. It serves one caller and those
// that wait.
func (b *batches) nextSize(k *keyBatch, now time.Time) int64 {
	switch gap := now.Sub(k.sent); {
	case k.sent.IsZero() || gap > 2*b.ttl:
		k.size = 1
	case gap > b.ttl: // some units were not spent in time
		k.size = max(1, k.received-k.left)
	case gap <= b.ttl/2:
		k.size = min(b.most, 2*k.size)
	}
	ahead := min(k.size, k.last.Remaining/shareOfRemaining)
	return min(b.most, max(1+k.waiting, ahead))
}

// takeShared decides a call of cost 1 for which the batch has no units: one caller requests units,
// and other callers of the key wait for it.
func (b *batches) takeShared(ctx context.Context, req Request, a single) (Result, error) {
	var (
		previous *keyBatch
		entered  uint64 // requests in progress or completed when this call arrived
		limited  *bounded
	)
	b.mu.Lock()
	for {
		now := b.now()
		k := b.of(a.key, a.limit, now)
		if k == nil {
			b.mu.Unlock()
			return b.next.decide(ctx, req)
		}
		if res, ok := k.spend(1, now); ok { // units that arrived in the meantime
			b.mu.Unlock()
			return res, nil
		}
		if previous == nil {
			entered = k.requests
		} else if previous != k {
			entered = 0 // the batch was made in the meantime
		}
		previous = k
		if limited != nil && k.completed.serve(now) { // this call waited, and woke after a later request completed
			defer b.mu.Unlock()
			return k.result(now), nil
		}
		if d := k.denied; d != nil && d.number > entered {
			b.mu.Unlock()
			return d.res, nil
		}
		if k.request == nil {
			if limited != nil {
				ctx = limited
			}
			return b.lead(ctx, req, k, now)
		}
		r := k.request
		if r.done == nil {
			r.done = make(chan struct{})
		}
		k.waiting++
		b.mu.Unlock()
		if limited == nil {
			limited = b.server.bounded(ctx)
			defer limited.release()
		}
		var late bool
		select {
		case <-r.done:
		case <-limited.wait():
			late = true
		}
		b.mu.Lock()
		k.waiting--
		if now = b.now(); r.serve(now) {
			defer b.mu.Unlock()
			return k.result(now), nil
		}
		switch {
		case late:
			b.mu.Unlock()
			return Result{}, waitedInVain(b.server.keys(req.Keys), ended(limited))
		case r.err != nil && !r.own:
			b.mu.Unlock()
			return Result{}, r.err
		}
	}
}

// serve spends one of the units reserved for callers that waited, if any is left. b.mu is held.
func (r *request) serve(now time.Time) bool {
	if r == nil || r.kept == 0 || !now.Before(r.until) {
		return false
	}
	r.kept--
	return true
}

// lead requests units from a server: for its own call, which that request decides, and for others.
// b.mu is held on entry and released.
func (b *batches) lead(ctx context.Context, req Request, k *keyBatch, now time.Time) (Result, error) {
	want := b.nextSize(k, now)
	k.requests++
	r := &request{number: k.requests}
	k.request, k.sent, k.used = r, now, now
	k.left, k.received = 0, 0
	b.mu.Unlock()

	defer func() { // also if an observer panics
		b.mu.Lock()
		defer b.mu.Unlock()
		if k.request == r {
			k.finish(r)
		}
	}()
	if want > 1 {
		req.Costs, req.UpTo = []int64{want}, true
	}
	res, err := b.next.decide(ctx, req)

	b.mu.Lock()
	defer b.mu.Unlock()
	r.err, r.own = err, err != nil && ended(ctx) != nil
	if err == nil {
		units := res.Taken
		if want == 1 && res.Allowed {
			units = 1
		}
		res.Taken = 0
		if res.Shadow != nil {
			res.Shadow.Taken = 0
		}
		if !res.Allowed {
			r.res, k.denied = res, r
		}
		k.last, k.read = res, b.now()
		k.size = max(1, min(k.size, units))
		// A wait means that the policy has just become a leaky_bucket, and Shadow that it has just become a
		// shadow policy. Neither may be batched.
		if res.Allowed && res.RetryAfter == 0 && res.Shadow == nil {
			k.until = now.Add(b.ttl)
			r.kept, r.until = min(units-1, k.waiting), k.until
			k.received, k.left = units, units-1-r.kept
			res.Remaining += k.left
		}
	}
	k.finish(r)
	return res, err
}

// finish ends the request in progress. b.mu is held.
func (k *keyBatch) finish(r *request) {
	k.request, k.completed = nil, r
	if r.done != nil {
		close(r.done)
	}
}

// waitedInVain returns the error of a call whose time ran out while it waited for another call's
// request.
func waitedInVain(keys []string, cause error) error {
	return &Error{
		Op: "take", Keys: keys, Err: cause, class: ErrUnavailable,
		sentence: fmt.Sprintf("not sent, nothing was counted: the request of another call for this key is still under way (%v)", cause),
	}
}
