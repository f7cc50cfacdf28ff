package process

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
)

// Bounds on what clients can make the gateway store.
const (
	// streamsEach is the number of concurrent requests and streams in a gRPC connection, and
	// streamsPerConnection bounds their number in the process: it is multiplied by the maximum number
	// of connections. A client that reaches the first bound waits, or opens another connection.
	streamsEach          = 1000
	streamsPerConnection = 4

	// mostRequest is the maximum size of a gRPC request. Envoy sends client headers, which have up to
	// 60 KiB by default, in several descriptors.
	mostRequest = 1 << 20

	// mostHeader is the maximum size of the header of an HTTP or gRPC request. nginx accepts up to
	// 32 KiB from a client, and Envoy up to 60 KiB, and both forward it.
	mostHeader = 64 << 10

	// mostAge is the maximum age of a gRPC connection. It also ends health streams, and it makes
	// proxies spread their connections over new replicas.
	mostAge = 30 * time.Minute
)

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
		grpc.MaxConcurrentStreams(streamsEach), grpc.MaxRecvMsgSize(mostRequest), grpc.MaxHeaderListSize(mostHeader), grpc.InTapHandle(g.admit),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, MaxConnectionAge: mostAge, MaxConnectionAgeGrace: drain, Time: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	g.grpc = grpc.NewServer(options...)
	rls.Register(g.grpc, g.service)
	healthapi.RegisterHealthServer(g.grpc, g.health)
	if g.options.Reflection {
		reflection.Register(g.grpc)
	}
	g.setReady(false)
}

// admit is called with the header of each gRPC request, before a goroutine serves the request. It
// refuses the request if too many are in progress, and otherwise limits its time. Health and
// reflection streams last until their connection ends.
func (g *Gateway) admit(ctx context.Context, request *tap.Info) (context.Context, error) {
	if most := int64(g.options.Connections) * streamsPerConnection; g.open.Add(1) > most {
		g.open.Add(-1)
		g.metrics.Count("grpc", "unknown", "error")
		g.full.Do(func() {
			g.options.Log.Error("no decision", "source", "grpc", "error", "too many requests in progress", "most", most)
		})
		return nil, status.Errorf(codes.ResourceExhausted, "%d requests are in progress, the most; raise --max-connections", most)
	}
	end := context.CancelFunc(func() {})
	if request.FullMethodName != healthapi.Health_Watch_FullMethodName && !strings.HasPrefix(request.FullMethodName, "/grpc.reflection.") {
		ctx, end = context.WithTimeout(ctx, 2*clientTime+g.options.Timeout)
	}
	context.AfterFunc(ctx, func() {
		end()
		g.open.Add(-1)
	})
	return ctx, nil
}

// stream serves a gRPC stream, for health or reflection, until the context g.streams is done.
// Requests for decisions are registered as streams too, but they end by themselves.
func (g *Gateway) stream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	if service == any(g.service) {
		return serve(service, stream)
	}
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
