package process_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is a gateway that runs until the test ends.
type gateway struct {
	grpc, http net.Addr
	admin      net.Addr // nil without Options.Admin
	log        *redistest.Output
	options    process.Options
	cancel     context.CancelFunc
	ended      chan error
}

// start starts a gateway. Options that are not set get values for tests.
func start(t *testing.T, options process.Options) *gateway {
	t.Helper()
	g := &gateway{log: &redistest.Output{}, ended: make(chan error, 1)}
	if options.GRPC == "" {
		options.GRPC = "127.0.0.1:0"
	}
	if options.HTTP == "" {
		options.HTTP = "127.0.0.1:0"
	}
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	options.IPv6Prefix = cmp.Or(options.IPv6Prefix, 64)
	options.Connections = cmp.Or(options.Connections, 1024)
	options.Hosts = append(options.Hosts, "gateway") // the host of the tests' requests
	options.Log = slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.options = options
	var ctx context.Context
	ctx, g.cancel = context.WithCancel(context.Background())
	listening := make(chan struct{})
	go func() {
		g.ended <- process.Run(ctx, options, func(grpc, http, admin net.Addr) {
			g.grpc, g.http, g.admin = grpc, http, admin
			close(listening)
		})
	}()
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Errorf("the gateway ended: %v", err)
		}
		if t.Failed() {
			t.Logf("the log:\n%s", g.log)
		}
	})
	select {
	case <-listening:
	case err := <-g.ended:
		g.ended <- nil
		t.Fatalf("the gateway ended: %v", err)
	}
	return g
}

// stop ends the gateway, and waits until it has ended.
func (g *gateway) stop() error {
	g.cancel()
	err := <-g.ended
	g.ended <- nil // for another call of stop
	return err
}

// client returns an HTTP client for the gateway. config is the TLS configuration, or nil for no
// TLS.
func (g *gateway) client(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, g.http.Network(), g.http.String())
		},
		TLSClientConfig: config, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}}
}

// get returns the status and the body of a response.
func (g *gateway) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return g.send(t, "GET", path, "")
}

func (g *gateway) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	status, text, err := g.request(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

func (g *gateway) request(ctx context.Context, method, path, body string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := g.client(nil).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// dial returns a gRPC connection to the gateway.
func (g *gateway) dial(t *testing.T, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	secure := insecure.NewCredentials()
	if config != nil {
		secure = credentials.NewTLS(config)
	}
	conn := must[*grpc.ClientConn](t)(grpc.NewClient("passthrough:///gateway", grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, g.grpc.Network(), g.grpc.String())
		})))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ready waits until the gateway is ready, and checks that both ports report it.
func (g *gateway) ready(t *testing.T) {
	t.Helper()
	client := healthapi.NewHealthClient(g.dial(t, nil))
	watch, err := client.Watch(t.Context(), &healthapi.HealthCheckRequest{Service: rls.RateLimitService_ServiceDesc.ServiceName})
	for err == nil {
		var state *healthapi.HealthCheckResponse
		if state, err = watch.Recv(); state.GetStatus() == healthapi.HealthCheckResponse_SERVING {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if state, err := client.Check(t.Context(), &healthapi.HealthCheckRequest{Service: "ratelimit"}); err != nil || state.Status != healthapi.HealthCheckResponse_SERVING {
		t.Fatalf("the name of envoyproxy/ratelimit: %v, %v", state, err)
	}
	if status, body := g.get(t, "/readyz"); status != http.StatusOK {
		t.Fatalf("/readyz: %d %s", status, body)
	}
}

// says waits until the log contains text.
func (g *gateway) says(t *testing.T, text string) {
	t.Helper()
	redistest.Eventually(t, "the log says "+text, func() bool { return strings.Contains(g.log.String(), text) })
}

// fails checks that a gateway does not start, and that the error contains each of the parts.
func fails(t *testing.T, options process.Options, parts ...string) {
	t.Helper()
	options.Timeout = cmp.Or(options.Timeout, time.Second)
	options.IPv6Prefix = cmp.Or(options.IPv6Prefix, 64)
	options.Connections = cmp.Or(options.Connections, 1024)
	if options.GRPC == "" {
		options.GRPC = "127.0.0.1:0"
	}
	if options.HTTP == "" {
		options.HTTP = "127.0.0.1:0"
	}
	options.Log = slog.New(slog.DiscardHandler)
	err := process.Run(t.Context(), options, func(_, _, _ net.Addr) { t.Errorf("it listens; want an error with %q", parts) })
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v; want %q", err, part)
		}
	}
}

// write writes a file, and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.TempDir(), path)
	}
	require(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const policyFile = "policies:\n  api:\n    limit: 3/m\n"

// server starts a server whose library has a policy named "api".
func server(t *testing.T, options ...embedded.Option) *embedded.Server {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}})))
	return embedded.Run(t, append(options, embedded.WithLibrary(build.Text()))...)
}

// library returns the library's source code without policies.
func library(t *testing.T) string {
	t.Helper()
	return must[functions.Build](t)(functions.New()).Text()
}
