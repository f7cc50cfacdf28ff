package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
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
// other. Each node has its own certificate. Both certificates contain the address 127.0.0.1, but
// only the certificate of the first node contains the name localhost. A connection fails unless the
// node's certificate contains the name or address that the client expects.
func TestOpenOfAClusterOverTLS(t *testing.T) {
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "first", "127.0.0.1", "localhost") // the subjects differ, because a node finds the issuer of a certificate by its subject
	otherCert, otherKey := redistest.CertificateFiles(t, trusted, "second", "127.0.0.1")
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
	redistest.Join(t, []*redis.Client{rdb, other}, 2)
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
	const host = "connect to a host that it is for, or set ServerName of the TLSConfig"
	for name, c := range map[string]struct {
		*client.Client
		remedy string
	}{
		"without TLS":                      {open(t, "redis+cluster://"+first.Addr), ""},
		"an authority that nobody trusts":  {open(t, "rediss+cluster://"+first.Addr), "add the certificate of the authority to RootCAs of the TLSConfig"},
		"a name that no certificate has":   {open(t, "rediss+cluster://"+first.Addr, client.WithTLS(wrong)), host},
		"a name that only one of them has": {open(t, "rediss+cluster://"+first.Addr, client.WithTLS(&tls.Config{RootCAs: trusted, ServerName: "localhost"})), host},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), slow)
		if res, err := c.Allow(ctx, highKey, perDay); !errors.Is(err, client.ErrUnavailable) || !strings.HasSuffix(err.Error(), c.remedy) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		cancel()
	}
	// The first node redirects the call to the second, to which nothing is sent.
	own := redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, Addrs: []string{first.Addr}, TLSConfig: &tls.Config{RootCAs: trusted, ServerName: "localhost"}})
	t.Cleanup(func() { _ = own.Close() })
	_, err := must[*client.Client](t)(client.New(own, client.WithTimeout(time.Minute))).Allow(t.Context(), highKey, perDay)
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("a redirected call: %v", err)
	}
}
