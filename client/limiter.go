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
//     Limiter that waits needs a time of its own. It has the values of the request's context.
//   - If it panics, its caller does.
//   - A denial is a Result, and an error means that there is no decision.
//   - It does not change the slices of a Request, which belong to the caller. To change a Request, a
//     layer gives the copy new slices.
//
// If a layer has a method Unwrap() Limiter, which does not return nil, the packages above use what the
// Limiter beneath can do besides Take, as [net/http.ResponseController] does. They look for methods of a
// [Client]: Refund to give back units (WaitFunc and package charge), Check and Peek to check a limit,
// Penalize and Warning (httplimit and grpclimit), and Block (httpcall and grpccall). The outermost layer that
// has a method is asked. If none has it, a check finds no fault, there is no warning, and what must be given
// back or blocked returns an error. A layer that changes keys or limits has these six methods itself, or
// no Unwrap: otherwise they get the keys and limits as they were. So does a layer that sets an OnceKey:
// otherwise, each of the calls that it makes one gives back the units that were charged once.
//
// A layer has a field for the Limiter beneath, and does not embed a *Client: Allow, Wait and the other
// methods of an embedded Client would not call the layer's Take. With a layer, Allow(ctx, key, limit) is
// Take(ctx, client.For(key, limit)). WaitFunc calls Take once for each attempt.
//
// In a test of a middleware, the Result has Limit, Remaining and, for a denial, RetryAfter, which become
// header fields. Its Source is "server" if the middleware penalizes.
type Limiter interface {
	Take(ctx context.Context, req Request) (Result, error)
}
