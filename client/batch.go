package client

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// mostBatches is how many keys have batches at most. Beyond it, the least recently used batch
	// is dropped.
	mostBatches = 65536

	// shareOfRemaining limits how much a process takes ahead of its callers: at most an eighth of
	// the remaining units, so that the first process does not take the last units of a limit.
	shareOfRemaining = 8
)

// WithBatches makes the client take up to n units of a key at once and spend them itself, so that
// most calls for a busy key need no request. Result.Source is then [SourceBatch]. n is at least 2
// and ttl at least 1 ms; a tenth of a second is a good ttl.
//
// Units are charged before they are spent. They expire ttl after the time just before their request
// was sent. So in any time span L, no more units are admitted than the limit allows in L + ttl,
// however many processes take part (tools/batches has a model of this for the Spin model checker).
// Failovers are an exception, with or without batches: the promoted replica may lack the last
// writes of a key, or all of them, so a span with a failover can admit up to one burst more.
//
// A key that is rarely used takes one unit at a time. The batch grows with the key's own rate, so
// that its units are spent within ttl. It is at most an eighth of what remains of the limit, so
// that processes share the last units. Only one request for a key is in progress at a time. Other
// callers wait for it, within their contexts and the client's timeout, and share the units it
// brings, its denial, or its error.
//
// The following calls always ask a server: calls with several keys, leaky_bucket (each unit has its
// own wait), shadow policies, an OnceKey, a UsageKey, UpTo, and a cost of 0 or above n. Calls under
// a policy ask a server until the client has read the policy's limits, in the background. The
// client reads them again while the policy is in use, so it notices a redeployed policy within ttl.
// A cost above 1 is spent from the batch if enough units are left; otherwise a server decides, all
// or none. Only calls of cost 1 fill batches.
//
// In a decision from a batch, Remaining is the last reply's plus the units left in the batch,
// ResetAfter is the last reply's minus the time since, and Limit is the last reply's. They do not
// include units that other processes have taken since.
//
// Unspent units expire after ttl, and are lost if the process ends without Close. They are not
// given back at that time, because the limit has refilled by then and they would count twice. Under
// gcra, [Client.Close] gives back the unspent units, less those that have refilled since; under
// other algorithms it drops them. If a reply is lost, no units are spent. Reset and Block end the
// batch of a key in this client; batches in other processes remain valid for up to ttl. Refund does
// not affect the batch, because its units are already charged. Time is measured by the process's
// monotonic clock. The client keeps batches for up to 65,536 keys.
func WithBatches(n int64, ttl time.Duration) Option {
	return func(c *Client) error {
		switch {
		case n < 2 || n > mostCost:
			return fmt.Errorf("batches of %d units; give WithBatches a number from 2 to %d", n, int64(mostCost))
		case ttl < time.Millisecond:
			return fmt.Errorf("batches that last %v; give WithBatches a time of 1ms or more, such as 100ms", ttl)
		}
		c.batches = newBatches(n, ttl)
		return nil
	}
}

// batches holds the units that a client has taken and not yet spent, by key.
type batches struct {
	most int64
	ttl  time.Duration
	now  func() time.Time

	mu   sync.Mutex // guards the fields below and every batch
	keys *lru.LRU[string, *batch]
}

// batch holds the units of one key.
type batch struct {
	limit Limit
	left  int64     // units that may be spent
	until time.Time // when left expires
	taken int64     // in the last request
	sent  time.Time // before the last request was sent
	used  time.Time // when it was last used
	last  Result    // the last reply
	read  time.Time // when last was received
	size  int64     // of the next batch; waiting callers and Remaining can change it

	waiting int64   // callers that wait for the request in progress
	flights uint64  // number of requests so far
	flight  *flight // the request in progress
	landed  *flight // the last completed request
	denial  *flight // the last denied request
}

// flight is a request for units of a key.
type flight struct {
	number uint64
	done   chan struct{} // made by the first caller that waits
	err    error
	res    Result // of a denial
	kept   int64  // units reserved for the callers that waited, so that no later caller is served first
	until  time.Time
	own    bool // err concerns only the caller that sent the request
}

func newBatches(n int64, ttl time.Duration) *batches {
	b := &batches{most: n, ttl: ttl, now: time.Now}
	b.keys, _ = lru.NewLRU[string, *batch](mostBatches, nil) // fails for a size of 0 only
	return b
}

// fits reports whether the call, judged by its own arguments, may use units from a batch.
func (b *batches) fits(a single) bool {
	return b != nil && !a.upTo && a.cost >= 1 && !strings.Contains(string(a.limit), "leaky_bucket")
}

// of returns the key's batch, or nil if the batch is in use under another limit. b.mu is held.
func (b *batches) of(key string, limit Limit, now time.Time) *batch {
	held, ok := b.keys.Get(key)
	if ok && held.limit == limit {
		return held
	}
	if ok && (held.flight != nil || held.has(1, now)) {
		return nil
	}
	for range 2 { // so that the table shrinks when fewer keys are in use
		if _, oldest, any := b.keys.GetOldest(); any && oldest.flight == nil && now.Sub(oldest.used) > 2*b.ttl {
			b.keys.RemoveOldest()
		}
	}
	made := &batch{limit: limit, size: 1, used: now}
	b.keys.Add(key, made)
	return made
}

// has reports whether cost units may be spent now.
func (b *batch) has(cost int64, now time.Time) bool {
	return b.left >= cost && now.Before(b.until)
}

// spend serves a call from the batch if it has enough units.
func (b *batch) spend(cost int64, now time.Time) (Result, bool) {
	if !b.has(cost, now) {
		return Result{}, false
	}
	b.left -= cost
	return b.result(now), true
}

