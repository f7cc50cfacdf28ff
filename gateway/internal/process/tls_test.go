package process_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	healthapi "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// proxy returns the TLS configuration of a client with a certificate, and the file of the CA
// certificate that verifies the client.
func proxy(t *testing.T, trusted *x509.CertPool) (config *tls.Config, authority string) {
	t.Helper()
	cert, key := redistest.CertificateFiles(t, x509.NewCertPool(), "proxy")
	pair := must[tls.Certificate](t)(tls.LoadX509KeyPair(cert, key))
	return &tls.Config{RootCAs: trusted, ServerName: "gateway", Certificates: []tls.Certificate{pair}}, cert
}

// anonymous returns config without the client's certificate.
func anonymous(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.Certificates = nil
	return config
}

// certificate returns the certificate that the gateway's HTTP port presents.
func (g *gateway) certificate(t *testing.T, config *tls.Config) string {
	t.Helper()
	dialer := tls.Dialer{Config: config}
	conn := must[net.Conn](t)(dialer.DialContext(t.Context(), g.http.Network(), g.http.String()))
	defer conn.Close()
	return string(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
}

// overTLS returns how many of the two ports serve a client with the given TLS configuration, and the
// first error.
func (g *gateway) overTLS(t *testing.T, config *tls.Config) (ports int, err error) {
	t.Helper()
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "GET", "https://gateway/healthz", nil))
	client := g.client(config)
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
		if ports++; response.Proto != "HTTP/2.0" {
			t.Errorf("the protocol is %s", response.Proto)
		}
	}
	_, grpcErr := healthapi.NewHealthClient(g.dial(t, config)).Check(t.Context(), &healthapi.HealthCheckRequest{})
	if grpcErr == nil {
		ports++
	}
	return ports, cmp.Or(err, grpcErr)
}

// TestRedisOverTLS checks that all connections to Redis use the certificates of the flags: those that
// deploy, check, decide and store reservations. A renewed certificate is used without a restart.
func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := redistest.CertificateFiles(t, x509.NewCertPool(), "", "127.0.0.1")
	old, oldKey := redistest.CertificateFiles(t, x509.NewCertPool(), "gateway")
	files := process.RedisTLS{CA: cert, Cert: t.TempDir() + "/cert.pem", Key: t.TempDir() + "/key.pem"}
	replace := func(from, key string) {
		write(t, files.Cert, string(must[[]byte](t)(os.ReadFile(from))))
		write(t, files.Key, string(must[[]byte](t)(os.ReadFile(key))))
	}
	redis := redistest.Run(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "yes")
	replace(old, oldKey)
	g := start(t, process.Options{Redis: "rediss://" + redis.Addr, RedisTLS: files, Deploy: true})
	g.says(t, "not ready")
	replace(cert, key)
	g.ready(t)
	g.reserve(t)
	if !g.left(t, "40") {
		t.Error("the reservation charges nothing")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "gateway")
	nextCert, nextKey := redistest.CertificateFiles(t, trusted, "", "gateway")
	mine, authority := proxy(t, trusted)
	foreign, another := proxy(t, trusted)
	g := start(t, process.Options{Dev: true, TLS: process.TLSFiles{Cert: cert, Key: key, ClientCA: authority}})
	replace := func(file, by string) { write(t, file, string(must[[]byte](t)(os.ReadFile(by)))) }
	if ports, err := g.overTLS(t, mine); ports != 2 {
		t.Errorf("with a certificate: %d ports, %v", ports, err)
	}
	for name, config := range map[string]*tls.Config{"no certificate": anonymous(mine), "another authority": foreign} {
		if ports, _ := g.overTLS(t, config); ports != 0 {
			t.Errorf("%s: %d ports", name, ports)
		}
	}
	if status, _ := g.get(t, "/healthz"); status != http.StatusBadRequest {
		t.Errorf("without TLS: %d", status)
	}

	// A certificate and a key that do not match are not used. Files that match are used.
	before := g.certificate(t, mine)
	replace(cert, nextCert)
	redistest.Eventually(t, "the log says so", func() bool {
		return g.certificate(t, mine) == before && strings.Contains(g.log.String(), "the certificates were not loaded; the previous ones stay in use")
	})
	replace(key, nextKey)
	redistest.Eventually(t, "the new certificate", func() bool { return g.certificate(t, mine) != before })
	if ports, err := g.overTLS(t, mine); ports != 2 {
		t.Errorf("with the new certificate: %d ports, %v", ports, err)
	}

	// A new authority for client certificates applies to new connections.
	replace(authority, another)
	redistest.Eventually(t, "the new authority", func() bool {
		ports, _ := g.overTLS(t, foreign)
		return ports == 2
	})
	if ports, _ := g.overTLS(t, mine); ports != 0 {
		t.Errorf("the previous authority still counts on %d ports", ports)
	}
}

