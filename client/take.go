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
	res, err = c.decide(ctx, "take", req)
	if err != nil {
		return c.withoutDecision(ctx, req, err)
	}
	if c.fallbackOf(req).kind == localLimiter {
		c.learn(req.Limits)
	}
	return res, nil
}
