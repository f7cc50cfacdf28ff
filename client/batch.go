package client

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// WithBatches makes the client take up to n units of a key at once and spend them itself, so that
// most calls for a busy key need no request. Result.Source is then "batch". n is at least 2
// and ttl at least 1 ms; 100 ms is a good ttl.
//
// Units are charged before they are spent. They expire after ttl, counted from just before their
// request was sent. Therefore, in any time span L, no more units are admitted than the limit allows
// in L + ttl, however many processes take part. tools/batches has a model of this for the Spin
// model checker. Failovers are an exception, with or without batches. The promoted replica may lack
// the last writes of a key, or all of them, so a span with a failover can admit up to one burst
// more.
//
// For a rarely used key, the client takes one unit at a time. The more often a key is used, the
// larger its batch, so that the units are spent within ttl. To leave units for other processes, a
// request takes at most an eighth of the remaining units, or one unit for each waiting caller if
// that is more. For each key, only one request for a batch is in progress at a time. Other callers
// wait for its reply, within their contexts and the client's timeout, and share its units, its
// denial, or its error. They get these units in no particular order.
//
// The following calls never use a batch: calls with several keys, leaky_bucket (each unit has its
// own wait), shadow policies, an OnceKey, a UsageKey, UpTo, Force, Each, Borrow, a Class that the
// policy does not list, and a cost of 0 or above n. Calls under a policy use no batch until the client
// has read the policy's limits, which happens in the background. The client reads them again while the
// policy is in use, so it notices a redeployed policy within ttl. A cost above 1 is spent from the batch if enough units are left.
// Otherwise the call goes to a server, which charges all of it or nothing. Only calls with cost 1
// fill batches. If an override gives a key a leaky_bucket limit, the client notices at the next
// request for a batch. It drops all but one of the units in the reply, and then sends a request for
// each unit.
//
// In a decision from a batch, Limit, Remaining and ResetAfter come from the server's last reply.
// Remaining also includes the units left in the batch, and ResetAfter is reduced by the time since
// the reply. These fields do not reflect units that other processes have taken since.
//
// Each Class, and each Floor, of a key has a batch of its own, which leaves to others what a call of
// the Class leaves, and is spent only by calls of the Class. So no call spends units that it could not
// have taken.
//
// Unspent units expire after ttl, and are lost if the process ends without Close. Expired units are
// not given back: the limit has refilled since, so they would be available twice. Under gcra,
// [Client.Close] gives back the unspent units, minus those that may have refilled, which it
// overestimates for units that were taken with a Class or a Floor. Under other
// algorithms it drops them. If the reply to a request for a batch is lost, none of its units are
// spent. Reset, Block, Unblock, Override and EndOverride end the batch of a key in this client;
// batches in other processes remain valid for up to ttl. Refund does not affect the batch, because
// its units are already charged. The client measures time by the process's monotonic clock. The
// client keeps up to 65,536 batches; with one more, the units of the batch that was not used for longest
// are lost.
func WithBatches(n int64, ttl time.Duration) Option {
	return option("WithBatches", []any{n, ttl}, func(c *config) error {
		switch {
		case n < 2 || n > mostCost:
			return fmt.Errorf("batches of %d units; give WithBatches a number from 2 to %d", n, int64(mostCost))
		case ttl < time.Millisecond:
			return fmt.Errorf("batches that last %v; give WithBatches a time of 1ms or more, such as 100ms", ttl)
		}
		c.batchSize, c.batchTTL = n, ttl
		return nil
	})
}

// batches is the layer that spends units which a server has charged before: those of a key that a
// request of this client has taken, and that are younger than ttl. In any time span L, it admits no
// more units than the limit allows in L + ttl. The methods of nil batches do nothing.
type batches struct {
	*common
	parsed *parsedLimits
	recall func(single) (Result, bool) // returns a denial that the next layer would repeat
	next   Limiter
	most   int64 // maximum size of a batch
	ttl    time.Duration
	sharedTable[*keyBatch]
}