// result returns the result of a call just served from the batch.
func (b *batch) result(now time.Time) Result {
	b.used = now
	res := b.last
	res.Source = SourceBatch
	res.Remaining += b.left
	res.ResetAfter = countedDown(res.ResetAfter, now.Sub(b.read))
	return res
}

// countedDown returns d minus after, at least 0, rounded up to whole milliseconds.
func countedDown(d, after time.Duration) time.Duration {
	left := max(0, d-max(0, after))
	if whole := left.Truncate(time.Millisecond); whole < left && whole <= math.MaxInt64-time.Millisecond {
		return whole + time.Millisecond
	}
	return left
}

// spend decides a call from its key's batch if that has enough units.
func (b *batches) spend(a single) (Result, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, ok := b.keys.Get(a.key)
	if !ok || held.limit != a.limit {
		return Result{}, false
	}
	return held.spend(a.cost, b.now())
}

// next returns how many units the next request asks for. It serves one caller and those that wait.
func (b *batches) next(held *batch, now time.Time) int64 {
	switch gap := now.Sub(held.sent); {
	case held.sent.IsZero() || gap > 2*b.ttl:
		held.size = 1
	case gap > b.ttl: // some units were not spent in time
		held.size = max(1, held.taken-held.left)
	case gap <= b.ttl/2:
		held.size = min(b.most, 2*held.size)
	}
	ahead := min(held.size, held.last.Remaining/shareOfRemaining)
	return min(b.most, max(1+held.waiting, ahead))
}

// takeShared decides a call of cost 1 for which the batch has no units: one caller requests units,
// and other callers of the key wait for it.
func (c *Client) takeShared(ctx context.Context, req Request, a single) (Result, error) {
	b := c.batches
	var (
		seen    *batch
		entered uint64 // requests in progress or completed when this call arrived
		limited *bounded
	)
	b.mu.Lock()
	for {
		now := b.now()
		held := b.of(a.key, a.limit, now)
		if held == nil {
			b.mu.Unlock()
			return c.decideAndRemember(ctx, req, a)
		}
		if res, ok := held.spend(1, now); ok { // units that arrived in the meantime
			b.mu.Unlock()
			return res, nil
		}
		if seen == nil {
			entered = held.flights
		} else if seen != held {
			entered = 0 // the batch was made since
		}
		seen = held
		if limited != nil && held.landed.serve(now) { // this call waited, and woke after a later request completed
			defer b.mu.Unlock()
			return held.result(now), nil
		}
		if d := held.denial; d != nil && d.number > entered {
			b.mu.Unlock()
			return d.res, nil
		}
		if held.flight == nil {
			if limited != nil {
				ctx = limited
			}
			return c.lead(ctx, req, a, held, now)
		}
		f := held.flight
		if f.done == nil {
			f.done = make(chan struct{})
		}
		held.waiting++
		b.mu.Unlock()
		if limited == nil {
			limited = c.bounded(ctx)
			defer limited.release()
		}
		var late bool
		select {
		case <-f.done:
		case <-limited.wait():
			late = true
		}
		b.mu.Lock()
		held.waiting--
		if now = b.now(); f.serve(now) {
			defer b.mu.Unlock()
			return held.result(now), nil
		}
		switch {
		case late:
			b.mu.Unlock()
			return Result{}, waitedInVain(c.keys(req.Keys), ended(limited))
		case f.err != nil && !f.own:
			b.mu.Unlock()
			return Result{}, f.err
		}
	}
}

// serve spends one of the units reserved for callers that waited, if any is left. b.mu is held.
func (f *flight) serve(now time.Time) bool {
	if f == nil || f.kept == 0 || !now.Before(f.until) {
		return false
	}
	f.kept--
	return true
}

// lead requests units from a server: for its own call, which that request decides, and for others.
// b.mu is held on entry and released.
func (c *Client) lead(ctx context.Context, req Request, a single, held *batch, now time.Time) (Result, error) {
	b := c.batches
	want := b.next(held, now)
	held.flights++
	f := &flight{number: held.flights}
	held.flight, held.sent, held.used = f, now, now
	held.left, held.taken = 0, 0
	b.mu.Unlock()

	defer func() { // also if an observer panics
		b.mu.Lock()
		defer b.mu.Unlock()
		if held.flight == f {
			held.land(f)
		}
	}()
	if want > 1 {
		req.Costs, req.UpTo = []int64{want}, true
	}
	res, err := c.decideAndRemember(ctx, req, a)

	b.mu.Lock()
	defer b.mu.Unlock()
	f.err, f.own = err, err != nil && ended(ctx) != nil
	if err == nil {
		taken := res.Taken
		if want == 1 && res.Allowed {
			taken = 1
		}
		res.Taken = 0
		if res.Shadow != nil {
			res.Shadow.Taken = 0
		}
		if !res.Allowed {
			f.res, held.denial = res, f
		}
		held.last, held.read = res, b.now()
		held.size = max(1, min(held.size, taken))
		// A wait means that the policy has just become a leaky_bucket, and Shadow that it has just become a
		// shadow policy. Neither may be batched.
		if res.Allowed && res.RetryAfter == 0 && res.Shadow == nil {
			held.until = now.Add(b.ttl)
			f.kept, f.until = min(taken-1, held.waiting), held.until
			held.taken, held.left = taken, taken-1-f.kept
			res.Remaining += held.left
		}
	}
	held.land(f)
	return res, err
}

// land completes the request in progress. b.mu is held.
func (b *batch) land(f *flight) {
	b.flight, b.landed = nil, f
	if f.done != nil {
		close(f.done)
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
