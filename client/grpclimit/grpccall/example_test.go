package grpccall_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/grpccall"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

// exampleLimiter returns a client for a server with the library. The server's clock is stopped.
var exampleLimiter = limitertest.Example

// exampleService serves the health service as an example, and returns a client for it.
func exampleService(server *grpc.Server, opts ...grpc.DialOption) (c healthpb.HealthClient, stop func()) {
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener := bufconn.Listen(64 << 10)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///shop", append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		panic(err)
	}
	return healthpb.NewHealthClient(conn), func() {
		_ = conn.Close()
		server.Stop()
	}
}

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
	c, stopService := exampleService(grpc.NewServer(), grpc.WithUnaryInterceptor(limit.Unary), grpc.WithStreamInterceptor(limit.Stream))
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
