// Package grpclimit provides rate limiting interceptors for gRPC servers, based on package client.
// Package grpccall has those for clients.
//
//	limit, err := grpclimit.New(limiter, "api", "100/m", grpclimit.Peer())
//	...
//	err = limit.Check(ctx) // checks that the servers accept the limit
//	...
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A [Key] selects the key under which a call is counted: the address of the peer, a metadata value,
// the method, or the result of a function. A call over the limit fails with RESOURCE_EXHAUSTED and
// a RetryInfo. A call without a key fails with INVALID_ARGUMENT, so callers cannot avoid the limit
// by omitting the value; [FirstOf] provides another key for such calls. A stream is counted when it
// is opened, and with [WithPerMessage] also for each message.
//
// If there is no decision, a call is allowed, and the error is logged, at most once a second.
// With [WithRefuseOnError], such calls fail with UNAVAILABLE. Retries do not help if a limit is wrong:
// [Interceptor.Check] finds it when the program starts. While the program runs, the error is logged on
// its own line, and with [WithRefuseMisconfigured] the call fails with INTERNAL. If the client was made
// with client.WithFallback, the fallback applies first.
//
// A call is charged even if its caller cancels it or sets a short deadline, because the context of
// the call does not cancel the decision. If there is no decision and the context is done, the
// call is not handled.
//
// A handler that knows the cost of its call only afterwards can correct the charge; see package
// [github.com/ratelimit-functions/ratelimit/client/charge].
package grpclimit
