package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate makes a self-signed certificate for 127.0.0.1 or for a name, and returns the files
// with the certificate and its key.
func certificate(t *testing.T, host string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{host},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses, template.DNSNames = []net.IP{ip}, nil
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
}

// If TLS fails, every command's error names the cause and the flag that helps.
func TestTLS(t *testing.T) {
	cert, key := certificate(t, "127.0.0.1")
	other, otherKey := certificate(t, "db.example")
	secure := func(cert, key, asks string) string {
		return startRedis(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", asks, "--tls-protocols", "TLSv1.2")
	}
	open, named, closed := secure(cert, key, "no"), secure(other, otherKey, "no"), secure(cert, key, "yes")
	m := newMessages(t, "TLS", open, "OPEN", named, "NAMED", closed, "CLOSED", cert, "cert.pem", other, "other.pem", otherKey, "other-key.pem")
	for _, args := range [][]string{
		{"rediss://" + open},
		{"rediss://" + open, "--tls-ca", other},
		{"rediss://" + named, "--tls-ca", other},
		{"rediss://" + closed, "--tls-ca", cert},
		{"rediss://" + closed, "--tls-ca", cert, "--tls-cert", other, "--tls-key", otherKey},
		{"redis://" + open},
	} {
		m.fails(nil, append([]string{"take", "k", "1/s", "--redis"}, args...)...)
		m.fails(nil, append([]string{"deploy", "--redis"}, args...)...)
	}
	for _, args := range [][]string{{open, "--tls-ca", cert}, {closed, "--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}} {
		for _, command := range [][]string{{"deploy"}, {"take", "k", "1/s"}} {
			if got := run(t, nil, append(append(command, "--redis", "rediss://"+args[0]), args[1:]...)...); got.code != exitFine {
				t.Errorf("%v, %v: %+v", command, args, got)
			}
		}
	}
}
