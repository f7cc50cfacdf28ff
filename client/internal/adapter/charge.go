package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/layer"
)

// Refusal returns for how long a request is refused that a fallback decided: 0 if it is allowed. A layer
// may deny without saying for how long.
func Refusal(result client.Result) time.Duration {
	if result.Allowed {
		return 0
	}
	return max(result.RetryAfter, time.Second)
}

// Take calls limiter.Take for a call that a Charge may correct. It ignores the cancellation of ctx;
// the timeout of limiter bounds the call. If req has several policies, Take sets Each, so that
// client.Result.Charged is exact. If the library on the server is too old for Each, it decides
// without.
func Take(ctx context.Context, limiter client.Limiter, req client.Request) (client.Result, error) {
	policies := 0
	for _, limit := range req.Limits {
		if strings.HasPrefix(string(limit), "@") {
			policies++
		}
	}
	ctx = context.WithoutCancel(ctx)
	if req.Each || policies < 2 {
		return limiter.Take(ctx, req)
	}
	withEach := req
	withEach.Each = true
	result, err := limiter.Take(ctx, withEach)
	var e *client.Error
	if why := cmp.Or(err, result.Err); errors.Is(why, client.ErrNotDeployed) && errors.As(why, &e) && e.Code == "BADLIMIT" {
		return limiter.Take(ctx, req)
	}
	return result, err
}

// Charge records the units that were taken for one call, and can correct them. Package charge
// exports it. The methods of a nil Charge do nothing.
type Charge struct {
	limiter client.Limiter
	changed func(client.Request, client.Result)

	mu      sync.Mutex
	request client.Request
	result  client.Result
	units   int64   // units that a server took from each key; the fewest if they differ
	short   []int64 // by key: how many of these units the key was not charged, because of a shadow policy
	out     []bool  // by key: whether a shadow policy would have denied the call, so the key takes no part
	local   int64   // units that this process allowed because no server decided
	doubt   error   // why it is unknown whether a server charged the units in local; nil if it did not
	refund  error   // the error of a refund whose outcome is unknown
}

// chargeOf is the context key of the Charge of the limit with this name.
type chargeOf string

// WithCharge returns a context with the Charge of the limit with this name.
func WithCharge(ctx context.Context, name string, charge *Charge) context.Context {
	return context.WithValue(ctx, chargeOf(name), charge)
}

// ChargeOf returns the Charge of the limit with this name, or nil.
func ChargeOf(ctx context.Context, name string) *Charge {
	charge, _ := ctx.Value(chargeOf(name)).(*Charge)
	return charge
}

// NewCharge returns the charge of req, for which Take returned result. changed is called with each
// result, including this one.
func NewCharge(limiter client.Limiter, req client.Request, result client.Result, changed func(client.Request, client.Result)) *Charge {
	c := &Charge{limiter: limiter, changed: changed, request: req}
	cost := func(key int) int64 {
		switch {
		case req.UpTo:
			return result.Taken
		case len(req.Costs) == 0:
			return 1
		}
		return req.Costs[min(key, len(req.Costs)-1)]
	}
	c.units = cost(0)
	for i := range req.Keys {
		c.units = min(c.units, cost(i))
	}
	switch {
	case result.Source == "local" || result.Source == "fallback":
		c.units, c.local = 0, c.units
		_, c.doubt = result.Charged(req)
	case result.Shadow != nil, req.Borrow:
		c.lists()
		charged, _ := result.Charged(req) // only an invalid request has an error, and was not decided
		for i, units := range charged {
			c.short[i] = cost(i) - units
			c.out[i] = units == 0 && cost(i) > 0
		}
	}
	c.note(result)
	return c
}

// lists makes the lists of c, unless they exist. Most calls need none.
func (c *Charge) lists() {
	if c.short == nil {
		c.short, c.out = make([]int64, len(c.request.Keys)), make([]bool, len(c.request.Keys))
	}
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
	back := min(n, c.units) // the rest was charged by this process only
	switch {
	case n < 0 || n > c.units+c.local:
		return fmt.Errorf("ratelimit: a refund of %d where the request is charged %d; give from 0 to that", n, c.units+c.local)
	case c.refund != nil:
		return fmt.Errorf("ratelimit: a refund of %d, not sent, since an earlier refund of the request may have given the units back: %w", n, c.refund)
	case n > back && c.doubt != nil:
		return fmt.Errorf("ratelimit: a refund of %d, not sent, since the units may not have been charged: %w", n, c.doubt)
	case back == 0: // nothing was charged on a server
		c.local -= n
		return nil
	case c.request.OnceKey != "":
		return fmt.Errorf("ratelimit: a refund of a request with the OnceKey %q, which may repeat another one; refund without it: %w",
			c.request.OnceKey, client.ErrMisconfigured)
	}
	c.lists()
	costs := make([]int64, len(c.request.Keys))
	for i := range costs {
		costs[i] = max(0, back-c.short[i])
	}
	if slices.Max(costs) > 0 {
		limiter, ok := layer.Beneath[interface {
			Refund(context.Context, client.Request) (client.Result, error)
		}](c.limiter)
		if !ok {
			return fmt.Errorf("ratelimit: a refund of %d, not made, since the limiter %T has no Refund and wraps none that has; give it that method, or Unwrap", n, c.limiter)
		}
		result, err := limiter.Refund(context.WithoutCancel(ctx), client.Request{Keys: c.request.Keys, Limits: c.request.Limits, Costs: costs, Borrow: c.request.Borrow, Floor: c.request.Floor})
		if errors.Is(err, client.ErrOutcomeUnknown) {
			c.refund = err
		}
		if err != nil {
			return err
		}
		c.note(result)
		if !result.Allowed { // a key is blocked
			return nil
		}
	}
	c.units -= back
	c.local -= n - back
	for i := range costs {
		c.short[i] -= back - costs[i]
	}
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
	c.lists()
	more := client.Request{Keys: c.request.Keys, Limits: c.request.Limits, Costs: make([]int64, len(c.request.Keys)), Force: true, UsageKey: c.request.UsageKey}
	for i := range more.Costs {
		if !c.out[i] {
			more.Costs[i] = n
		}
	}
	if slices.Max(more.Costs) == 0 {
		return 0, nil
	}
	result, err := Take(ctx, c.limiter, more)
	if err != nil {
		return 0, err
	}
	units, unknown := result.Charged(more)
	switch {
	case unknown != nil: // a Fallback replaced a lost reply
		return 0, unknown
	case result.Source == "fallback": // FailOpen or FailClosed: nothing was charged
		return 0, result.Err
	}
	c.note(result)
	switch {
	case !result.Allowed: // a key is blocked
		return 0, nil
	case result.Source == "local":
		c.local += n
		return n, nil
	}
	c.units += n
	for i, charged := range units {
		c.short[i] += n - charged
	}
	return n, nil
}

func (c *Charge) note(result client.Result) {
	c.result = result
	c.changed(c.request, result)
}
