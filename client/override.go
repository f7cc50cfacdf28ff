package client

import (
	"context"
	"fmt"
	"time"
)

// Override applies limit to keys for the duration d. During this time, every decision on these keys uses
// limit, whatever limit or policy its call names. This applies to takes, peeks and refunds, and to
// Lease.Acquire and Lease.Renew if limit is for leases. Units that were taken before
// stay taken, as with any change of a limit. A blocked key stays blocked. With a shadow policy,
// limit determines the shadow decision, and the call is always allowed. A second override replaces
// the first, even if it is shorter. Override changes all keys or none.
//
// limit must not be a policy, and may have at most 5 rates; d is from 1 ms to
// 36500 days, rounded up to whole milliseconds. A key that stores leases accepts only limits such as
// "concurrency 3 lease=30s", and a key that stores a rate's state accepts only other limits. Otherwise
// the error is [ErrMisconfigured]. In a cluster, the keys must share a hash tag. If the library on the
// server is too old for Override, the error is [ErrNotDeployed].
//
// Override takes effect immediately in this client. Other clients may still spend units of a batch
// ([WithBatches]) for up to the ttl of the batches, and may repeat a remembered denial for up to
// the time given to [WithDenialMemory]. When an override expires, the same applies to all clients.
// A [LocalFallback] ignores overrides.
func (c *Client) Override(ctx context.Context, limit Limit, d time.Duration, keys ...string) error {
	defer c.forget(keys)
	keys = c.keys(keys)
	if d <= 0 {
		return c.observers.refuse(ctx, "override", keys, nil, fmt.Errorf("BADARGS an override of %v; give a time above 0, or end overrides with EndOverride", d))
	}
	_, err := c.count(ctx, "override", keys, []any{string(limit), wholeMilliseconds(d)}, len(keys))
	return err
}

// EndOverride ends the overrides of keys now, and returns how many of the keys had one. The limits
// of the calls apply again, and units taken under the override stay taken. Blocks stay. A key without
// an override counts as 0 and is not an error. In a cluster, the keys must share a hash tag.
func (c *Client) EndOverride(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "override_end", c.keys(keys), nil, 0)
}
