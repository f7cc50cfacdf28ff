package grpclimit_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

// exampleLimiter returns a client for a server with the library. The server's clock is stopped.
var exampleLimiter = limitertest.Example

func ExampleNew() {
	limiter, stop := exampleLimiter()
	defer stop()
	limit, err := grpclimit.New(limiter, "api", "2/m", grpclimit.Peer())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := limit.Check(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	c, stopService := grpctest.Example(grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream)))
	defer stopService()
	for range 3 {
		_, err := c.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// rpc error: code = ResourceExhausted desc = api: over its limit; try again in 30s
}
