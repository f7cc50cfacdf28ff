package grpclimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func withFallback(f client.Fallback) grpclimit.Option {
	return grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error { req.Fallback = f; return nil })
}

// endedContexts returns contexts of calls from 192.0.2.1 by status code: a canceled context, and a
// context whose deadline is about to pass.
func endedContexts(t *testing.T) map[codes.Code]context.Context {
	ctx := from(t, "192.0.2.1:1234")
	return map[codes.Code]context.Context{codes.Canceled: limitertest.Cancelled(ctx), codes.DeadlineExceeded: limitertest.AboutToExpire{Context: ctx}}
}

// callContext is a context key. Its value in the context of a call to the limiter is the gRPC
// call's context.
type callContext struct{}

// callers holds the state of a test in which callers give up before the decision.
type callers struct {
	peeking  *client.Client
	deciding chan bool
	handled  atomic.Int64 // calls that reached the handler
	serving  atomic.Int64 // calls in progress
}

// outer is a stream with a different context.
type outer struct {
	grpc.ServerStream
	ctx context.Context
}

func (o outer) Context() context.Context { return o.ctx }

// startCallers starts a server that allows three calls. The server decides on each call only after
// its caller has given up.
func startCallers(t *testing.T, fallback client.Fallback) (*callers, testpb.TestServiceClient) {
	c := &callers{deciding: make(chan bool, 1000)}
	peeking, server := grpctest.NewLimiter(t)
	c.peeking = peeking
	limiter := limitertest.Hooked(t, server, limitertest.Before("ratelimit_take", func(ctx context.Context) {
		c.deciding <- true
		call, ok := ctx.Value(callContext{}).(context.Context)
		if !ok {
			t.Error("the call to the limiter lacks the values of the context")
			return
		}
		<-call.Done()
	}))
	s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "3/h", grpclimit.Peer(), withFallback(fallback),
		grpclimit.WithOnError(func(_ context.Context, _ string, err error) { t.Error(err) })))
	unary := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c.serving.Add(1)
		defer c.serving.Add(-1)
		return handler(context.WithValue(ctx, callContext{}, ctx), req)
	}
	stream := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c.serving.Add(1)
		defer c.serving.Add(-1)
		return handler(srv, outer{ss, context.WithValue(ss.Context(), callContext{}, ss.Context())})
	}
	countUnary := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		c.handled.Add(1)
		return &testpb.Empty{}, nil
	}
	countStream := func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
		c.handled.Add(1)
		return nil
	}
	return c, grpctest.Start(t, &grpctest.Service{}, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary, s.Unary, countUnary), grpc.ChainStreamInterceptor(stream, s.Stream, countStream),
	})
}

// wait waits until no call is in progress.
func (c *callers) wait(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, "no call is being served", func() bool { return c.serving.Load() == 0 })
}

// A caller that cancels, or has a short deadline, is charged like any other, and cannot avoid the
// limit.
func TestCallersThatGiveUp(t *testing.T) {
	const limit, calls = 3, 12
	openStream := func(ctx context.Context, to testpb.TestServiceClient) error {
		stream, err := to.FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		return grpctest.Exchange(stream)
	}
	for kind, call := range map[string]func(context.Context, testpb.TestServiceClient) error{"unary": grpctest.Call, "stream": openStream} {
		for fallbackName, fallback := range limitertest.Fallbacks {
			t.Run(kind+" "+fallbackName, func(t *testing.T) {
				c, to := startCallers(t, fallback)
				for range calls {
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error)
					go func() { ended <- call(ctx, to) }()
					<-c.deciding
					cancel()
					<-ended
					c.wait(t)
				}
				for deadline, reached := time.Millisecond, 0; reached < calls; {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					_ = call(ctx, to)
					cancel()
					select {
					case <-c.deciding:
						reached++
					default: // the deadline was too short for the call to reach the limiter
						deadline *= 2
					}
				}
				c.wait(t)
				left := must[client.Result](t)(c.peeking.Peek(t.Context(), client.For("api|peer=bufconn", "3/h", 0))).Remaining
				if c.handled.Load() != limit || left != 0 {
					t.Errorf("the handler ran %d times, and %d units are left; want %d times, and none", c.handled.Load(), left, limit)
				}
			})
		}
	}
}

