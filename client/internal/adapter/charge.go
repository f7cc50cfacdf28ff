package adapter

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Charge records the units that were taken for one call, and can correct them. The packages for
// HTTP and gRPC export it. The methods of a nil Charge do nothing.
type Charge struct {
	limiter *client.Client
	changed func(client.Request, client.Result)

	mu      sync.Mutex
	request client.Request
	result  client.Result
	units   int64 // units that a server charged to each key; the fewest if they differ
	local   bool  // a LocalLimiter allowed the call
}

// NewCharge returns the charge of req, for which limiter returned result. changed is called with
// each result, including this one.
func NewCharge(limiter *client.Client, req client.Request, result client.Result, changed func(client.Request, client.Result)) *Charge {
	c := &Charge{limiter: limiter, changed: changed, request: req, units: 1, local: result.Source == client.SourceLocal}
	switch {
	case req.UpTo:
		c.units = result.Taken
	case len(req.Costs) > 0:
		c.units = slices.Min(req.Costs)
	}
	c.note(result)
	return c
}

// Result returns the result of the last call to the limiter.
func (c *Charge) Result() client.Result {
	if c == nil {
		return client.Result{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result
}

// Refund gives n units back to each key.
func (c *Charge) Refund(ctx context.Context, n int64) error {
	if c == nil || n == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local && n > 0 {
		return nil
	}
	if n < 0 || n > c.units {
		return fmt.Errorf("ratelimit: a refund of %d where the request is charged %d; give from 0 to that", n, c.units)
	}
	if c.request.OnceKey != "" {
		return fmt.Errorf("ratelimit: a refund of a request with the OnceKey %q, which may repeat another one; refund without it: %w",
			c.request.OnceKey, client.ErrBadArgs)
	}
	result, err := c.limiter.Refund(context.WithoutCancel(ctx), client.Request{
		Keys: c.request.Keys, Limits: c.request.Limits, Costs: []int64{n},
	})
	if err != nil {
		return err
	}
	if result.Allowed { // false while the key is blocked
		c.units -= n
	}
	c.note(result)
	return nil
}

// More charges n more units to each key, even if they do not fit.
func (c *Charge) More(ctx context.Context, n int64) (charged int64, err error) {
	if c == nil || n == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		return 0, fmt.Errorf("ratelimit: %d units more; give a number above 0, or call Refund", n)
	}
	result, err := c.limiter.Take(context.WithoutCancel(ctx), client.Request{
		Keys: c.request.Keys, Limits: c.request.Limits, Costs: []int64{n}, Force: true, UsageKey: c.request.UsageKey,
	})
	if err != nil {
		return 0, err
	}
	c.note(result)
	if !result.Allowed { // a key is blocked, or a Fallback denied
		return 0, nil
	}
	if result.Source != client.SourceLocal {
		c.units += n
	}
	return n, nil
}

func (c *Charge) note(result client.Result) {
	c.result = result
	c.changed(c.request, result)
}
