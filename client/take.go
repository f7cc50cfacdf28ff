package client

import (
	"context"
	"time"
)

// take is the one way of every call that takes: what this process knows already comes first, then a server, and, where
// none decides, what the caller chose for that.
func (c *Client) take(ctx context.Context, req Request) (res Result, err error) {
	if c.onCall != nil {
		defer func(began time.Time) { c.observeResult(ctx, "take", began, res, err) }(time.Now())
	}
	if err := req.Fallback.check(); err != nil {
		return Result{}, refused("take", c.keys(req.keys("take")), err)
	}
	res, err = c.takeKnown(ctx, req)
	if err != nil {
		return c.withoutDecision(ctx, req, err)
	}
	if res.Source == SourceServer && c.fallbackOf(req).kind == localLimiter {
		c.learn(req.Limits)
	}
	return res, nil
}

// single is a request that this process may be able to decide on by itself: it is about one key, and leaves nothing else
// behind on the server.
type single struct {
	key   string
	limit Limit
	cost  int64
	upTo  bool
}

// least is how many units the call is denied for if they are not there.
func (a single) least() int64 {
	if a.upTo {
		return min(a.cost, 1)
	}
	return a.cost
}

// singleOf is req as a single; false if it is none.
func singleOf(req Request) (single, bool) {
	if len(req.Keys) != 1 || len(req.Limits) != 1 || len(req.Costs) > 1 || req.UpTo && len(req.Costs) == 0 ||
		req.OnceKey != "" || req.OnceTTL != 0 || req.UsageKey != "" || req.Keys[0] == "" || req.Limits[0] == "" {
		return single{}, false
	}
	return single{key: req.Keys[0], limit: req.Limits[0], cost: req.cost(0), upTo: req.UpTo}, true
}

// takeKnown decides from the batch of the key or the memory of denials, where the client has them, and else by a server.
// A call whose context has ended, or on a client that is closed, gets its error where all calls do.
func (c *Client) takeKnown(ctx context.Context, req Request) (Result, error) {
	if c.batches == nil && c.memory == nil {
		return c.decide(ctx, "take", req)
	}
	a, ok := singleOf(req)
	if !ok || c.life.closed.Load() || ended(ctx) != nil {
		return c.decide(ctx, "take", req)
	}
	batched := c.batches != nil && c.batchable(ctx, a)
	if batched {
		if res, ok := c.batches.spend(a); ok {
			return res, nil
		}
	}
	if c.memory != nil {
		if res, ok := c.memory.recall(a); ok {
			return res, nil
		}
	}
	if batched && a.cost == 1 {
		return c.takeShared(ctx, req, a)
	}
	return c.decideAndRemember(ctx, req, a)
}

// forget ends what this process knows of keys, after something was done to them that is to hold at once.
func (c *Client) forget(keys []string) {
	c.memory.forget(keys)
	c.batches.drop(keys)
}
