package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Charge is what was taken for the request that a handler serves. The handler can use it to adjust
// the charge once the actual cost is known. A nil Charge stands for a request that was not charged:
// its methods do nothing, so handlers need no check.
//
// Until the response begins, each method call also updates the fields in the header. So call the
// methods from the goroutine that writes the response, or after the handler has returned.
type Charge struct {
	fields *fields

	mu      sync.Mutex
	request client.Request
	result  client.Result
	units   int64 // charged to every key for this request, on a server
	local   bool  // a LocalLimiter allowed the request
}

func (m *middleware) newCharge(header http.Header, req client.Request, result client.Result) *Charge {
	c := &Charge{fields: m.newFields(header), request: req, units: 1, local: result.Source == client.SourceLocal}
	switch {
	case req.UpTo:
		c.units = result.Taken
	case len(req.Costs) > 0:
		c.units = slices.Min(req.Costs)
	}
	c.note(result)
	return c
}

// chargeOf is the context key of the Charge made by the middleware with this name.
type chargeOf string

// ChargeOf returns the charge that the middleware with this name made for the request of ctx. It is
// nil if the request was skipped, was allowed without a decision, or did not pass through that
// middleware.
func ChargeOf(ctx context.Context, name string) *Charge {
	charge, _ := ctx.Value(chargeOf(name)).(*Charge)
	return charge
}

// Result returns the result of the last call to the limiter, or the zero Result for a nil Charge.
func (c *Charge) Result() client.Result {
	if c == nil {
		return client.Result{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result
}

// Refund gives n units back to each key of the request, for example because the work cost less or
// failed. It returns an error if n exceeds the charge of the request, or if the request has an
// OnceKey ([client.ErrBadArgs]), because a repeated request was not charged. It gives nothing back
// while a key is blocked, or if a [client.LocalLimiter] allowed the request, because no server was
// charged. For ctx, see [Charge.More].
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
		return fmt.Errorf("ratelimit: httplimit: a refund of %d where the request is charged %d; give from 0 to that", n, c.units)
	}
	if c.request.OnceKey != "" {
		return fmt.Errorf("ratelimit: httplimit: a refund of a request with the OnceKey %q, which may repeat another one; refund without it: %w",
			c.request.OnceKey, client.ErrBadArgs)
	}
	result, err := c.fields.Limiter.Refund(context.WithoutCancel(ctx), client.Request{
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

// More charges n more units to each key of the request, for example because the work cost more than
// expected, and returns n. Units that do not fit are charged too, as [client.Request.Force] does: the
// next requests are denied until they are paid off. While a key is blocked, More charges nothing and
// returns 0. If the library on the server is too old, the error is [client.ErrNotDeployed].
//
// The call uses the values of ctx, but not its deadline or cancellation, so a client that hangs up
// is charged. The timeout of the limiter bounds the call.
func (c *Charge) More(ctx context.Context, n int64) (charged int64, err error) {
	if c == nil || n == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		return 0, fmt.Errorf("ratelimit: httplimit: %d units more; give a number above 0, or call Refund", n)
	}
	result, err := c.fields.Limiter.Take(context.WithoutCancel(ctx), client.Request{
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
	c.fields.set(c.request, result)
}
