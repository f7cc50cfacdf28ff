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
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

func newServer(t testing.TB, limiter *client.Client, limit client.Limit, opts ...grpclimit.ServerOption) []grpc.ServerOption {
	t.Helper()
	s := must[*grpclimit.Server](t)(grpclimit.NewServer(limiter, "api", limit, grpclimit.Peer(), opts...))
	return []grpc.ServerOption{grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream)}
}

func TestServerUnary(t *testing.T) {
	limiter, _ := newLimiter(t)
	c := start(t, &service{}, newServer(t, limiter, "2/m"))
	for range 2 {
		checkStatus(t, call(t.Context(), c), codes.OK, -1)
	}
	err := call(t.Context(), c)
	checkStatus(t, err, codes.ResourceExhausted, 30*time.Second)
	if got := status.Convert(err).Message(); got != "api: over its limit; try again in 30s" {
		t.Errorf("%q", got)
	}
}

func TestServerNeverAllowed(t *testing.T) {
	limiter, _ := newLimiter(t)
	c := start(t, &service{}, newServer(t, limiter, "2/m", grpclimit.WithRequest(func(_ context.Context, method string, req *client.Request) error {
		req.Costs = []int64{3}
		return nil
	})))
	checkStatus(t, call(t.Context(), c), codes.ResourceExhausted, -1)
}

func TestServerStream(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []grpclimit.ServerOption
		used int64 // units used by a stream of three messages
	}{
		{"on opening", nil, 1},
		{"per message", []grpclimit.ServerOption{grpclimit.PerMessage()}, 3},
		{"left out", []grpclimit.ServerOption{grpclimit.PerMessage(), grpclimit.SkipMethods("/grpc.testing.TestService/FullDuplexCall")}, 0},
		{"left out by the request", []grpclimit.ServerOption{grpclimit.PerMessage(), grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
			req.Keys = nil
			return nil
		})}, 0},
		{"once", []grpclimit.ServerOption{grpclimit.PerMessage(), grpclimit.WithRequest(func(_ context.Context, _ string, req *client.Request) error {
			req.OnceKey, req.OnceTTL = "once", time.Minute
			return nil
		})}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, _ := newLimiter(t)
			c := start(t, &service{}, newServer(t, limiter, "100/d", tt.opts...))
			stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
			exchanges(t, stream, 3)
			finish(t, stream)
			limitertest.WantUsed(t, limiter, "api|peer=bufconn", tt.used)
		})
	}
}

func TestServerStreamOverItsLimit(t *testing.T) {
	limiter, _ := newLimiter(t)
	s := &service{}
	c := start(t, s, newServer(t, limiter, "2/m", grpclimit.PerMessage()))
	stream := must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
	exchanges(t, stream, 2)
	checkStatus(t, exchange(stream), codes.ResourceExhausted, 30*time.Second)
	if s.got != 2 {
		t.Errorf("the handler got %d messages, want 2", s.got)
	}
	stream = must[testpb.TestService_FullDuplexCallClient](t)(c.FullDuplexCall(t.Context()))
	checkStatus(t, exchange(stream), codes.ResourceExhausted, 30*time.Second)
	if s.got != 2 {
		t.Errorf("the handler of a stream that was refused got %d messages", s.got-2)
	}
}

func TestServerWithoutDecision(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limit    client.Limit
		fallback client.Fallback
		opts     []grpclimit.ServerOption
		code     codes.Code
		after    time.Duration
	}{
		{"let through", "nonsense", client.ReturnError, nil, codes.OK, -1},
		{"refused", "nonsense", client.ReturnError, []grpclimit.ServerOption{grpclimit.RefuseOnError(1500 * time.Millisecond)}, codes.Unavailable, 1500 * time.Millisecond},
		{"FailOpen", "1/m", client.FailOpen, []grpclimit.ServerOption{grpclimit.RefuseOnError(time.Second)}, codes.OK, -1},
		{"FailClosed", "1/m", client.FailClosed, nil, codes.Unavailable, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, server := newLimiter(t)
			address := server.Addr()
			if tt.limit != "nonsense" {
				address = "127.0.0.1:1" // nothing listens here
			}
			limiter := must[*client.Client](t)(client.Open("redis://"+address, client.WithFallback(tt.fallback)))
			defer func() { _ = limiter.Close() }()
			var heard []error
			opts := append(tt.opts, grpclimit.OnError(func(_ context.Context, method string, err error) {
				if method != "/grpc.testing.TestService/EmptyCall" {
					t.Errorf("the method is %q", method)
				}
				heard = append(heard, err)
			}))
			checkStatus(t, call(t.Context(), start(t, &service{}, newServer(t, limiter, tt.limit, opts...))), tt.code, tt.after)
			if len(heard) != 1 || limitertest.CodeOf(heard[0]) != "BADLIMIT" && !errors.Is(heard[0], client.ErrUnavailable) {
				t.Errorf("OnError heard %v, want one error of the client", heard)
			}
		})
	}
}

