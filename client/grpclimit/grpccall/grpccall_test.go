package grpccall_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/grpccall"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/grpctest"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

const key = "partner|passthrough:///shop"

func newClient(t testing.TB, limiter *client.Client, limit client.Limit, opts ...grpccall.Option) []grpc.DialOption {
	t.Helper()
	fail := grpccall.WithOnError(func(_ context.Context, _ string, err error) { t.Error(err) })
	c := must[*grpccall.Interceptor](t)(grpccall.New(limiter, "partner", limit, append([]grpccall.Option{fail}, opts...)...))
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
}

// stay returns a function that returns an error with a RetryInfo of d.
func stay(t testing.TB, code codes.Code, d time.Duration) func() error {
	return func() error {
		st := must[*status.Status](t)(status.New(code, "stay away").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)}))
		return st.Err()
	}
}

// checkLimited checks that err is an ErrLimited for a call that was not made, with the given
// RetryAfter and Err.
func checkLimited(t testing.TB, err error, after time.Duration, cause error) {
	t.Helper()
	var limited *client.Error
	if !limitertest.AsLimited(err, &limited) {
		t.Fatalf("error %v, want an ErrLimited", err)
	}
	if limited.Keys[0] != key || limited.RetryAfter != after || !errors.Is(limited.Err, cause) {
		t.Errorf("%+v, want %q to be tried again in %v, with %v", limited, key, after, cause)
	}
	grpctest.CheckStatus(t, err, codes.ResourceExhausted, after)
}

func TestOverTheLimit(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	s := &grpctest.Service{}
	c := grpctest.Start(t, s, nil, newClient(t, limiter, "2/h", grpccall.WithLongestWait(0))...)
	for range 2 {
		grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.OK, -1)
	}
	checkLimited(t, grpctest.Call(t.Context(), c), 30*time.Minute, nil)
	_, err := c.FullDuplexCall(t.Context())
	checkLimited(t, err, 30*time.Minute, nil)
}

func TestDeadline(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "1/h", grpccall.WithLongestWait(2*time.Hour))...)
	grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.OK, -1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	checkLimited(t, grpctest.Call(ctx, c), time.Hour, context.DeadlineExceeded)
}

func TestNever(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "1/h", grpccall.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
		req.Costs = []int64{2}
		return nil
	}))...)
	checkLimited(t, grpctest.Call(t.Context(), c), client.Never, nil)
}

func TestWaits(t *testing.T) {
	for _, limit := range []client.Limit{"10/s burst=1", "leaky_bucket 10/s burst=2"} {
		limiter := limitertest.Open(t, embedded.Run(t, embedded.WithLibrary(functions.Source()))) // newLimiter would stop the server's clock
		c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, limit)...)
		began := time.Now()
		for range 2 {
			grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.OK, -1)
		}
		if took := time.Since(began); took < 90*time.Millisecond {
			t.Errorf("under %q two calls took %v", limit, took)
		}
	}
}

func TestGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	limiter, _ := grpctest.NewLimiter(t, client.WithObserver(client.Observer{Call: func(_ context.Context, o client.Observation) {
		if o.Outcome == "denied" {
			cancel() // the call is about to wait
		}
	}}))
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "1/h", grpccall.WithLongestWait(2*time.Hour))...)
	grpctest.CheckStatus(t, grpctest.Call(ctx, c), codes.OK, -1)
	grpctest.CheckStatus(t, grpctest.Call(ctx, c), codes.Canceled, -1)
}

// A call that ends after its deadline has the status DeadlineExceeded, even if the timer of its context has not
// fired yet.
func TestAboutToExpire(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "100/d")...)
	grpctest.CheckStatus(t, grpctest.Call(limitertest.AboutToExpire{Context: t.Context()}, c), codes.DeadlineExceeded, -1)
}

