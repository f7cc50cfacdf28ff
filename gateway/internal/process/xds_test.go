package process_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xdstest"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// control starts an xDS server, and returns its address.
func control(t *testing.T, addr string, options ...grpc.ServerOption) (server *xdstest.Server, at string, stop func()) {
	t.Helper()
	port := must[net.Listener](t)(net.Listen("tcp", addr))
	server = xdstest.New()
	g := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, server)
	go func() { _ = g.Serve(port) }()
	t.Cleanup(g.Stop)
	return server, port.Addr().String(), g.Stop
}

// own returns an address for a server that stops and starts again. Other tests listen on 127.0.0.1, and
// could take its port meanwhile.
func own(host string) string {
	if port, err := net.Listen("tcp", host+":0"); err == nil {
		_ = port.Close()
		return host + ":0"
	}
	return "127.0.0.1:0" // some systems have no other address
}

// users returns a resource that limits each user of a domain to n an hour.
func users(domain string, n uint32) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "user", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_HOUR, RequestsPerUnit: n}},
	}}
}

// limit returns the number of the rule for a user of a domain, or -1 if there is no rule.
func (g *gateway) limit(t *testing.T, domain string) (int64, error) {
	t.Helper()
	answer, err := rls.NewRateLimitServiceClient(g.dial(t, nil)).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
		Domain: domain, Descriptors: []*entries.RateLimitDescriptor{{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}}},
	})
	if err != nil || answer.Statuses[0].CurrentLimit == nil {
		return -1, err
	}
	return int64(answer.Statuses[0].CurrentLimit.RequestsPerUnit), nil
}

func (g *gateway) hasLimit(t *testing.T, domain string, want int64) {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("the limit of %s is %d", domain, want), func() bool {
		n, err := g.limit(t, domain)
		return err == nil && n == want
	})
}

// TestXDS follows an xDS server from its first set of resources to its restart.
func TestXDS(t *testing.T) {
	t.Parallel()
	server, at, stop := control(t, own("127.0.0.2"))
	g := start(t, process.Options{Dev: true, XDS: xds.Options{Server: at, Node: "me"}})
	g.says(t, `msg="not ready" error="there are no rules yet from --xds `+at+` for the node \"me\"; check that the server has resources for it`)
	if _, err := g.limit(t, "web"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "there are no rules yet") {
		t.Errorf("before the first set: %v", err)
	}
	if code, _ := g.get(t, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", code)
	}

	server.Set("0", users("", 1))
	g.says(t, "the xDS server's resources were refused; the previous ones stay in use\" version=0 error=\"resource \\\"\\\": the field domain is missing")
	if code, _ := g.get(t, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz after a wrong set: %d", code)
	}
	server.Set("1", users("web", 1), users("api", 10))
	g.ready(t)
	g.hasLimit(t, "web", 1)
	g.hasLimit(t, "api", 10)

	server.Set("2", users("web", 2), users("web", 3))
	g.says(t, `level=ERROR msg="the xDS server's resources were refused; the previous ones stay in use" version=2 error="resource \"web\": the domain \"web\" is also in another resource`)
	g.hasLimit(t, "web", 1)
	redistest.Eventually(t, "the server has a NACK", func() bool {
		last := server.Requests()[len(server.Requests())-1]
		return last.VersionInfo == "1" && strings.Contains(last.GetErrorDetail().GetMessage(), "is also in another resource")
	})

	server.Set("3", users("web", 1000)) // api is gone
	g.hasLimit(t, "web", 1000)
	g.hasLimit(t, "api", -1)

	stop()
	g.says(t, "no stream from the xDS server, so the rules in use stay")
	g.hasLimit(t, "web", 1000)
	redistest.Eventually(t, "the metrics say that it is not connected", func() bool {
		_, text := g.get(t, "/metrics")
		return strings.Contains(text, "ratelimit_gateway_xds_connected 0\n")
	})
	server, _, _ = control(t, at)
	server.Set("1", users("web", 5))
	g.hasLimit(t, "web", 5)
	for _, want := range []string{
		"xds_connected 1", "xds_streams_total 2", `xds_answers_total{result="ack"} 3`, `xds_answers_total{result="nack"} 2`,
		`config_reloads_total{result="ok"} 3`, `config_reloads_total{result="error"} 2`,
	} {
		redistest.Eventually(t, "the metrics have "+want, func() bool {
			_, text := g.get(t, "/metrics")
			return strings.Contains(text, "ratelimit_gateway_"+want+"\n")
		})
	}
}

