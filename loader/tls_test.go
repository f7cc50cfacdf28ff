package loader_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// certificate makes a self-signed certificate for 127.0.0.1, as files for a server and as a
// client's configuration.
func certificate(t *testing.T) (certFile, keyFile string, config *tls.Config) {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	roots := x509.NewCertPool()
	roots.AddCert(must[*x509.Certificate](t)(x509.ParseCertificate(der)))
	return write("cert.pem", "CERTIFICATE", der),
		write("key.pem", "PRIVATE KEY", must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))),
		&tls.Config{RootCAs: roots}
}

// Given one node, a Loader reaches all nodes over TLS, each at its TLS port and with the caller's
// settings.
func TestClusterOverTLS(t *testing.T) {
	certFile, keyFile, config := certificate(t)
	addrs, _ := startCluster(t, 2, redis.Options{TLSConfig: config}, "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", certFile, "--tls-auth-clients", "no", "--tls-cluster", "yes", "--tls-replication", "yes")
	report := must[loader.Report](t)(newLoader(t, connect(t, redis.Options{Addr: addrs[1], TLSConfig: config})).Deploy(t.Context(), build(t)))
	if report.Topology != loader.Cluster || len(report.Nodes) != 3 || report.Changed() != 3 || !report.InStep() {
		t.Errorf("%s\n%s", report.Topology, states(report))
	}
	_, err := newLoader(t, at(t, addrs[0])).Status(t.Context(), build(t))
	want(t, "without TLS", err, loader.ErrUnreachable)
}
