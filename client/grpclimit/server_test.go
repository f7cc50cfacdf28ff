package grpclimit_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
)

func newServer(t testing.TB, limiter *client.Client, limit client.Limit, opts ...grpclimit.Option) []grpc.ServerOption {
	t.Helper()
	s := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", limit, grpclimit.Peer(), opts...))
	return []grpc.ServerOption{grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream)}
}

func TestServerUnary(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, newServer(t, limiter, "2/m"))
	for range 2 {
		grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.OK, -1)
	}
	err := grpctest.Call(t.Context(), c)
	grpctest.CheckStatus(t, err, codes.ResourceExhausted, 30*time.Second)
	if got := status.Convert(err).Message(); got != "api: over its limit; try again in 30s" {
		t.Errorf("%q", got)
	}
}

func TestServerNeverAllowed(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, newServer(t, limiter, "2/m", grpclimit.WithRequest(func(_ context.Context, method string, req *client.Request) error {
		req.Costs = []int64{3}
		return nil
	})))
	grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.ResourceExhausted, -1)
}

func TestServerStream(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []grpclimit.Option
		used int64 // units used by a stream of three messages
	}{
		{"on opening", nil, 1},
		{"per message", []grpclimit.Option{grpclimit.WithPerMessage()}, 3},
		{"left out", []grpclimit.Option{grpclimit.WithPerMessage(), grpclimit.WithSkip(func(_ context.Context, method string) bool {
			return method == "/grpc.testing.TestService/FullDuplexCall"
		})}, 0},
		{"left out by the request", []grpclimit.Option{grpclimit.WithPerMessage(), grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
			req.Keys = nil
			return nil
		})}, 0},
		{"once", []grpclimit.Option{grpclimit.WithPerMessage(), grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
			req.OnceKey, req.OnceTTL = "once", time.Minute
			return nil
		})}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, _ := grpctest.NewLimiter(t)
			c := grpctest.Start(t, &grpctest.Service{}, newServer(t, limiter, "100/d", tt.opts...))
			stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
			grpctest.Exchanges(t, stream, 3)
			grpctest.Finish(t, stream)
			limitertest.WantUsed(t, limiter, "api|peer=bufconn", tt.used)
		})
	}
}

func TestServerStreamOverItsLimit(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	s := &grpctest.Service{}
	c := grpctest.Start(t, s, newServer(t, limiter, "2/m", grpclimit.WithPerMessage()))
	stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
	grpctest.Exchanges(t, stream, 2)
	grpctest.CheckStatus(t, grpctest.Exchange(stream), codes.ResourceExhausted, 30*time.Second)
	if s.Got != 2 {
		t.Errorf("the handler got %d messages, want 2", s.Got)
	}
	stream = must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
	grpctest.CheckStatus(t, grpctest.Exchange(stream), codes.ResourceExhausted, 30*time.Second)
	if s.Got != 2 {
		t.Errorf("the handler of a stream that was refused got %d messages", s.Got-2)
	}
}

func TestServerWithoutDecision(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limit    client.Limit
		fallback client.Fallback
		opts     []grpclimit.Option
		code     codes.Code
		after    time.Duration
	}{
		{"let through", "nonsense", client.ReturnError, nil, codes.OK, -1},
		{"refused", "nonsense", client.ReturnError, []grpclimit.Option{grpclimit.WithRefuseOnError(1500 * time.Millisecond)}, codes.Unavailable, 1500 * time.Millisecond},
		{"FailOpen", "1/m", client.FailOpen, []grpclimit.Option{grpclimit.WithRefuseOnError(time.Second)}, codes.OK, -1},
		{"FailClosed", "1/m", client.FailClosed, nil, codes.Unavailable, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, server := grpctest.NewLimiter(t)
			address := server.Addr()
			if tt.limit != "nonsense" {
				address = "127.0.0.1:1" // nothing listens here
			}
			limiter := must[*client.Client](t)(client.Open("redis://"+address, client.WithFallback(tt.fallback)))
			defer func() { _ = limiter.Close() }()
			var heard []error
			opts := append(tt.opts, grpclimit.WithOnError(func(_ context.Context, method string, err error) {
				if method != "/grpc.testing.TestService/EmptyCall" {
					t.Errorf("the method is %q", method)
				}
				heard = append(heard, err)
			}))
			grpctest.CheckStatus(t, grpctest.Call(t.Context(), grpctest.Start(t, &grpctest.Service{}, newServer(t, limiter, tt.limit, opts...))), tt.code, tt.after)
			if len(heard) != 1 || limitertest.CodeOf(heard[0]) != "BADLIMIT" && !errors.Is(heard[0], client.ErrUnavailable) {
				t.Errorf("WithOnError heard %v, want one error of the client", heard)
			}
		})
	}
}

