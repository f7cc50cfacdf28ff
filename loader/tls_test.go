package loader_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// Given one node, a Loader reaches all nodes over TLS, each at its TLS port and with the caller's
// settings.
func TestClusterOverTLS(t *testing.T) {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	certFile, keyFile := redistest.CertificateFiles(t, config.RootCAs, "", "127.0.0.1")
	addrs, _ := startCluster(t, 2, redis.Options{TLSConfig: config}, "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", certFile, "--tls-auth-clients", "no", "--tls-cluster", "yes", "--tls-replication", "yes")
	report := must[loader.Report](t)(newLoader(t, connect(t, redis.Options{Addr: addrs[1], TLSConfig: config})).Deploy(t.Context(), build(t), loader.Options{}))
	if report.Topology != nodes.Cluster || len(report.Nodes) != 3 || report.Changed() != 3 || !report.InStep() {
		t.Errorf("%s\n%s", report.Topology, states(report))
	}
	_, err := newLoader(t, at(t, addrs[0])).Status(t.Context(), build(t))
	want(t, "without TLS", err, nodes.ErrUnreachable)
}
