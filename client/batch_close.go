package client

import (
	"context"
	"math"
	"sync"
	"time"
)

// refunders is the maximum number of refunds that Close sends concurrently.
const refunders = 16

// leftover holds the unspent units of a batch.
type leftover struct {
	key   string
	limit Limit
	units int64
	age   time.Duration // time since just before the request for the units was sent
	rate  float64       // units that refill per second, according to the key's last reply
}

func (b *batches) close() []leftover {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []leftover
	now := b.now()
	for _, at := range b.entries.Keys() {
		if k, _ := b.entries.Peek(at); k.has(1, now) {
			// With a class or a floor, Remaining is lower than what is left, so the rate is too high.
			used, refilled := float64(k.last.Limit-k.last.Remaining), max(k.last.ResetAfter, time.Millisecond)
			all = append(all, leftover{at.key, k.limit, k.left, now.Sub(k.sent), used / refilled.Seconds()})
		}
	}
	b.entries.Purge()
	return all
}

// refundBatches ends the batches and refunds their unspent units where possible, within the timeout
// of one call. Units that cannot be refunded are dropped.
func (c *Client) refundBatches() {
	all := c.batches.close()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(toReturn(context.Background()), c.timeout)
	defer cancel()
	perSecond := map[limitOn]float64{} // refill rates by limit
	var requests []Request
	for _, l := range all {
		at, node := c.batches.parsed.on(ctx, l.key, l.limit)
		rate, ok := perSecond[at]
		if !ok {
			rate = c.batches.parsed.refillRate(ctx, l.limit, node)
			perSecond[at] = rate
		}
		// A refund may take up to the client's timeout to arrive. Units that may refill by then are
		// not refunded. Under an override, units may refill faster than under the limit, so the
		// higher rate applies.
		rate = max(rate, l.rate)
		if back := l.units - int64(math.Ceil(rate*(l.age+c.timeout).Seconds())); back > 0 {
			requests = append(requests, Request{Keys: []string{l.key}, Limits: []Limit{l.limit}, Costs: []int64{back}})
		}
	}
	next := make(chan Request, len(requests))
	for _, req := range requests {
		next <- req
	}
	close(next)
	var wg sync.WaitGroup
	for range min(refunders, len(requests)) {
		wg.Go(func() {
			for req := range next {
				if ctx.Err() != nil {
					return
				}
				_, _ = c.execute(ctx, "refund", &req)
			}
		})
	}
	wg.Wait()
}
