package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Charge is what was taken for the request that a handler serves. With it the handler corrects the cost once it is known.
// A nil Charge is that of a request that was not charged: its methods do nothing, so a handler need not ask.
//
// Until the response begins, the fields in its header follow; so call it from the goroutine that writes the response, or
// after the handler has returned.
type Charge struct {
	limiter *client.Client
	fields  *fields

	mu      sync.Mutex
	request client.Request
	result  client.Result
	units   int64 // that every key is charged for this request, on a server
	local   bool  // it was let through by a LocalLimiter
}

func (m *middleware) newCharge(header http.Header, req client.Request, result client.Result) *Charge {
	c := &Charge{limiter: m.limiter, fields: m.newFields(header), request: req, units: 1, local: result.Source == client.SourceLocal}
	switch {
	case req.UpTo:
		c.units = result.Taken
	case len(req.Costs) > 0:
		c.units = slices.Min(req.Costs)
	}
	c.note(result)
	return c
}

// chargeOf is the key under which a context has the charge of the middleware of this name.
type chargeOf string

// ChargeOf returns what the middleware of this name took for the request that ctx belongs to. It is nil for a request that was
// left out, or let through without a decision, or did not come through that middleware.
func ChargeOf(ctx context.Context, name string) *Charge {
	charge, _ := ctx.Value(chargeOf(name)).(*Charge)
	return charge
}

// Result returns how the limit stands, as the last call said; the zero Result for a nil Charge.
func (c *Charge) Result() client.Result {
	if c == nil {
		return client.Result{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result
}

// Refund gives n units back to each key of the request, as when the work cost less, or failed. More than the request is
// charged is an error, and so is a request with an OnceKey ([client.ErrBadArgs]), since a repetition of it was charged nothing.
// Nothing is given back while a key is blocked, nor what a [client.LocalLimiter] allowed, which was taken from no server. For
// ctx, see [Charge.More].
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
	result, err := c.limiter.Refund(context.WithoutCancel(ctx), client.Request{
		Keys: c.request.Keys, Limits: c.request.Limits, Costs: []int64{n}, OnceKey: c.request.OnceKey, // which is refused
	})
	if err != nil {
		return err
	}
	if result.Allowed { // not while the key is blocked
		c.units -= n
	}
	c.note(result)
	return nil
}

// More takes up to n further units from each key of the request, as when the work turns out to cost more, and returns how many
// were left to take: with fewer than n there is nothing left, and the next requests are denied until the limit has
// recovered. The rest is not remembered. Where that matters, take the most that a request can cost at first, by
// [WithRequest], and give back.
//
// The call has the values of ctx, but does not end with it, so that a client that hangs up pays. The client's own timeout bounds it.
func (c *Charge) More(ctx context.Context, n int64) (taken int64, err error) {
	if c == nil || n == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		return 0, fmt.Errorf("ratelimit: httplimit: %d units more; give a number above 0, or call Refund", n)
	}
	result, err := c.limiter.Take(context.WithoutCancel(ctx), client.Request{
		Keys: c.request.Keys, Limits: c.request.Limits, Costs: []int64{n}, UpTo: true, UsageKey: c.request.UsageKey,
	})
	if err != nil {
		return 0, err
	}
	if result.Source != client.SourceLocal {
		c.units += result.Taken
	}
	c.note(result)
	return result.Taken, nil
}

func (c *Charge) note(result client.Result) {
	c.result = result
	c.fields.set(c.request, result)
}
