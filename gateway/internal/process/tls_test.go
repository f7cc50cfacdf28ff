package process_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	healthapi "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	a := &authority{t, nil, key}
	a.cert = a.sign("authority", &key.PublicKey)
	return a
}

// sign returns a certificate for a name, valid for servers and clients. The first certificate that
// an authority signs is its own.
func (a *authority) sign(name string, key *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent := a.cert
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, parent = true, true, template
	}
	text, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// pair returns a new certificate and its key, both in PEM format.
func (a *authority) pair(name string) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return block("CERTIFICATE", a.sign(name, &private.PublicKey).Raw), block("PRIVATE KEY", text)
}

func (a *authority) text() string { return block("CERTIFICATE", a.cert.Raw) }

func block(kind string, text []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text}))
}

// client returns the TLS configuration for a client with a certificate.
func (a *authority) client() *tls.Config {
	a.t.Helper()
	cert, key := a.pair("proxy")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		a.t.Fatal(err)
	}
	config := a.anonymous()
	config.Certificates = []tls.Certificate{pair}
	return config
}

// anonymous returns the TLS configuration for a client without a certificate.
func (a *authority) anonymous() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots, ServerName: "gateway"}
}

// files writes a certificate and its key into dir. It returns the files' names, with the authority
// for client certificates.
func (a *authority) files(dir string) process.TLSFiles {
	a.t.Helper()
	cert, key := a.pair("gateway")
	return process.TLSFiles{
		Cert: write(a.t, filepath.Join(dir, "cert.pem"), cert), Key: write(a.t, filepath.Join(dir, "key.pem"), key),
		ClientCA: write(a.t, filepath.Join(dir, "ca.pem"), a.text()),
	}
}

// serial returns the serial number of the certificate that the gateway's HTTP port presents.
func (g *gateway) serial(t *testing.T, config *tls.Config) string {
	t.Helper()
	dialer := tls.Dialer{Config: config}
	conn := must[net.Conn](t)(dialer.DialContext(t.Context(), g.http.Network(), g.http.String()))
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
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

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	g := start(t, process.Options{Dev: true, TLS: ca.files(dir)})
	mine := ca.client()
	if ports, err := g.overTLS(t, mine); ports != 2 {
		t.Errorf("with a certificate: %d ports, %v", ports, err)
	}
	foreign := other.client()
	foreign.RootCAs = mine.RootCAs
	for name, config := range map[string]*tls.Config{"no certificate": ca.anonymous(), "another authority": foreign} {
		if ports, _ := g.overTLS(t, config); ports != 0 {
			t.Errorf("%s: %d ports", name, ports)
		}
	}
	if status, _ := g.get(t, "/healthz"); status != http.StatusBadRequest {
		t.Errorf("without TLS: %d", status)
	}

	// A certificate and a key that do not match are not used. Files that match are used.
	before := g.serial(t, mine)
	cert, key := ca.pair("gateway")
	write(t, filepath.Join(dir, "cert.pem"), cert)
	redistest.Eventually(t, "the log says so", func() bool {
		return g.serial(t, mine) == before && strings.Contains(g.log.String(), "the certificates were not loaded; the previous ones stay in use")
	})
	write(t, filepath.Join(dir, "key.pem"), key)
	redistest.Eventually(t, "the new certificate", func() bool { return g.serial(t, mine) != before })
	if ports, err := g.overTLS(t, mine); ports != 2 {
		t.Errorf("with the new certificate: %d ports, %v", ports, err)
	}

	// A new authority for client certificates applies to new connections.
	write(t, filepath.Join(dir, "ca.pem"), other.text())
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
	ca := newAuthority(t)
	files := ca.files(t.TempDir())
	files.ClientCA = ""
	g := start(t, process.Options{Dev: true, TLS: files})
	if ports, err := g.overTLS(t, ca.anonymous()); ports != 2 {
		t.Errorf("%d ports, %v", ports, err)
	}
	old := ca.anonymous()
	old.MaxVersion = tls.VersionTLS11
	if ports, _ := g.overTLS(t, old); ports != 0 {
		t.Errorf("%d ports accept TLS 1.1", ports)
	}
}

// TestHalfAHandshake checks that clients that stop during a handshake are cut off, and that other
// clients are served meanwhile.
func TestHalfAHandshake(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	g := start(t, process.Options{Dev: true, TLS: ca.files(t.TempDir())})
	var wait sync.WaitGroup
	for _, addr := range []net.Addr{g.http, g.grpc} {
		conn := must[net.Conn](t)((&net.Dialer{}).DialContext(context.Background(), addr.Network(), addr.String()))
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte("\x16\x03\x01\x02\x00\x01")); err != nil { // the beginning of a ClientHello
			t.Fatal(err)
		}
		wait.Go(func() {
			buffer := make([]byte, 100)
			for {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
			}
		})
	}
	if ports, err := g.overTLS(t, ca.client()); ports != 2 {
		t.Errorf("%d ports, %v", ports, err)
	}
	wait.Wait()
}

func TestTLSWrongUse(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	all := ca.files(t.TempDir())
	_, otherKey := ca.pair("gateway")
	missing := filepath.Join(t.TempDir(), "none.pem")
	for _, tt := range []struct {
		files process.TLSFiles
		want  string
	}{
		{process.TLSFiles{Cert: all.Cert}, "--tls-cert and --tls-key belong together, and --tls-client-ca needs both; give both"},
		{process.TLSFiles{Key: all.Key}, "--tls-cert and --tls-key belong together"},
		{process.TLSFiles{ClientCA: all.ClientCA}, "--tls-cert and --tls-key belong together"},
		{process.TLSFiles{Cert: missing, Key: all.Key}, "none.pem"},
		{process.TLSFiles{Cert: all.Cert, Key: write(t, "key.pem", otherKey)}, "--tls-cert and --tls-key: tls: private key does not match"},
		{process.TLSFiles{Cert: all.Cert, Key: all.Key, ClientCA: missing}, "--tls-client-ca: open "},
		{process.TLSFiles{Cert: all.Cert, Key: all.Key, ClientCA: all.Key}, "contains no certificate; name a file in PEM form"},
	} {
		fails(t, process.Options{Dev: true, TLS: tt.files}, tt.want)
	}
}
