package rls_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

// testbed is a gRPC service that uses an embedded server with a stopped clock.
type testbed struct {
	t        *testing.T
	server   *embedded.Server
	service  *rls.Server
	holds    *holds.Holds
	registry *prometheus.Registry
	log      *redistest.Output
	conn     *grpc.ClientConn
	client   api.RateLimitServiceClient
}

func newTestbed(t *testing.T, config string, policies ...functions.Policy) *testbed {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	return runTestbed(t, config, embedded.WithLibrary(build.Text()), embedded.WithTime(start))
}

func runTestbed(t *testing.T, config string, options ...embedded.Option) *testbed {
	t.Helper()
	server := embedded.Run(t, options...)
	b := connect(t, "redis://"+server.Addr(), config)
	b.server = server
	return b
}

// connect starts a service that uses the server at a URL.
func connect(t *testing.T, url, config string) *testbed {
	t.Helper()
	limiter := must[*client.Client](t)(client.Open(url))
	t.Cleanup(func() { _ = limiter.Close() })
	registry, log := prometheus.NewRegistry(), &redistest.Output{}
	options := rls.Options{
		Limiter: limiter, Metrics: metrics.New(registry), Log: slog.New(slog.NewTextHandler(log, nil)),
		Margin: 2 * time.Millisecond, Headers: true,
	}
	database := must[*redis.Options](t)(redis.ParseURL(url))
	database.MaxRetries, database.DialerRetries = -1, 1
	db := redis.NewClient(database)
	t.Cleanup(func() { _ = db.Close() })
	options.Holds = holds.New(holds.Options{Limiter: limiter, Store: holds.Redis{DB: db}, Metrics: options.Metrics, Log: options.Log, Timeout: time.Minute})
	service := rls.New(options)
	if config != "" {
		dir := t.TempDir()
		require(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
		loaded := must[*envoyconfig.Config](t)(envoyconfig.Load(dir, false))
		service.Use(loaded)
	}
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	running := grpc.NewServer(grpc.ForceServerCodecV2(rls.Codec()))
	rls.Register(running, service)
	rls.RegisterKuadrant(running, service)
	go func() { _ = running.Serve(port) }()
	t.Cleanup(running.Stop)
	connection := must[*grpc.ClientConn](t)(grpc.NewClient(port.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))
	t.Cleanup(func() { _ = connection.Close() })
	return &testbed{t: t, service: service, holds: options.Holds, registry: registry, log: log, conn: connection, client: api.NewRateLimitServiceClient(connection)}
}

// ask sends a request and returns a short form of the response: the overall code, and then for each
// status the code, the limit as name:count/unit, the remaining units, and the seconds until the
// reset.
func (b *testbed) ask(request *api.RateLimitRequest) string {
	b.t.Helper()
	return short(b.client.ShouldRateLimit(b.t.Context(), request))
}

func short(response *api.RateLimitResponse, err error) string {
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	text := response.OverallCode.String()
	for _, s := range response.Statuses {
		text += " | " + s.Code.String()
		if l := s.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %s:%d/%s", l.Name, l.RequestsPerUnit, strings.ToLower(l.Unit.String()))
			if l.UnitMultiplier != nil {
				text += fmt.Sprintf("*%d", l.UnitMultiplier.Value)
			}
		}
		text += fmt.Sprintf(" %d", s.LimitRemaining)
		if s.DurationUntilReset != nil {
			text += fmt.Sprintf(" %ds", s.DurationUntilReset.Seconds)
		}
	}
	return text
}

// descriptor parses "key=value key=value".
func descriptor(text string) *entries.RateLimitDescriptor {
	d := &entries.RateLimitDescriptor{}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		d.Entries = append(d.Entries, &entries.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(hits uint32, descriptors ...string) *api.RateLimitRequest {
	r := &api.RateLimitRequest{Domain: "web", HitsAddend: hits}
	for _, text := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptor(text))
	}
	return r
}

// wantMetric checks that the metrics have a line.
func (b *testbed) wantMetric(line string) {
	b.t.Helper()
	if text := b.metrics(); !strings.Contains(text, "ratelimit_gateway_"+line+"\n") {
		b.t.Errorf("%s is not in\n%s", line, text)
	}
}

func (b *testbed) metrics() string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// expect sends the request r once for each element of want, and compares the responses with want.
func (b *testbed) expect(r *api.RateLimitRequest, want ...string) {
	b.t.Helper()
	for i, w := range want {
		if got := b.ask(r); got != w {
			b.t.Errorf("request %d:\n%s\nwant\n%s", i+1, got, w)
		}
	}
}