type keyBatch struct {
	limit    Limit
	left     int64     // units that may be spent
	until    time.Time // when these units expire
	received int64     // units in the last reply
	sent     time.Time // just before the last request was sent
	used     time.Time // when the batch was last used
	last     Result    // the last reply
	read     time.Time // when the last reply was received
	size     int64     // size of the next batch, before it is adjusted to waiting callers and Remaining

	waiting   int64      // callers that wait, and for which no unit is reserved
	requests  uint64     // number of requests so far
	request   *request   // the request in progress
	reserving []*request // completed requests with units that are reserved for callers that wait, oldest first
	denied    *request   // the last denied request
}

// Take implements [Limiter].
func (b *batches) Take(ctx context.Context, req Request) (Result, error) {
	a, ok := b.single(ctx, &req)
	if !ok || !b.covers(ctx, a) {
		return b.next.Take(ctx, req)
	}
	if res, ok := b.spend(a); ok {
		return res, nil
	}
	if a.cost > 1 {
		return b.next.Take(ctx, req)
	}
	if res, ok := b.recall(a); ok { // do not make the caller wait for another caller's request
		return res, nil
	}
	return b.takeShared(ctx, req, a)
}

// forget ends the batches of keys.
func (b *batches) forget(keys []string) {
	if b != nil {
		b.drop(keys)
	}
}

// covers reports whether a call may use units from a batch.
func (b *batches) covers(ctx context.Context, a single) bool {
	return !a.upTo && a.cost >= 1 && !strings.Contains(string(a.limit), "leaky_bucket") && b.parsed.batchable(ctx, a, b.ttl)
}

// of returns the batch for the key and the share of a call, creating it if necessary. It returns nil if
// that batch is for another limit and still in use. b.mu must be held.
func (b *batches) of(a single, now time.Time) *keyBatch {
	found, ok := b.entries.Get(a.sharedKey)
	if ok && found.limit == a.limit {
		return found
	}
	if ok && (found.request != nil || found.has(1, now)) {
		return nil
	}
	b.shrink(func(oldest *keyBatch) bool { return oldest.request != nil || now.Sub(oldest.used) <= 2*b.ttl })
	made := &keyBatch{limit: a.limit, size: 1, used: now}
	b.add(a.sharedKey, made)
	return made
}

// has reports whether the batch has enough unexpired units for a call with this cost.
func (k *keyBatch) has(cost int64, now time.Time) bool {
	return k.left >= cost && now.Before(k.until)
}

// spend takes cost units from the batch, if it has enough, and returns the call's result.
func (k *keyBatch) spend(cost int64, now time.Time) (Result, bool) {
	if !k.has(cost, now) {
		return Result{}, false
	}
	k.left -= cost
	res := k.last
	res.Remaining += k.left
	return k.result(res, k.read, now), true
}

// result returns the result of a call that spends a unit. The reply with this unit is res; it was
// received at the time read.
func (k *keyBatch) result(res Result, read, now time.Time) Result {
	k.used = now
	res.Source = sourceBatch
	res.ResetAfter = countedDown(res.ResetAfter, now.Sub(read))
	return res
}

// countedDown returns d minus elapsed, but at least 0, rounded up to whole milliseconds.
func countedDown(d, elapsed time.Duration) time.Duration {
	left := max(0, d-max(0, elapsed))
	if whole := left.Truncate(time.Millisecond); whole < left && whole <= math.MaxInt64-time.Millisecond {
		return whole + time.Millisecond
	}
	return left
}

// spend decides a call with units from its key's batch, if the batch has enough.
func (b *batches) spend(a single) (Result, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.entries.Get(a.sharedKey)
	if !ok || found.limit != a.limit {
		return Result{}, false
	}
	return found.spend(a.cost, b.now())
}
