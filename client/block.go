package client

import (
	"context"
	"fmt"
	"time"
)

// Block denies takes, peeks, refunds and Lease.Acquire on keys for d from now, whatever their limits: Result then has
// Allowed false, Remaining 0 and RetryAfter until the block ends, or [Never] for a cost above what the limit holds. A key
// under a shadow policy is let through, and leases that are held can be renewed and released. What was taken before goes on
// to refill underneath. A second block replaces the first, a shorter one too. All keys are blocked, or none.
//
// d is from 1 ms to 36500 days, a part of a ms rounded up ([ErrBadArgs]). In a cluster the keys share a hash tag.
func (c *Client) Block(ctx context.Context, d time.Duration, keys ...string) error {
	defer c.forget(keys)
	keys = c.keys(keys)
	if d <= 0 {
		return refused("block", keys, fmt.Errorf("BADARGS a block of %v; give a time above 0, or lift blocks with Unblock", d))
	}
	_, err := c.count(ctx, "block", keys, []any{wholeMilliseconds(d)}, len(keys))
	return err
}

// Unblock lifts the blocks of keys, and returns how many of them were blocked. A key that is not blocked is 0, not an
// error. In a cluster the keys share a hash tag.
func (c *Client) Unblock(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "unblock", c.keys(keys), nil, 0)
}
