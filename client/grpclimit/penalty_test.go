package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// A denied call is blocked, for longer from time to time, and told the end of the block.
func TestPenalty(t *testing.T) {
	limiter, server := grpctest.NewLimiter(t)
	limit := redistest.Must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "5/m", grpclimit.Peer(), grpclimit.WithPenalty(time.Minute, 2*time.Minute, time.Hour)))
	call := func() error {
		_, err := limit.Unary(from(t, "192.0.2.1:1234"), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 2 * time.Minute} {
		for range 5 {
			if err := call(); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			s := status.Convert(call())
			if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
				t.Fatalf("%v, want ResourceExhausted and a RetryInfo", s.Err())
			}
			if got := s.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration(); got > want || got < want-30*time.Second { // the wait counts down
				t.Errorf("retry after %v, want %v", got, want)
			}
		}
		server.Advance(want)
	}
	if _, err := grpclimit.New(closed{}, "api", "5/m", grpclimit.Peer(), grpclimit.WithPenalty(time.Minute, time.Hour, time.Hour)); err == nil {
		t.Error("a limiter that cannot penalize was taken")
	}
}
