package client

import "context"

// take is the one way of every call that takes: what this process knows already comes first, then a server, and, where
// none decides, what the caller chose for that.
func (c *Client) take(ctx context.Context, req Request) (Result, error) {
	if err := req.Fallback.check(); err != nil {
		return Result{}, refused("take", c.keys(req.keys("take")), err)
	}
	res, err := c.decide(ctx, "take", req)
	if err != nil {
		return c.withoutDecision(ctx, req, err)
	}
	if c.fallbackOf(req).kind == localLimiter {
		c.learn(req.Limits)
	}
	return res, nil
}