// Check returns an error for a wrong limit. Calls with a wrong limit end with INTERNAL under
// WithRefuseMisconfigured.
func TestMisconfigured(t *testing.T) {
	limiter, redis := grpctest.NewLimiter(t)
	for _, tt := range []struct {
		limit client.Limit
		want  error
		code  codes.Code
	}{
		{"100/m", nil, codes.OK}, {"3/min", limitertest.Code("BADLIMIT"), codes.Internal}, {"@fre", limitertest.Code("NOPOLICY"), codes.Internal},
	} {
		server := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", tt.limit, grpclimit.Peer(), grpclimit.WithRefuseMisconfigured()))
		if err := server.Check(t.Context()); !limitertest.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.limit, err, tt.want)
		}
		grpctest.CheckStatus(t, grpctest.Call(t.Context(), grpctest.Start(t, &grpctest.Service{}, []grpc.ServerOption{grpc.UnaryInterceptor(server.Unary)})), tt.code, -1)
	}
	_ = redis.Close()
	server := must[*grpclimit.Interceptor](t)(grpclimit.New(limiter, "api", "3/min", grpclimit.Peer(), grpclimit.WithRefuseMisconfigured()))
	grpctest.CheckStatus(t, grpctest.Call(t.Context(), grpctest.Start(t, &grpctest.Service{}, []grpc.ServerOption{grpc.UnaryInterceptor(server.Unary)})), codes.OK, -1)
}

func TestServerLogsWithoutWithOnError(t *testing.T) {
	var text strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(old)
	limiter, _ := grpctest.NewLimiter(t)
	c := grpctest.Start(t, &grpctest.Service{}, newServer(t, limiter, "nonsense"))
	grpctest.CheckStatus(t, grpctest.Call(t.Context(), c), codes.OK, -1)
	if got := text.String(); !strings.Contains(got, "a rate limit is misconfigured") || !strings.Contains(got, "method=/grpc.testing.TestService/EmptyCall") || !strings.Contains(got, "nonsense") {
		t.Errorf("logged %q", got)
	}
}

func TestNewRefuses(t *testing.T) {
	limiter, _ := grpctest.NewLimiter(t)
	peer := grpclimit.Peer()
	request := grpclimit.WithRequest(func(context.Context, string, *client.Request) error { return nil })
	onError := grpclimit.WithOnError(func(context.Context, string, error) {})
	penalty := grpclimit.WithPenalty(time.Second, time.Minute, time.Hour)
	for want, make := range map[string]func() (*grpclimit.Interceptor, error){
		"the limiter is nil": func() (*grpclimit.Interceptor, error) { return grpclimit.New(nil, "api", "1/m", peer) },
		"the limiter is a nil *client.Client;": func() (*grpclimit.Interceptor, error) {
			return grpclimit.New((*client.Client)(nil), "api", "1/m", peer)
		},
		"WithRequest is given twice; give it once":                              refusedServer(limiter, peer, request, request),
		"WithOnError is given twice; give it once":                              refusedServer(limiter, peer, onError, onError),
		"WithPerMessage is given twice; give it once":                           refusedServer(limiter, peer, grpclimit.WithPerMessage(), grpclimit.WithPerMessage()),
		"WithRefuseMisconfigured is given twice; give it":                       refusedServer(limiter, peer, grpclimit.WithRefuseMisconfigured(), grpclimit.WithRefuseMisconfigured()),
		`WithRefuseOnError is given twice, as "1s" and as "1m0s"; give it once`: refusedServer(limiter, peer, grpclimit.WithRefuseOnError(time.Second), grpclimit.WithRefuseOnError(time.Minute)),
		`WithPenalty is given twice, as "1s 1m0s 1h0m0s" and as`:                refusedServer(limiter, peer, penalty, penalty),
		"the name is empty":     func() (*grpclimit.Interceptor, error) { return grpclimit.New(limiter, "", "1/m", peer) },
		"the limit is empty":    func() (*grpclimit.Interceptor, error) { return grpclimit.New(limiter, "api", "", peer) },
		"is the zero Key":       func() (*grpclimit.Interceptor, error) { return grpclimit.New(limiter, "api", "1/m", grpclimit.Key{}) },
		"an option is nil":      func() (*grpclimit.Interceptor, error) { return grpclimit.New(limiter, "api", "1/m", peer, nil) },
		"WithSkip(nil)":         refusedServer(limiter, peer, grpclimit.WithSkip(nil)),
		"WithRequest(nil)":      refusedServer(limiter, peer, grpclimit.WithRequest(nil)),
		"WithRefuseOnError(0s)": refusedServer(limiter, peer, grpclimit.WithRefuseOnError(0)),
		"WithOnError(nil)":      refusedServer(limiter, peer, grpclimit.WithOnError(nil)),
		"PeerNetwork(0)":        refusedServer(limiter, grpclimit.PeerNetwork(0)),
		"PeerNetwork(129)":      refusedServer(limiter, grpclimit.PeerNetwork(129)),
		"Metadata without":      refusedServer(limiter, grpclimit.Metadata("")),
		"Func without":          refusedServer(limiter, grpclimit.Func("a", nil)),
		"Join without keys":     refusedServer(limiter, grpclimit.Join()),
		"FirstOf without keys":  refusedServer(limiter, grpclimit.FirstOf()),
		"key 2 of Join":         refusedServer(limiter, grpclimit.Join(peer, grpclimit.Key{})),
	} {
		if _, err := make(); err == nil || !strings.HasPrefix(err.Error(), "ratelimit: grpclimit.New: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func refusedServer(limiter *client.Client, key grpclimit.Key, opts ...grpclimit.Option) func() (*grpclimit.Interceptor, error) {
	return func() (*grpclimit.Interceptor, error) { return grpclimit.New(limiter, "api", "1/m", key, opts...) }
}
