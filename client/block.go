package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// Max and Forget make each block of a key twice as long as the last, for penalties. The first is For
	// long. If the last block with Max ended less than Forget ago, the next is twice as long as it was, but
	// at least For and at most Max. A key that is blocked already keeps its block: calls during a block make
	// neither it nor the next one longer. [Client.Unblock] and [Client.Reset] begin again, calls that are
	// allowed do not. For is at most Max, and Max and Forget at most 36500 days; set both or neither, and not
	// with Extend. [Request.Grow] shows what is remembered. If the library on the server is too old for this,
	// the error is [ErrNotDeployed] and no key is blocked.
	Max, Forget time.Duration
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
	switch grows := b.Max != 0 || b.Forget != 0; {
	case grows && b.Extend:
		return c.observers.refuse(ctx, "block", keys, nil, errors.New("BADARGS a block has Extend, and Max or Forget; give one of them"))
	case grows:
		_, err := c.grow(ctx, b, keys)
		return err
	case b.Extend:
		args = append(args, "EXTEND")
	}
	_, err := c.count(ctx, "block", keys, args, len(keys))
	return err
}

// grow blocks keys with GROW, and returns how long the longest block lasts from now.
func (c *Client) grow(ctx context.Context, b Block, keys []string) (longest time.Duration, err error) {
	defer c.observers.report(ctx, "block", time.Now(), nil, nil, &err)
	args := []any{wholeMilliseconds(b.For), "GROW", wholeMilliseconds(b.Max), wholeMilliseconds(b.Forget)}
	want := fmt.Sprintf("a count from 0 to %d, then how long each key is blocked", len(keys))
	return ask(ctx, c.server, &call{verb: "block", keys: keys, args: args}, want, func(reply any) (time.Duration, bool) {
		n := make([]int64, 1+len(keys))
		ok := parseIntegers(described(reply), n)
		return milliseconds(slices.Max(n[1:])), ok && slices.Min(n) >= 0 && n[0] <= int64(len(keys))
	})
}

// Unblock removes the blocks of keys, and forgets earlier blocks with Max. It returns how many of the
// keys were blocked or remembered. Any other key counts as 0 and is not an error. In a cluster the keys share a hash tag.
func (c *Client) Unblock(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "unblock", c.keys(keys), nil, 0)
}
