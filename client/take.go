package client

import (
	"context"
	"time"
)

// take executes every call that takes units. It uses what this process knows already, then a
// server, and if none decides, the caller's fallback.
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

// single is a request that this process may be able to decide: it has one key, and stores nothing
// else on the server.
type single struct {
	key   string
	limit Limit
	cost  int64
	upTo  bool
}

// least returns the smallest number of units that the call needs to be allowed.
func (a single) least() int64 {
	if a.upTo {
		return min(a.cost, 1)
	}
	return a.cost
}

// singleOf converts req to a single. It returns false if that is not possible.
func singleOf(req Request) (single, bool) {
	if len(req.Keys) != 1 || len(req.Limits) != 1 || len(req.Costs) > 1 || req.UpTo && len(req.Costs) == 0 ||
		req.OnceKey != "" || req.OnceTTL != 0 || req.UsageKey != "" || req.Keys[0] == "" || req.Limits[0] == "" {
		return single{}, false
	}
	return single{key: req.Keys[0], limit: req.Limits[0], cost: req.cost(0), upTo: req.UpTo}, true
}

// takeKnown decides from the key's batch or the remembered denials, if the client has them, and
// otherwise asks a server. A call whose context has ended, or whose client is closed, gets its
// error from decide, as all calls do.
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

// forget drops what this process knows about keys, after a change to them that must take effect at
// once.
func (c *Client) forget(keys []string) {
	c.memory.forget(keys)
	c.batches.drop(keys)
}
