package grpclimit_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/functions"
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

// Health checks belong to a class that leaves half of the limit to other calls. A call without a class belongs
// to the policy's class "default".
func ExampleWithRequest_class() {
	limiter, stop := exampleLimiter(functions.Policy{
		Name: "api", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: map[string]int{"default": 0, "batch": 50},
	})
	defer stop()
	classOf := func(method string) string {
		if method == healthpb.Health_Check_FullMethodName {
			return "batch"
		}
		return ""
	}
	limit, err := grpclimit.New(limiter, "api", "@api", grpclimit.Peer(),
		grpclimit.WithRequest(func(_ context.Context, method string, req *client.Request) error {
			req.Class = classOf(method)
			return nil
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, stopService := grpctest.Example(grpc.NewServer(grpc.UnaryInterceptor(limit.Unary)))
	defer stopService()
	for range 3 {
		_, err := c.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(err)
	}
	_, err = c.List(context.Background(), &healthpb.HealthListRequest{})
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// rpc error: code = ResourceExhausted desc = api: over its limit; try again in 15s
	// <nil>
}
