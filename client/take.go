package client

import "context"

// take is the one way of every call that takes: what this process knows already comes first, then a server, and, where
// none decides, what the caller chose for that.
func (c *Client) take(ctx context.Context, req Request) (Result, error) {
	res, err := c.decide(ctx, "take", req)
	if err != nil {
		return c.withoutDecision(ctx, req, err)
	}
	return res, nil
}
