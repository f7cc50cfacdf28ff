package grpclimit

import (
	"context"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// Charge holds the units taken for the call that a handler serves, or for the opening of its
// stream. The handler can use it to adjust the charge once the actual cost is known. If a call was
// not charged, its Charge is nil. The methods of a nil Charge do nothing, so handlers need no
// check. A Charge is safe for concurrent use.
type Charge adapter.Charge

// chargeOf is the context key of the Charge made by the Server with this name.
type chargeOf string

// ChargeOf returns the charge that the [Server] with this name made for the call whose handler or
// stream has the context ctx. It is nil if the call was skipped, was allowed without a decision, or
// did not pass through that Server.
func ChargeOf(ctx context.Context, name string) *Charge {
	charge, _ := ctx.Value(chargeOf(name)).(*adapter.Charge)
	return (*Charge)(charge)
}

// Result returns the result of the last call to the limiter for this Charge, or the zero Result for
// a nil Charge. It does not include the messages that [PerMessage] counts.
func (c *Charge) Result() client.Result { return (*adapter.Charge)(c).Result() }

// Refund gives n units back to each key of the call, for example because the work cost less or
// failed. It returns an error if n exceeds the charge, which does not include the messages that
// [PerMessage] counts. If the call has an OnceKey, Refund returns [client.ErrMisconfigured]: the call may
// be a repeat, which was not charged. While a key is blocked, nothing is given back. For ctx, see
// [Charge.More].
//
// Refund gives back only what a server charged ([client.Result.Charged]): nothing if a
// [client.LocalLimiter] allowed the call, except units of More, and nothing to a shadow policy that
// would have denied the call. If a server charged some of the units and a LocalLimiter allowed the
// others, those of the server are given back first. If the reply of the server to the call was lost,
// Refund returns a [client.ErrOutcomeUnknown] and gives nothing back. If the reply to a refund is
// lost, it returns the same; later calls of Refund return it too, because the units may have been
// given back already.
func (c *Charge) Refund(ctx context.Context, n int64) error {
	return (*adapter.Charge)(c).Refund(ctx, n)
}

// More charges n more units to each key of the call, for example because the work cost more than
// expected, and returns n. Units that do not fit are charged too, as [client.Request.Force] does:
// the next calls are denied until these units are paid off. While a key is blocked, and
// under a shadow policy that would have denied the call, More charges nothing and returns 0. If the
// library on the server is too old, the error is [client.ErrNotDeployed].
//
// If no server decides, a [client.LocalLimiter] charges the units in this process, and any other
// [client.Fallback] is ignored: More returns the error. After a [client.ErrOutcomeUnknown], n units
// may have been charged, and Refund does not give them back.
//
// The call to the limiter uses the values of ctx, but not its deadline or cancellation, so a caller
// that gives up is charged. The timeout of the limiter bounds the call.
func (c *Charge) More(ctx context.Context, n int64) (charged int64, err error) {
	return (*adapter.Charge)(c).More(ctx, n)
}
