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
	// mostBatches bounds the keys that a client keeps batches for. Of more, the one that was used least recently is let go.
	mostBatches = 65536

	// shareOfRemaining is which part of what is left of an allowance a process takes ahead of its callers at most: an
	// eighth, so that the last units are not held by the first who came.
	shareOfRemaining = 8
)

// WithBatches has the client take up to n units of a key at once and spend them by itself, so that most calls for a key that
// is asked for often need no request: Result.Source is [SourceBatch] then. n is at least 2, ttl at least 1 ms, and a tenth of
// a second is a good one.
//
// Units are charged before they are spent, and spent within ttl from before the request for them was sent. So, however many
// processes take part, in any span of time L no more is admitted than the limit allows in L + ttl (tools/batches has a model
// of this, searched by Spin). A failover is the exception, with batches or without: the replica that takes over may lack the last
// writes of a key, or all, so that a span with a failover in it has up to one burst more.
//
// A key that is asked for once in a while takes one unit at a time. The batch grows with the key's own rate, so that what is
// taken is spent within ttl, and is an eighth of what remains of the limit at most, so that processes share the end of an
// allowance. One request for a key is under way at a time. Other callers wait for it, as long as their
// contexts and the client's timeout last, and share what it brings, its denial, or its error.
//
// These calls go straight to a server: several keys, leaky_bucket (each unit has a wait of its own), shadow policies, an
// OnceKey, a UsageKey, UpTo, and a cost of 0 or above n. A policy goes straight to a server until the client has asked one, in the
// background, what it says; it asks again as long as the policy is used, so that one that is deployed anew is known within ttl. A cost above 1 is spent from the batch where
// enough is left, and is otherwise decided by a server, all or none; only calls of cost 1 fill batches.
//
// Of a decision from a batch, Remaining is the last reply's, with what is left of the batch; ResetAfter is the last reply's,
// less the time since; Limit is the last reply's. What other processes have taken since is not in them.
//
// What is left of a batch is let go at ttl, and lost with a process that ends without Close: by then the limit has refilled,
// and what is given back would be there twice. [Client.Close] gives back what is left less what has come back by itself
// since, under gcra; under other algorithms it is let go. Where a reply is lost, nothing is spent. Reset and Block end
// the batch of a key in this client; those of other processes go on for up to ttl. Refund leaves it, as it is charged already.
// The time is that of the process's monotonic clock. Batches of up to 65,536 keys are kept.
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

// batches are the units that a client has taken and not spent, by key.
type batches struct {
	most int64
	ttl  time.Duration
	now  func() time.Time

	mu   sync.Mutex // of all that follows, and of every batch
	keys *lru.LRU[string, *batch]
}

// batch is what is held of one key.
type batch struct {
	limit Limit
	left  int64     // units that may be spent
	until time.Time // and until when
	taken int64     // by the last request
	sent  time.Time // before the last request
	used  time.Time // the last time
	last  Result    // the last reply that allowed, read at
	read  time.Time
	size  int64 // of the next batch, unless callers wait for more or less remains

	waiting int64   // callers that wait for the request under way
	flights uint64  // requests so far
	flight  *flight // the one under way
	landed  *flight // the last one that is over
	denial  *flight // the last one that was denied
}

// flight is a request for units of a key.
type flight struct {
	number uint64
	done   chan struct{} // made by the first who waits
	err    error
	res    Result // of a denial
	kept   int64  // units for those who waited, so that nobody who comes later is served before them
	until  time.Time
	own    bool // err is only about the caller who asked
}

func newBatches(n int64, ttl time.Duration) *batches {
	b := &batches{most: n, ttl: ttl, now: time.Now}
	b.keys, _ = lru.NewLRU[string, *batch](mostBatches, nil) // fails for a size of 0 only
	return b
}

// fits reports whether units for such a call may come from a batch, as far as its own words say.
func (b *batches) fits(a single) bool {
	return b != nil && !a.upTo && a.cost >= 1 && !strings.Contains(string(a.limit), "leaky_bucket")
}

