// Package grpclimit provides rate limiting interceptors for gRPC servers and clients, based on
// package client.
//
// # Servers
//
//	limit, err := grpclimit.NewServer(limiter, "api", "100/m", grpclimit.Peer())
//	...
//	err = limit.Check(ctx) // checks that the servers accept the limit
//	...
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A [Key] selects the key under which a call is counted: the address of the peer, a metadata value,
// the method, or the result of a function. A call over the limit fails with RESOURCE_EXHAUSTED and
// a RetryInfo. A call without a key fails with INVALID_ARGUMENT, so callers cannot avoid the limit
// by omitting the value; [FirstOf] provides another key for such calls. A stream is counted when it
// is opened, and with [PerMessage] also for each message.
//
// If there is no decision, a call is allowed, and the error is logged, at most once a second.
// With [RefuseOnError], such calls fail with UNAVAILABLE. Retries do not help if a limit is wrong:
// [Server.Check] finds it when the program starts. While the program runs, the error is logged on
// its own line, and with [RefuseMisconfigured] the call fails with INTERNAL. If the client was made
// with client.WithFallback, the fallback applies first.
//
// A call is charged even if its caller cancels it or sets a short deadline, because the context of
// the call does not cancel the decision. If there is no decision and the context is done, the
// call is not handled.
//
// A handler that knows the cost of its call only afterwards can correct the charge; see [ChargeOf].
//
// # Clients
//
//	limit, err := grpclimit.NewClient(limiter, "partner", "10/s burst=20")
//	...
//	err = limit.Check(ctx)
//	...
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(limit.Unary), grpc.WithStreamInterceptor(limit.Stream), ...)
//
// A call over the limit waits for its turn, for at most a minute ([WithLongestWait]). If its
// deadline would pass first, it fails immediately with a [client.ErrLimited]. If the server ends
// a call with RESOURCE_EXHAUSTED or UNAVAILABLE and a RetryInfo, the key is blocked for that time
// in every process that uses it, for at most ten minutes ([WithLongestBlock]). Retries that gRPC
// makes according to a service config happen below interceptors and are not counted.
package grpclimit
