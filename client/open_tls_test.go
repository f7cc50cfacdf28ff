package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestOpenOfAClusterOverTLS uses a cluster of two nodes that use TLS with clients and with each
// other. Each node has its own certificate: only the certificate of the first node has the name in
// the URL, and the second node is reached by its address. A connection fails unless the certificate
// is valid for its name or address.
func TestOpenOfAClusterOverTLS(t *testing.T) {
	trusted := x509.NewCertPool()
	cert, key := certificate(t, trusted, "localhost")
	otherCert, otherKey := certificate(t, trusted)
	config := &tls.Config{RootCAs: trusted}
	both := filepath.Join(t.TempDir(), "both.pem")
	text := append(must[[]byte](t)(os.ReadFile(cert)), must[[]byte](t)(os.ReadFile(otherCert))...)
	require(t, os.WriteFile(both, text, 0o600))
	start := func(cert, key string) (*redistest.Server, *redis.Client) {
		server := redistest.Run(t, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-auth-clients", "no",
			"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", both)
		rdb := connect(t, redis.Options{Addr: server.Addr, TLSConfig: config})
		deploy(t, rdb)
		return server, rdb
	}
	first, rdb := start(cert, key)
	second, other := start(otherCert, otherKey)
	host, port, _ := net.SplitHostPort(second.Addr)
	if err := errors.Join(rdb.ClusterAddSlotsRange(t.Context(), 0, 8191).Err(), other.ClusterAddSlotsRange(t.Context(), 8192, 16383).Err(),
		rdb.ClusterMeet(t.Context(), host, port).Err()); err != nil {
		t.Fatal(err)
	}
	for _, node := range []*redis.Client{rdb, other} {
		eventually(t, "the cluster is whole", func() bool {
			info, err := node.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		})
	}
	byName := strings.Replace(first.Addr, "127.0.0.1", "localhost", 1)
	withTLS := client.WithTLS(config)
	for _, url := range []string{"rediss+cluster://" + first.Addr, "rediss://" + first.Addr + "," + second.Addr, "rediss+cluster://" + byName} {
		c := open(t, url, withTLS, client.WithTimeout(time.Minute))
		for _, key := range []string{lowKey, highKey} {
			if got, err := c.Allow(t.Context(), url+key, perDay); err != nil || got.Remaining != 9 {
				t.Errorf("%s: %+v, %v", url, got, err)
			}
		}
		if err := c.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	wrong := &tls.Config{RootCAs: trusted, ServerName: "db.example"}
	for name, c := range map[string]*client.Client{
		"without TLS":                      open(t, "redis+cluster://"+first.Addr),
		"an authority that nobody trusts":  open(t, "rediss+cluster://"+first.Addr),
		"a name that no certificate has":   open(t, "rediss+cluster://"+first.Addr, client.WithTLS(wrong)),
		"a name that only one of them has": open(t, "rediss+cluster://"+first.Addr, client.WithTLS(&tls.Config{RootCAs: trusted, ServerName: "localhost"})),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), slow)
		if res, err := c.Allow(ctx, highKey, perDay); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		cancel()
	}
}

// certificate makes a self-signed certificate for 127.0.0.1 and hosts, as files for a server, and
// adds it to trusted.
func certificate(t *testing.T, trusted *x509.CertPool, hosts ...string) (certFile, keyFile string) {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: rand.Text()}, // if two certificates have the same name, a server tries the wrong one
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	trusted.AddCert(must[*x509.Certificate](t)(x509.ParseCertificate(der)))
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key)))
}
