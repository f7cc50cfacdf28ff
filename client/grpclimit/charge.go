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
// [PerMessage] counts. If the call has an OnceKey, Refund returns [client.ErrBadArgs]: the call may
// be a repeat, which was not charged. While a key is blocked, nothing is given back. If a
// [client.LocalLimiter] allowed the call, nothing is given back either, because nothing was charged
// on a server. For ctx, see [Charge.More].
func (c *Charge) Refund(ctx context.Context, n int64) error {
	return (*adapter.Charge)(c).Refund(ctx, n)
}

// More charges n more units to each key of the call, for example because the work cost more than
// expected, and returns n. Units that do not fit are charged too, as [client.Request.Force] does:
// the next calls are denied until these units are paid off. While a key is blocked, More charges
// nothing and returns 0. If the library on the server is too old, the error is
// [client.ErrNotDeployed].
//
// The call to the limiter uses the values of ctx, but not its deadline or cancellation, so a caller
// that gives up is charged. The timeout of the limiter bounds the call.
func (c *Charge) More(ctx context.Context, n int64) (charged int64, err error) {
	return (*adapter.Charge)(c).More(ctx, n)
}