// Check returns an error for a wrong limit. Calls with a wrong limit end with INTERNAL if they pass
// through a Client, or through a Server with RefuseMisconfigured.
func TestMisconfigured(t *testing.T) {
	limiter, redis := newLimiter(t)
	for _, tt := range []struct {
		limit client.Limit
		want  error
		code  codes.Code
	}{
		{"100/m", nil, codes.OK}, {"3/min", limitertest.Code("BADLIMIT"), codes.Internal}, {"@fre", limitertest.Code("NOPOLICY"), codes.Internal},
	} {
		server := must[*grpclimit.Server](t)(grpclimit.NewServer(limiter, "api", tt.limit, grpclimit.Peer(), grpclimit.RefuseMisconfigured()))
		if err := server.Check(t.Context()); !limitertest.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.limit, err, tt.want)
		}
		checkStatus(t, call(t.Context(), start(t, &service{}, []grpc.ServerOption{grpc.UnaryInterceptor(server.Unary)})), tt.code, -1)
		outgoing := must[*grpclimit.Client](t)(grpclimit.NewClient(limiter, "partner", tt.limit))
		if err := outgoing.Check(t.Context()); !limitertest.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.limit, err, tt.want)
		}
		checkStatus(t, call(t.Context(), start(t, &service{}, nil, grpc.WithUnaryInterceptor(outgoing.Unary))), tt.code, -1)
	}
	_ = redis.Close()
	server := must[*grpclimit.Server](t)(grpclimit.NewServer(limiter, "api", "3/min", grpclimit.Peer(), grpclimit.RefuseMisconfigured()))
	checkStatus(t, call(t.Context(), start(t, &service{}, []grpc.ServerOption{grpc.UnaryInterceptor(server.Unary)})), codes.OK, -1)
}

func TestServerLogsWithoutOnError(t *testing.T) {
	var text strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(old)
	limiter, _ := newLimiter(t)
	c := start(t, &service{}, newServer(t, limiter, "nonsense"))
	checkStatus(t, call(t.Context(), c), codes.OK, -1)
	if got := text.String(); !strings.Contains(got, "a rate limit is misconfigured") || !strings.Contains(got, "method=/grpc.testing.TestService/EmptyCall") || !strings.Contains(got, "nonsense") {
		t.Errorf("logged %q", got)
	}
}

func TestNewServerRefuses(t *testing.T) {
	limiter, _ := newLimiter(t)
	peer := grpclimit.Peer()
	for want, make := range map[string]func() (*grpclimit.Server, error){
		"the limiter is nil":   func() (*grpclimit.Server, error) { return grpclimit.NewServer(nil, "api", "1/m", peer) },
		"the name is empty":    func() (*grpclimit.Server, error) { return grpclimit.NewServer(limiter, "", "1/m", peer) },
		"the limit is empty":   func() (*grpclimit.Server, error) { return grpclimit.NewServer(limiter, "api", "", peer) },
		"is the zero Key":      func() (*grpclimit.Server, error) { return grpclimit.NewServer(limiter, "api", "1/m", grpclimit.Key{}) },
		"an option is nil":     func() (*grpclimit.Server, error) { return grpclimit.NewServer(limiter, "api", "1/m", peer, nil) },
		"Skip(nil)":            refusedServer(limiter, peer, grpclimit.Skip(nil)),
		`"Check" is no`:        refusedServer(limiter, peer, grpclimit.SkipMethods("Check")),
		`"" is not a full`:     refusedServer(limiter, peer, grpclimit.SkipMethods("")),
		"WithRequest(nil)":     refusedServer(limiter, peer, grpclimit.WithRequest(nil)),
		"RefuseOnError(0s)":    refusedServer(limiter, peer, grpclimit.RefuseOnError(0)),
		"OnError(nil)":         refusedServer(limiter, peer, grpclimit.OnError(nil)),
		"PeerNetwork(0)":       refusedServer(limiter, grpclimit.PeerNetwork(0)),
		"PeerNetwork(129)":     refusedServer(limiter, grpclimit.PeerNetwork(129)),
		"Metadata without":     refusedServer(limiter, grpclimit.Metadata("")),
		"Func without":         refusedServer(limiter, grpclimit.Func("a", nil)),
		"Join without keys":    refusedServer(limiter, grpclimit.Join()),
		"FirstOf without keys": refusedServer(limiter, grpclimit.FirstOf()),
		"key 2 of Join":        refusedServer(limiter, grpclimit.Join(peer, grpclimit.Key{})),
	} {
		if _, err := make(); err == nil || !strings.HasPrefix(err.Error(), "ratelimit: grpclimit.NewServer: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func refusedServer(limiter *client.Client, key grpclimit.Key, opts ...grpclimit.ServerOption) func() (*grpclimit.Server, error) {
	return func() (*grpclimit.Server, error) { return grpclimit.NewServer(limiter, "api", "1/m", key, opts...) }
}
