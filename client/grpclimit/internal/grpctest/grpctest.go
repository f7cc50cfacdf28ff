// Package grpctest has code shared by the tests of grpclimit and grpccall: a limiter, a service, and calls of it.
package grpctest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// NewLimiter returns a client for a new server. The server's clock is stopped.
func NewLimiter(t testing.TB, opts ...client.Option) (*client.Client, *embedded.Server) {
	t.Helper()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(limitertest.Noon))
	return limitertest.Open(t, server, opts...), server
}

// Service is the server side. Its calls do nothing, unless Fail returns an error for them.
type Service struct {
	testpb.UnimplementedTestServiceServer
	Fail func() error
	Got  int // messages that the stream handler received
}

func (s *Service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	if s.Fail != nil {
		return nil, s.Fail()
	}
	return &testpb.Empty{}, nil
}

func (s *Service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		_, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case s.Fail != nil:
			return s.Fail()
		}
		s.Got++
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// Start serves s, and connects to it.
func Start(t testing.TB, s *Service, server []grpc.ServerOption, dial ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	grpcServer := grpc.NewServer(server...)
	testpb.RegisterTestServiceServer(grpcServer, s)
	ended := make(chan error, 1)
	go func() { ended <- grpcServer.Serve(listener) }()
	conn := limitertest.Must[*grpc.ClientConn](t)(connect(listener, dial))
	t.Cleanup(func() {
		_ = conn.Close()
		grpcServer.Stop()
		limitertest.Check(t, <-ended)
	})
	return testpb.NewTestServiceClient(conn)
}

// connect connects to the server behind listener.
func connect(listener *bufconn.Listener, opts []grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///shop", append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
}

// Call makes a call of EmptyCall.
func Call(ctx context.Context, c testpb.TestServiceClient) error {
	_, err := c.EmptyCall(ctx, &testpb.Empty{})
	return err
}

// Exchange sends a message on a stream, and waits for the reply.
func Exchange(stream testpb.TestService_FullDuplexCallClient) error {
	if err := stream.Send(&testpb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := stream.Recv()
	return err
}

// Exchanges sends n messages on a stream, one after another, and waits for each reply.
func Exchanges(t testing.TB, stream testpb.TestService_FullDuplexCallClient, n int) {
	t.Helper()
	for range n {
		if err := Exchange(stream); err != nil {
			t.Fatal(err)
		}
	}
}

// Finish ends a stream, and checks that it ends without an error.
func Finish(t testing.TB, stream testpb.TestService_FullDuplexCallClient) {
	t.Helper()
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// CheckStatus checks the code and the RetryInfo of an error. If after is -1, err must have no
// RetryInfo.
func CheckStatus(t testing.TB, err error, code codes.Code, after time.Duration) {
	t.Helper()
	got := time.Duration(-1)
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			got = info.RetryDelay.AsDuration()
		}
	}
	if status.Code(err) != code || got != after {
		t.Errorf("%v, to be tried again in %v; want %v in %v", err, got, code, after)
	}
}

// Example serves the health service as an example, and returns a client for it.
func Example(server *grpc.Server, opts ...grpc.DialOption) (c healthpb.HealthClient, stop func()) {
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener := bufconn.Listen(64 << 10)
	go func() { _ = server.Serve(listener) }()
	conn, err := connect(listener, opts)
	if err != nil {
		panic(err)
	}
	return healthpb.NewHealthClient(conn), func() {
		_ = conn.Close()
		server.Stop()
	}
}
