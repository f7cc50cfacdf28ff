package client

import "context"

// A Limiter decides whether units may be taken. A [*Client] is one. Other Limiters are layers, which
// wrap a Limiter and add to what it does, or stand for one in a test:
//
//	type always struct{}
//
//	func (always) Take(context.Context, client.Request) (client.Result, error) {
//		return client.Result{Allowed: true}, nil
//	}
//
// [WaitFunc] and the packages httplimit, httpcall, grpclimit and grpccall accept any Limiter.
//
// A Limiter follows these rules:
//   - It is safe for concurrent use.
//   - It returns when ctx ends, or within a time that it documents. Callers wait for it. The ctx of the
//     packages httplimit and grpclimit never ends, so that callers who hang up are counted: there, a
//     Limiter that waits needs a time of its own.
//   - If it panics, its caller does.
//   - A denial is a Result, and an error means that there is no decision.
//   - It does not change the slices of a Request, which belong to the caller. To change a Request, a
//     layer gives the copy new slices.
//
// If a layer has a method Unwrap() Limiter, which does not return nil, the packages above use what the Limiter beneath can do
// besides Take, as [net/http.ResponseController] does: WaitFunc gives back a turn with Refund, and
// httplimit checks its limit with Check and penalizes with Penalize. A layer can have such a method itself. If there is none, a
// check finds no fault, and what must be given back or blocked returns an error. A layer that changes
// requests, for example their keys, has these methods of its own, or no Unwrap: otherwise a refund
// would go to the keys of the request as it was.
//
// A layer has a field for the Limiter beneath, and does not embed a *Client: Allow, Wait and the other
// methods of an embedded Client would not call the layer's Take. With a layer, Allow(ctx, key, limit) is
// Take(ctx, client.For(key, limit)).
type Limiter interface {
	Take(ctx context.Context, req Request) (Result, error)
}
