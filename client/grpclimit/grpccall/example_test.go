package grpccall_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/grpccall"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

// exampleLimiter returns a client for a server with the library. The server's clock is stopped.
var exampleLimiter = limitertest.Example

func ExampleNew() {
	limiter, stop := exampleLimiter()
	defer stop()
	// Without WithLongestWait a call waits for its turn, for up to a minute.
	limit, err := grpccall.New(limiter, "partner", "2/m", grpccall.WithLongestWait(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := limit.Check(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	c, stopService := grpctest.Example(grpc.NewServer(), grpc.WithUnaryInterceptor(limit.Unary), grpc.WithStreamInterceptor(limit.Stream))
	defer stopService()
	for range 3 {
		_, err := c.Check(context.Background(), &healthpb.HealthCheckRequest{})
		if limited, ok := errors.AsType[*client.Error](err); ok {
			fmt.Println("not made, try again in", limited.RetryAfter)
			continue
		}
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// not made, try again in 30s
}
