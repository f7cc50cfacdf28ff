package client

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// givers is how many refunds Close sends concurrently.
const givers = 16

// drop ends the batches of keys. Their units are not spent. A request in progress still serves the
// callers that wait for it, but the rest of its units are dropped.
func (b *batches) drop(keys []string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		b.keys.Remove(key)
	}
}

// leftover holds the unspent units of a batch.
type leftover struct {
	key   string
	limit Limit
	units int64
	age   time.Duration // since just before their request was sent
}

// close ends all batches, and returns their unspent units.
func (b *batches) close() []leftover {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []leftover
	now := b.now()
	for _, key := range b.keys.Keys() {
		held, _ := b.keys.Peek(key)
		if held.has(1, now) {
			all = append(all, leftover{key, held.limit, held.left, now.Sub(held.sent)})
		}
	}
	b.keys.Purge()
	return all
}

// giveBack ends the batches and refunds their unspent units where possible, within the time of one
// call. The rest is dropped.
func (c *Client) giveBack() {
	all := c.batches.close()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	perSecond := map[question]float64{} // refill rate of each limit
	var requests []Request
	for _, l := range all {
		q, node := c.questionOf(ctx, l.key, l.limit)
		rate, ok := perSecond[q]
		if !ok {
			rate = c.refills(ctx, l.limit, node)
			perSecond[q] = rate
		}
		// A refund may arrive as late as its timeout.
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
	for range min(givers, len(requests)) {
		wg.Go(func() {
			for req := range next {
				if ctx.Err() != nil {
					return
				}
				_, _ = c.decide(ctx, "refund", req)
			}
		})
	}
	wg.Wait()
}

// refills returns how many units of limit refill per second, by the fastest of its rates. If that
// is not known, or the algorithm does not refill steadily, it returns a number so large that
// nothing is refunded.
func (c *Client) refills(ctx context.Context, limit Limit, node redis.UniversalClient) float64 {
	keys, err := c.readingOf(ctx, limit, node)
	if err != nil || len(keys) != 1 || keys[0].algorithm != "gcra" {
		return math.MaxInt32
	}
	var fastest float64
	for _, r := range keys[0].rates {
		fastest = max(fastest, float64(r.n)/r.period.Seconds())
	}
	return fastest
}