// TestXDSOptional checks that the gateway is ready without an xDS server, and gets its rules later.
func TestXDSOptional(t *testing.T) {
	t.Parallel()
	_, at, stop := control(t, own("127.0.0.3"))
	stop()
	g := start(t, process.Options{Dev: true, XDS: xds.Options{Server: at, Node: "me"}, XDSOptional: true})
	g.ready(t)
	g.hasLimit(t, "web", -1)
	g.says(t, "connection refused")
	server, _, _ := control(t, at)
	server.Set("1", users("web", 7))
	g.hasLimit(t, "web", 7)
}

// TestXDSWithCertificates checks client certificates in both directions, as Envoy Gateway uses them.
func TestXDSWithCertificates(t *testing.T) {
	t.Parallel()
	pool := x509.NewCertPool()
	certFile, keyFile := redistest.CertificateFiles(t, pool, "me", "control")
	pair := must[tls.Certificate](t)(tls.LoadX509KeyPair(certFile, keyFile))
	server, at, _ := control(t, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	server.Set("1", users("web", 1))
	secure := xds.TLS{On: true, CA: certFile, Cert: certFile, Key: keyFile, Name: "control"}
	g := start(t, process.Options{Dev: true, XDS: xds.Options{Server: at, Node: "me", TLS: secure}})
	g.ready(t)
	g.hasLimit(t, "web", 1)
	for want, change := range map[string]func(*xds.TLS){
		"certificate": func(s *xds.TLS) { s.Name = "another" },
		"authority":   func(s *xds.TLS) { s.CA = "" },
		"no stream":   func(s *xds.TLS) { s.Cert, s.Key = "", "" }, // the reason depends on who notices first
		"EOF":         func(s *xds.TLS) { *s = xds.TLS{} },
	} {
		other := secure
		change(&other)
		g := start(t, process.Options{Dev: true, XDS: xds.Options{Server: at, Node: "me", TLS: other}})
		g.says(t, "no stream from the xDS server")
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("%s is not in\n%s", want, g.log)
		}
		if server.Streams() != 1 {
			t.Errorf("with %+v, there is a stream", other)
		}
	}
}

func TestWrongXDS(t *testing.T) {
	t.Parallel()
	fails(t, process.Options{Dev: true, EnvoyConfig: t.TempDir(), XDS: xds.Options{Server: "control:18001", Node: "me"}}, "--envoy-config and --xds are two sources")
	fails(t, process.Options{Dev: true, XDSOptional: true}, "are for --xds; give --xds HOST:PORT")
	fails(t, process.Options{Dev: true, XDS: xds.Options{Node: "me"}}, "are for --xds; give --xds HOST:PORT")
	fails(t, process.Options{Dev: true, XDS: xds.Options{Server: "control:18001"}}, "--xds-node is empty; write the ID")
	fails(t, process.Options{Dev: true, XDS: xds.Options{TLS: xds.TLS{On: true}}}, "are for --xds; give --xds HOST:PORT")
	fails(t, process.Options{Dev: true, XDS: xds.Options{Server: "control", Node: "me"}}, `--xds "control" is not HOST:PORT`)
	fails(t, process.Options{Dev: true, XDS: xds.Options{Server: "control:18001", Node: "me", TLS: xds.TLS{On: true, CA: filepath.Join(t.TempDir(), "none")}}}, "--xds-tls-ca: open ")
}
