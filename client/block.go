package client

import (
	"context"
	"fmt"
	"time"
)

// Block says how [Client.Block] blocks keys.
type Block struct {
	// For is how long the keys are blocked, from now: from 1 ms to 36500 days, rounded up to whole
	// milliseconds. With any other value, the error is [ErrMisconfigured].
	For time.Duration

	// Extend never shortens a block: if a key is already blocked for longer, its block stays. So if
	// several callers block a key at the same time, the longest block applies. If the library on the
	// server is too old for this, the error is [ErrNotDeployed] and no key is blocked.
	Extend bool
}

// Block denies takes, peeks, refunds and Lease.Acquire on keys, regardless of their limits. In the
// Result, Allowed is false, Remaining is 0, and RetryAfter is the time until the block ends, or
// [Never] for a cost above the capacity of the limit. Under a shadow policy a blocked key is allowed.
// Held leases stay held: Lease.Acquire and Lease.Renew extend them, and Lease.Release releases them.
// Units taken before the block continue to refill. Without Extend, a second block replaces the first,
// even if it is shorter. Block blocks all keys or none. In a cluster the keys share a hash tag.
func (c *Client) Block(ctx context.Context, b Block, keys ...string) error {
	defer c.forget(keys)
	keys = c.keys(keys)
	if b.For <= 0 {
		return c.observers.refuse(ctx, "block", keys, nil, fmt.Errorf("BADARGS a block of %v; give a time above 0, or lift blocks with Unblock", b.For))
	}
	args := []any{wholeMilliseconds(b.For)}
	if b.Extend {
		args = append(args, "EXTEND")
	}
	_, err := c.count(ctx, "block", keys, args, len(keys))
	return err
}

// Unblock removes the blocks of keys, and returns how many of the keys were blocked. A key without
// a block counts as 0 and is not an error. In a cluster the keys share a hash tag.
func (c *Client) Unblock(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "unblock", c.keys(keys), nil, 0)
}