func TestTLSWithoutClientCertificates(t *testing.T) {
	t.Parallel()
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "gateway")
	g := start(t, process.Options{Dev: true, TLS: process.TLSFiles{Cert: cert, Key: key}})
	config := &tls.Config{RootCAs: trusted, ServerName: "gateway"}
	if ports, err := g.overTLS(t, config); ports != 2 {
		t.Errorf("%d ports, %v", ports, err)
	}
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 // by default, the client would refuse these versions
	for _, addr := range []net.Addr{g.http, g.grpc} {
		if conn, err := tls.Dial(addr.Network(), addr.String(), config); err == nil {
			_ = conn.Close()
			t.Errorf("%s accepts TLS 1.1", addr)
		}
	}
}

// TestTLSForGRPCOnly checks that the HTTP port then serves clients without TLS, and the gRPC port only
// those with a certificate.
func TestTLSForGRPCOnly(t *testing.T) {
	t.Parallel()
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "gateway")
	client, authority := proxy(t, trusted)
	g := start(t, process.Options{Dev: true, TLS: process.TLSFiles{Cert: cert, Key: key, ClientCA: authority, GRPCOnly: true}})
	if ports, err := g.overTLS(t, client); ports != 1 {
		t.Errorf("%d ports, %v", ports, err)
	}
	if ports, _ := g.overTLS(t, anonymous(client)); ports != 0 {
		t.Errorf("%d ports without a certificate", ports)
	}
	if status, _ := g.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
}

// TestHalfAHandshake checks that clients that stop during a handshake are cut off, and that other
// clients are served meanwhile.
func TestHalfAHandshake(t *testing.T) {
	t.Parallel()
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "gateway")
	config, authority := proxy(t, trusted)
	g := start(t, process.Options{Dev: true, TLS: process.TLSFiles{Cert: cert, Key: key, ClientCA: authority}})
	var wait sync.WaitGroup
	for _, addr := range []net.Addr{g.http, g.grpc} {
		conn := must[net.Conn](t)((&net.Dialer{}).DialContext(context.Background(), addr.Network(), addr.String()))
		t.Cleanup(func() { _ = conn.Close() })
		must[int](t)(conn.Write([]byte("\x16\x03\x01\x02\x00\x01"))) // the beginning of a ClientHello
		wait.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	}
	if ports, err := g.overTLS(t, config); ports != 2 {
		t.Errorf("%d ports, %v", ports, err)
	}
	wait.Wait()
}

func TestTLSWrongUse(t *testing.T) {
	t.Parallel()
	cert, key := redistest.CertificateFiles(t, x509.NewCertPool(), "")
	_, otherKey := redistest.CertificateFiles(t, x509.NewCertPool(), "")
	missing := filepath.Join(t.TempDir(), "none.pem")
	for _, tt := range []struct {
		files process.TLSFiles
		want  string
	}{
		{process.TLSFiles{Cert: cert}, "--tls-cert and --tls-key belong together, and --tls-client-ca needs both; give both"},
		{process.TLSFiles{Key: key}, "--tls-cert and --tls-key belong together"},
		{process.TLSFiles{ClientCA: cert}, "--tls-cert and --tls-key belong together"},
		{process.TLSFiles{Cert: missing, Key: key}, "none.pem"},
		{process.TLSFiles{Cert: cert, Key: otherKey}, "--tls-cert and --tls-key: tls: private key does not match"},
		{process.TLSFiles{Cert: cert, Key: key, ClientCA: missing}, "--tls-client-ca: open "},
		{process.TLSFiles{Cert: cert, Key: key, ClientCA: key}, "contains no certificate; name a file in PEM form"},
	} {
		fails(t, process.Options{Dev: true, TLS: tt.files}, tt.want)
	}
}