// of is the batch of a key; nil while the key has one of another limit. b.mu is held.
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

// has tells whether so many units may be spent now.
func (b *batch) has(cost int64, now time.Time) bool {
	return b.left >= cost && now.Before(b.until)
}

// spend serves a call from the batch, if that has enough.
func (b *batch) spend(cost int64, now time.Time) (Result, bool) {
	if !b.has(cost, now) {
		return Result{}, false
	}
	b.left -= cost
	return b.result(now), true
}

// result is that of a call that has just been served from the batch.
func (b *batch) result(now time.Time) Result {
	b.used = now
	res := b.last
	res.Source = SourceBatch
	res.Remaining += b.left
	res.ResetAfter = countedDown(res.ResetAfter, now.Sub(b.read))
	return res
}

// countedDown returns what is left of d after a time, in whole milliseconds, rounded up.
func countedDown(d, after time.Duration) time.Duration {
	left := max(0, d-max(0, after))
	if whole := left.Truncate(time.Millisecond); whole < left && whole <= math.MaxInt64-time.Millisecond {
		return whole + time.Millisecond
	}
	return left
}

// spend decides on a call from the batch of its key, if that has enough.
func (b *batches) spend(a single) (Result, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, ok := b.keys.Get(a.key)
	if !ok || held.limit != a.limit {
		return Result{}, false
	}
	return held.spend(a.cost, b.now())
}

// next says how many units the next request is to ask for. It is for one caller and those who wait.
func (b *batches) next(held *batch, now time.Time) int64 {
	switch gap := now.Sub(held.sent); {
	case held.sent.IsZero() || gap > 2*b.ttl:
		held.size = 1
	case gap > b.ttl: // some were not spent in time
		held.size = max(1, held.taken-held.left)
	case gap <= b.ttl/2:
		held.size = min(b.most, 2*held.size)
	}
	ahead := min(held.size, held.last.Remaining/shareOfRemaining)
	return min(b.most, max(1+held.waiting, ahead))
}

// takeShared decides on a call of cost 1 that its batch has nothing for: one caller asks for units, and others of the same key wait.
func (c *Client) takeShared(ctx context.Context, req Request, a single) (Result, error) {
	b := c.batches
	var (
		seen    *batch
		entered uint64 // requests that were under way or over when this call came
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
		if res, ok := held.spend(1, now); ok { // which has come since this call looked
			b.mu.Unlock()
			return res, nil
		}
		if seen == nil {
			entered = held.flights
		} else if seen != held {
			entered = 0 // it was made since
		}
		seen = held
		if limited != nil && held.landed.serve(now) { // this call has waited, and is late for a request after its own
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

// serve spends one of the units that are kept for those who waited, if there is one. b.mu is held.
func (f *flight) serve(now time.Time) bool {
	if f == nil || f.kept == 0 || !now.Before(f.until) {
		return false
	}
	f.kept--
	return true
}

// lead asks a server for units: for its own call, which is decided with that, and for others. b.mu is held, and given up.
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
		if res.Allowed && res.Shadow == nil { // else the policy has just become a shadow, which says something about each call
			held.until = now.Add(b.ttl)
			f.kept, f.until = min(taken-1, held.waiting), held.until
			held.taken, held.left = taken, taken-1-f.kept
			res.Remaining += held.left
		}
	}
	held.land(f)
	return res, err
}

// land ends the request under way. b.mu is held.
func (b *batch) land(f *flight) {
	b.flight, b.landed = nil, f
	if f.done != nil {
		close(f.done)
	}
}

// waitedInVain is the error of a call that waited for another's request until its own time was over.
func waitedInVain(keys []string, cause error) error {
	return &Error{
		Op: "take", Keys: keys, Err: cause, class: ErrUnavailable,
		sentence: fmt.Sprintf("not sent, nothing was counted: the request of another call for this key is still under way (%v)", cause),
	}
}
