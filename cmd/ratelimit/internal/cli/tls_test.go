package cli

import (
	"crypto/x509"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// If TLS fails, every command's error names the cause and the flag that helps.
func TestTLS(t *testing.T) {
	cert, key := redistest.CertificateFiles(t, x509.NewCertPool(), "", "127.0.0.1")
	other, otherKey := redistest.CertificateFiles(t, x509.NewCertPool(), "", "db.example")
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