// received is a stream whose messages have all arrived.
type received struct {
	grpc.ServerStream
	ctx context.Context
}

func (r received) Context() context.Context { return r.ctx }
func (r received) RecvMsg(any) error        { return nil }

// If a context is done before the decision, its calls and messages are allowed or denied as usual.
func TestEndedContexts(t *testing.T) {
	for code, ctx := range endedContexts(t) {
		for fallbackName, fallback := range limitertest.Fallbacks {
			t.Run(code.String()+" "+fallbackName, func(t *testing.T) {
				limiter, _ := grpctest.NewLimiter(t)
				s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "3/h", grpclimit.Peer(), grpclimit.WithPerMessage(), withFallback(fallback)))
				handled := 0
				for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
					_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { handled++; return nil, nil })
					if status.Code(err) != want {
						t.Errorf("a call ended with %v, want %v", err, want)
					}
					err = s.Stream(nil, received{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, stream grpc.ServerStream) error {
						handled++
						for range 2 { // the first message was charged when the stream was opened
							if err := stream.RecvMsg(nil); err != nil {
								t.Errorf("a message within the limit: %v", err)
							}
						}
						return stream.RecvMsg(nil)
					})
					if status.Code(err) != codes.ResourceExhausted {
						t.Errorf("a stream ended with %v, want %v", err, codes.ResourceExhausted)
					}
				}
				if handled != 2 {
					t.Errorf("the handlers ran %d times, want 2", handled)
				}
			})
		}
	}
}

// If there is no decision and the call's context is done, the handler does not run. WithOnError
// receives errors from the server and from the Key, but not the error of the call's context.
func TestEndedContextsWithoutDecision(t *testing.T) {
	noDatabase := errors.New("no database")
	nothing := grpclimit.WithSkip(func(context.Context, string) bool { return false })
	for ended, ctx := range endedContexts(t) {
		for _, tt := range []struct {
			name  string
			key   error // error from the Key
			opt   grpclimit.Option
			heard bool
			code  codes.Code
			after time.Duration
		}{
			{"outage", nil, withFallback(client.ReturnError), true, ended, -1},
			{"outage and FailOpen", nil, withFallback(client.FailOpen), true, ended, -1},
			{"outage and FailClosed", nil, withFallback(client.FailClosed), true, codes.Unavailable, time.Second},
			{"outage and WithRefuseOnError", nil, grpclimit.WithRefuseOnError(time.Minute), true, codes.Unavailable, time.Minute},
			{"the key fails", noDatabase, nothing, true, ended, -1},
			{"the key fails and WithRefuseOnError", noDatabase, grpclimit.WithRefuseOnError(time.Minute), true, codes.Unavailable, time.Minute},
			{"the key ends", context.Canceled, nothing, ended != codes.Canceled, ended, -1},
		} {
			t.Run(ended.String()+" "+tt.name, func(t *testing.T) {
				limiter, server := grpctest.NewLimiter(t)
				_ = server.Close()
				var heard []error
				key := grpclimit.Func("tenant", func(context.Context, string) (string, error) { return "acme", tt.key })
				s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "1/h", key, tt.opt,
					grpclimit.WithOnError(func(_ context.Context, _ string, err error) { heard = append(heard, err) })))
				_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
					t.Error("the handler ran")
					return nil, nil
				})
				grpctest.CheckStatus(t, err, tt.code, tt.after)
				want := tt.key
				if want == nil {
					want = client.ErrUnavailable
				}
				if (len(heard) == 1) != tt.heard || len(heard) > 1 || len(heard) == 1 && !errors.Is(heard[0], want) {
					t.Errorf("WithOnError heard %v, want %v: %t", heard, want, tt.heard)
				}
			})
		}
	}
}
