// Package charge corrects what a request or a call was charged, once its actual cost is known. The
// middleware of package httplimit and the interceptors of package grpclimit make the charges:
//
//	err := charge.Of(ctx, "api").Refund(ctx, 3)
package charge

import (
	"context"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// Charge holds the units taken for the request that a handler serves, or for the gRPC call, or for
// the opening of its stream. The Charge of a request that was not charged is nil: its methods do
// nothing, so handlers need no check. A Charge is safe for concurrent use.
//
// Until an HTTP response begins, Refund and More also update the RateLimit fields in its header. So
// call them from the goroutine that writes the response, or after the handler has returned.
type Charge adapter.Charge

// Of returns the charge that the middleware or the interceptor with this name made for the request
// with context ctx. In a stream, ctx is the context of the stream. Of returns nil if the request was
// skipped, was allowed without a decision, or did not pass through a limit of that name.
func Of(ctx context.Context, name string) *Charge { return (*Charge)(adapter.ChargeOf(ctx, name)) }

// Result returns the result of the last call to the limiter, or the zero Result for a nil Charge.
func (c *Charge) Result() client.Result { return (*adapter.Charge)(c).Result() }

// Refund gives n units back to each key, for example because the work cost less or failed. It returns
// an error if n exceeds the charge of the request. If the request has an OnceKey, Refund returns
// [client.ErrMisconfigured]: the request may be a repeat, which was not charged. While a key is
// blocked, nothing is given back. For ctx, see [Charge.More].
//
// Refund gives back only what a server charged ([client.Result.Charged]): nothing if a
// [client.LocalFallback] allowed the request, except units of More, and nothing to a shadow policy
// that would have denied the request. If a server charged some of the units and a LocalFallback
// allowed the others, those of the server are given back first. If the reply of the server to the
// request was lost, Refund returns a [client.ErrOutcomeUnknown] and gives nothing back. If the reply
// to a refund is lost, it returns the same; later calls of Refund return it too, because the units
// may have been given back already.
func (c *Charge) Refund(ctx context.Context, n int64) error {
	return (*adapter.Charge)(c).Refund(ctx, n)
}

// More charges n more units to each key, for example because the work cost more than
// expected, and returns n. Units that do not fit are charged too, as [client.Request.Force] does:
// the next requests or calls are denied until these units are paid off. While a key is blocked, and
// under a shadow policy that would have denied the request, More charges nothing and returns 0. If the
// library on the server is too old, the error is [client.ErrNotDeployed]. A guarantee and a pool take no
// Force, so under such a policy the error is a [client.ErrMisconfigured].
//
// If no server decides, a [client.LocalFallback] charges the units in this process, and any other
// [client.Fallback] is ignored: More returns the error. After a [client.ErrOutcomeUnknown], n units
// may have been charged, and Refund does not give them back.
//
// The call uses the values of ctx, but not its deadline or cancellation, so a client that hangs up
// is charged. The timeout of the limiter bounds the call.
func (c *Charge) More(ctx context.Context, n int64) (charged int64, err error) {
	return (*adapter.Charge)(c).More(ctx, n)
}
