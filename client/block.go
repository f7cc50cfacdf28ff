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
	return c.block(ctx, d, keys)
}

// BlockAtLeast is Block, but never shortens a block: the block of a key that would end later stays as it is. So of several
// callers that block a key at the same time, the longest block holds.
//
// A library that is too old for this is [ErrNotDeployed], and blocks no key: deploy the library before its callers.
func (c *Client) BlockAtLeast(ctx context.Context, d time.Duration, keys ...string) error {
	return c.block(ctx, d, keys, "EXTEND")
}

func (c *Client) block(ctx context.Context, d time.Duration, keys []string, options ...any) error {
	defer c.forget(keys)
	keys = c.keys(keys)
	if d <= 0 {
		return refused("block", keys, fmt.Errorf("BADARGS a block of %v; give a time above 0, or lift blocks with Unblock", d))
	}
	_, err := c.count(ctx, "block", keys, append([]any{wholeMilliseconds(d)}, options...), len(keys))
	return err
}

// Unblock lifts the blocks of keys, and returns how many of them were blocked. A key that is not blocked is 0, not an
// error. In a cluster the keys share a hash tag.
func (c *Client) Unblock(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "unblock", c.keys(keys), nil, 0)
}
