package process

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"strings"
	"time"

	quotaapi "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsapi "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/rlqs"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
)

// Bounds on what clients can make the gateway store.
const (
	// streamsEach is the number of concurrent requests and streams in a gRPC connection, and
	// streamsPerConnection bounds their number in the process: it is multiplied by the maximum number
	// of connections. A client that reaches the first bound waits, or opens another connection.
	streamsEach          = 1000
	streamsPerConnection = 2

	// mostRequest is the maximum size of a gRPC request. Envoy sends client headers, which have up to
	// 60 KiB by default, in several descriptors. A larger request gets an error, which Envoy lets pass.
	// So the bound has room for four descriptors with a whole header each. It also bounds what a stream
	// can store of an unfinished request.
	mostRequest = 256 << 10

	// streamWindow is how much a gRPC client may send in a stream before the gateway begins to read the
	// request. It is the smallest window of grpc-go.
	streamWindow = 64 << 10

	// connectionWindow is how much a gRPC client may send in a connection before the gateway has read it
	// from the network.
	connectionWindow = 1 << 20

	// mostHeader is the maximum size of the header of an HTTP or gRPC request. nginx accepts up to
	// 32 KiB from a client, and Envoy up to 60 KiB, and both forward it.
	mostHeader = 64 << 10

	// mostAge is the maximum age of a gRPC connection. It also ends health streams, and it makes
	// proxies spread their connections over new replicas.
	mostAge = 30 * time.Minute
)

// lifetimes says when gRPC connections are closed.
var lifetimes = keepalive.ServerParameters{MaxConnectionIdle: idleTime, MaxConnectionAge: mostAge, MaxConnectionAgeGrace: drain, Time: time.Minute}

func (g *Gateway) newHTTP(handler http.Handler, config *tls.Config) *http.Server {
	return &http.Server{
		Handler: handler, ReadTimeout: clientTime, WriteTimeout: 2*clientTime + g.options.Timeout, IdleTimeout: idleTime,
		MaxHeaderBytes: mostHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}, TLSConfig: config,
		ErrorLog: slog.NewLogLogger(g.options.Log.Handler(), slog.LevelDebug),
	}
}

func (g *Gateway) serveGRPC(config *tls.Config) {
	g.streams, g.cut = context.WithCancel(context.Background())
	options := []grpc.ServerOption{
		grpc.ConnectionTimeout(clientTime), grpc.NumStreamWorkers(streamWorkers), grpc.StreamInterceptor(g.stream), grpc.ForceServerCodecV2(rls.Codec()),
		grpc.MaxConcurrentStreams(streamsEach), grpc.MaxHeaderListSize(mostHeader), grpc.InTapHandle(g.admit),
		grpc.MaxRecvMsgSize(mostRequest), grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveParams(cmp.Or(g.options.connections, lifetimes)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	g.grpc = grpc.NewServer(options...)
	rls.Register(g.grpc, g.service)
	rls.RegisterKuadrant(g.grpc, g.service)
	rlqs.Register(g.grpc, g.quotas)
	healthapi.RegisterHealthServer(g.grpc, g.health)
	if g.options.Reflection {
		reflection.Register(g.grpc)
	}
	g.setHealth(healthapi.HealthCheckResponse_NOT_SERVING)
}

// admit is called with the header of each gRPC request, before a goroutine serves the request. It
// limits the time of requests that have no limit of their own, and refuses requests if too many are
// in progress. Streams for quotas, health and reflection last until their connection ends. The handler of the
// rate limit service calls g.begin and g.end itself, which takes less time than here.
func (g *Gateway) admit(ctx context.Context, request *tap.Info) (context.Context, error) {
	method := request.FullMethodName
	end := context.CancelFunc(func() {})
	if most := 2*clientTime + g.options.Timeout; method != quotaapi.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName && method != healthapi.Health_Watch_FullMethodName && !strings.HasPrefix(method, "/grpc.reflection.") {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > most {
			ctx, end = context.WithTimeout(ctx, most)
		}
	}
	if method == rlsapi.RateLimitService_ShouldRateLimit_FullMethodName {
		if g.open.Load() >= g.mostOpen() { // refuse it here, because begin is called in a goroutine of the request
			end()
			return nil, g.tooMany()
		}
		_ = end // ctx ends with its parent, at the end of the stream
		return ctx, nil
	}
	if err := g.begin(); err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		end()
		g.end()
	})
	return ctx, nil
}

// begin counts a gRPC request as in progress. It returns an error if too many are.
func (g *Gateway) begin() error {
	if g.open.Add(1) <= g.mostOpen() {
		return nil
	}
	g.open.Add(-1)
	return g.tooMany()
}

// mostOpen returns the maximum number of gRPC requests and streams in progress.
func (g *Gateway) mostOpen() int64 { return int64(g.options.Connections) * streamsPerConnection }

// tooMany counts and logs a gRPC request that is refused because too many are in progress, and
// returns its error.
func (g *Gateway) tooMany() error {
	g.metrics.Count("grpc", "unknown", "error")
	g.full.Do(func() {
		g.options.Log.Error("no decision", "source", "grpc", "error", "too many requests in progress", "most", g.mostOpen())
	})
	return status.Errorf(codes.ResourceExhausted, "%d requests are in progress, the most; raise --max-connections", g.mostOpen())
}

// end undoes begin.
func (g *Gateway) end() { g.open.Add(-1) }

// stream serves a gRPC stream, for quotas, health or reflection, until the context g.streams is done.
func (g *Gateway) stream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(g.streams, cancel)()
	return serve(service, bounded{stream, ctx})
}

type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bounded) Context() context.Context { return b.ctx }
