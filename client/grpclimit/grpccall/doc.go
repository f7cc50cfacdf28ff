// Package grpccall provides interceptors that keep a gRPC client's calls to other services within a
// limit, based on package client. Package grpclimit has those for servers.
//
//	limit, err := grpccall.New(limiter, "partner", "10/s burst=20")
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
package grpccall