func TestHeeds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		code  codes.Code
		delay time.Duration
		opts  []grpccall.Option
		want  time.Duration
	}{
		{"exhausted", codes.ResourceExhausted, 20 * time.Second, nil, 20 * time.Second},
		{"unavailable", codes.Unavailable, 20 * time.Second, nil, 20 * time.Second},
		{"another code", codes.Internal, 20 * time.Second, nil, 0},
		{"at most ten minutes", codes.ResourceExhausted, 24 * time.Hour, nil, 10 * time.Minute},
		{"at most", codes.ResourceExhausted, 20 * time.Second, []grpccall.Option{grpccall.WithLongestBlock(5 * time.Second)}, 5 * time.Second},
		{"nothing blocks", codes.ResourceExhausted, 20 * time.Second, []grpccall.Option{grpccall.WithLongestBlock(0)}, 0},
		{"below 0", codes.ResourceExhausted, -time.Second, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, _ := grpctest.NewLimiter(t)
			s := &grpctest.Service{Fail: stay(t, tt.code, tt.delay)}
			c := grpctest.Start(t, s, nil, newClient(t, limiter, "100/d", append(tt.opts, grpccall.WithLongestWait(0))...)...)
			grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), tt.code, tt.delay)
			limitertest.WantBlocked(t, limiter, key, tt.want)
			_ = must[int64](t)(limiter.Reset(t.Context(), key))
			stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
			grpctest.CheckStatus(t, grpctest.Exchange(stream), tt.code, tt.delay)
			limitertest.WantBlocked(t, limiter, key, tt.want)
		})
	}
}

// An outer Interceptor does not treat an ErrLimited from an inner one as a reply from the server.
func TestNested(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	outer := newClient(t, limiter, "100/d", grpccall.WithKey(func(context.Context, string, string) (string, error) { return "outer", nil }))
	inner := newClient(t, limiter, "1/h", grpccall.WithLongestWait(0))
	c := grpctest.Start(t, &grpctest.Service{}, nil, append(outer, inner...)...)
	grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.OK, -1)
	checkLimited(t, grpctest.Call(t.Context(), c), time.Hour, nil)
	limitertest.WantBlocked(t, limiter, "partner|outer", 0)
	limitertest.WantUsed(t, limiter, "partner|outer", 2)
}

func TestPerMessage(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	s := &grpctest.Service{}
	c := grpctest.Start(t, s, nil, newClient(t, limiter, "2/h", grpccall.WithPerMessage(), grpccall.WithLongestWait(0),
		grpccall.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
			req.OnceKey, req.OnceTTL = "once", time.Minute
			return nil
		}))...)
	stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
	grpctest.Exchanges(t, stream, 2)
	checkLimited(t, stream.Send(&testpb.StreamingOutputCallRequest{}), 30*time.Minute, nil)
	grpctest.Finish(t, stream)
	if s.Got != 2 {
		t.Errorf("%d messages arrived, want 2", s.Got)
	}
}

// As without an Interceptor, io.EOF tells a sender that the server has ended the stream.
func TestPerMessageAfterTheEnd(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	s := &grpctest.Service{Fail: func() error { return status.Error(codes.DataLoss, "gone") }}
	c := grpctest.Start(t, s, nil, newClient(t, limiter, "100/d", grpccall.WithPerMessage())...)
	ctx, cancel := context.WithCancel(t.Context())
	stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(ctx))
	grpctest.CheckStatus(t, grpctest.Exchange(stream), codes.DataLoss, -1)
	if err := stream.Send(&testpb.StreamingOutputCallRequest{}); err != io.EOF {
		t.Errorf("error %v, want %v", err, io.EOF)
	}
	limitertest.WantUsed(t, limiter, key, 1)
	cancel()
	grpctest.CheckStatus(t, stream.Send(&testpb.StreamingOutputCallRequest{}), codes.Canceled, -1)
}

func TestStreamCountsOnce(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "100/d")...)
	stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
	grpctest.Exchanges(t, stream, 3)
	grpctest.Finish(t, stream)
	limitertest.WantUsed(t, limiter, key, 1)
}

func TestWithoutDecision(t *testing.T) {
	limiter, server := grpctest.NewLimiter(t)
	_ = server.Close()
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "100/d")...)
	if err := grpctest.Call(t.Context(), c); !errors.Is(err, client.ErrUnavailable) || status.Code(err) != codes.Unavailable {
		t.Errorf("error %v, want UNAVAILABLE with the error of the client", err)
	}
}

// If the reply to the limiter is lost and the fallback denies, the call is not made, and is charged
// at most once. Its status is UNAVAILABLE without a RetryInfo, because a repeated call is charged
// again.
func TestLosesAReply(t *testing.T) {
	var lose atomic.Int64
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	limiter := limitertest.Hooked(t, server, limitertest.Losing("ratelimit_take", &lose), client.WithFallback(client.FailClosed))
	lose.Store(2)
	c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "100/d")...)
	err := grpctest.Call(t.Context(), c)
	grpctest.CheckStatus(t, err, codes.Unavailable, -1)
	if !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Error(err)
	}
	limitertest.WantUsed(t, limiter, key, 1)
}

