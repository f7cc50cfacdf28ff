// Package grpclimit limits the calls of gRPC, at both ends, with interceptors that ask package client.
//
// # Servers
//
//	limit, err := grpclimit.NewServer(limiter, "api", "100/m", grpclimit.Peer())
//	...
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A [Key] says what a call is counted under: the address of the peer, a value of the metadata, the method, or a function. A
// call over the limit ends with RESOURCE_EXHAUSTED and a RetryInfo. A call without what it is counted under ends with
// INVALID_ARGUMENT, so that nobody escapes the limit by leaving it out; [FirstOf] has another key for such calls. A stream
// is counted when it is opened, and with [PerMessage] for each message.
//
// Without a decision a call is let through, and the error logged, at most once a second. [RefuseOnError] ends such calls with
// UNAVAILABLE. A client that was made with client.WithFallback decides first.
//
// A caller that cancels its call, or sets a short deadline, pays like any other: the decision does not end with the context of the
// call. A call whose context has ended and for which there is no decision is not handled.
//
// # Clients
//
//	limit, err := grpclimit.NewClient(limiter, "partner", "10/s burst=20")
//	...
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(limit.Unary), grpc.WithStreamInterceptor(limit.Stream), ...)
//
// A call over the limit waits for its turn, for a minute at most ([WithLongestWait]), and never where its deadline would
// come first: then it fails at once with a [*client.LimitedError]. Where the server ends a call with RESOURCE_EXHAUSTED or
// UNAVAILABLE and a RetryInfo, the key is blocked for that time in every process that uses it, for ten minutes at most
// ([WithLongestBlock]). The repetitions that gRPC makes by a service config come below interceptors and are not counted.
package grpclimit
