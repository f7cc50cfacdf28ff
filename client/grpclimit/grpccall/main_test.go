package grpccall_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = limitertest.Noon

func must[T any](t testing.TB) func(T, error) T { return limitertest.Must[T](t) }

// newLimiter returns a client for a new server. The server's clock is stopped.
func newLimiter(t testing.TB, opts ...client.Option) (*client.Client, *embedded.Server) {
	t.Helper()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	return limitertest.Open(t, server, opts...), server
}

// service is the server side. Its calls do nothing, unless fail returns an error for them.
type service struct {
	testpb.UnimplementedTestServiceServer
	fail func() error
	got  int // messages that the stream handler received
}

func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	if s.fail != nil {
		return nil, s.fail()
	}
	return &testpb.Empty{}, nil
}

func (s *service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		_, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case s.fail != nil:
			return s.fail()
		}
		s.got++
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// start serves s, and connects to it.
func start(t testing.TB, s *service, server []grpc.ServerOption, dial ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	grpcServer := grpc.NewServer(server...)
	testpb.RegisterTestServiceServer(grpcServer, s)
	ended := make(chan error, 1)
	go func() { ended <- grpcServer.Serve(listener) }()
	conn := must[*grpc.ClientConn](t)(grpc.NewClient("passthrough:///shop", append(dial,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...))
	t.Cleanup(func() {
		_ = conn.Close()
		grpcServer.Stop()
		limitertest.Check(t, <-ended)
	})
	return testpb.NewTestServiceClient(conn)
}

func call(ctx context.Context, c testpb.TestServiceClient) error {
	_, err := c.EmptyCall(ctx, &testpb.Empty{})
	return err
}

// exchange sends a message on a stream, and waits for the reply.
func exchange(stream testpb.TestService_FullDuplexCallClient) error {
	if err := stream.Send(&testpb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := stream.Recv()
	return err
}

// exchanges sends n messages on a stream, one after another, and waits for each reply.
func exchanges(t testing.TB, stream testpb.TestService_FullDuplexCallClient, n int) {
	t.Helper()
	for range n {
		if err := exchange(stream); err != nil {
			t.Fatal(err)
		}
	}
}

// finish ends a stream, and checks that it ends without an error.
func finish(t testing.TB, stream testpb.TestService_FullDuplexCallClient) {
	t.Helper()
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// checkStatus checks the code and the RetryInfo of an error. If after is -1, err must have no
// RetryInfo.
func checkStatus(t testing.TB, err error, code codes.Code, after time.Duration) {
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