func TestWithKey(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	for want, key := range map[string]func(context.Context, string, string) (string, error){
		"":                             func(_ context.Context, target, method string) (string, error) { return target + method, nil },
		"the key of the call is empty": func(context.Context, string, string) (string, error) { return "", nil },
		"no account":                   func(context.Context, string, string) (string, error) { return "", errors.New("no account") },
	} {
		c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "100/d", grpccall.WithKey(key))...)
		err := grpctest.Call(t.Context(), c)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "ratelimit: grpccall: "+want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	limitertest.WantUsed(t, limiter, key+"/grpc.testing.TestService/EmptyCall", 1)
}

func TestWithRequest(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	for want, change := range map[string]func(*client.Request) error{
		"":            func(req *client.Request) error { req.Keys = nil; return nil },
		"leave UpTo":  func(req *client.Request) error { req.UpTo, req.Costs = true, []int64{2}; return nil },
		"not on hand": func(*client.Request) error { return errors.New("not on hand") },
	} {
		c := grpctest.Start(t, &grpctest.Service{}, nil, newClient(t, limiter, "100/d", grpccall.WithRequest(func(_ context.Context, _ string, req *client.Request) error { return change(req) }))...)
		err := grpctest.Call(t.Context(), c)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	limitertest.WantUsed(t, limiter, key, 0)
}

func TestNewRefuses(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	if _, err := grpccall.New(nil, "partner", "1/m"); err == nil || !strings.Contains(err.Error(), "the limiter is nil") {
		t.Errorf("error %v", err)
	}
	twice := func(opt grpccall.Option) grpccall.Option {
		return func(c *grpccall.Interceptor) error { return cmp.Or(opt(c), opt(c)) }
	}
	for want, opt := range map[string]grpccall.Option{
		"an option is nil":       nil,
		"WithKey(nil)":           grpccall.WithKey(nil),
		"WithRequest(nil)":       grpccall.WithRequest(nil),
		"WithLongestWait(-1ns)":  grpccall.WithLongestWait(-1),
		"WithLongestBlock(-1ns)": grpccall.WithLongestBlock(-1),
		"WithOnError(nil)":       grpccall.WithOnError(nil),

		`WithLongestWait is given twice, as "1s" and as "1s"; give it once`:  twice(grpccall.WithLongestWait(time.Second)),
		`WithLongestBlock is given twice, as "1s" and as "1s"; give it once`: twice(grpccall.WithLongestBlock(time.Second)),
		"WithKey is given twice; give it once":                               twice(grpccall.WithKey(func(context.Context, string, string) (string, error) { return "", nil })),
		"WithRequest is given twice; give it once":                           twice(grpccall.WithRequest(func(context.Context, string, *client.Request) error { return nil })),
		"WithPerMessage is given twice; give it once":                        twice(grpccall.WithPerMessage()),
		"WithOnError is given twice; give it once":                           twice(grpccall.WithOnError(func(context.Context, string, error) {})),
	} {
		if _, err := grpccall.New(limiter, "partner", "1/m", opt); err == nil || !strings.HasPrefix(err.Error(), "ratelimit: grpccall.New: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// Check returns an error for a wrong limit, and calls with a wrong limit end with INTERNAL.
func TestMisconfigured(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	for _, tt := range []struct {
		limit client.Limit
		want  error
		code  codes.Code
	}{
		{"100/m", nil, codes.OK}, {"3/min", limitertest.Code("BADLIMIT"), codes.Internal}, {"@fre", limitertest.Code("NOPOLICY"), codes.Internal},
	} {
		outgoing := must[*grpccall.Interceptor](t)(grpccall.New(limiter, "partner", tt.limit))
		if err := outgoing.Check(t.Context()); !limitertest.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.limit, err, tt.want)
		}
		grpctest.CheckStatus(t, grpctest.Call(t.Context(), grpctest.Start(t, &grpctest.Service{}, nil, grpc.WithUnaryInterceptor(outgoing.Unary))), tt.code, -1)
	}
}
