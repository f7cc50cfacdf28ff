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
	"strings"
	"testing"
	"time"
)

// certificate makes a self-signed certificate for 127.0.0.1 or for a name, and returns the files
// with it and its key.
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
	const give = " with --tls-cert and --tls-key"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"rediss://" + open}, "its certificate is signed by no authority that is trusted here; name the file with its authority's certificate with --tls-ca"},
		{[]string{"rediss://" + open, "--tls-ca", other}, "its certificate is signed by none of the authorities that were named; name the file with the certificate of the one that signed it with --tls-ca"},
		{[]string{"rediss://" + named, "--tls-ca", other}, "its certificate is for db.example, and not for 127.0.0.1; connect by a name that it is for"},
		{[]string{"rediss://" + closed, "--tls-ca", cert}, "it asks for a certificate of ours (handshake failure); give one" + give},
		{[]string{"rediss://" + closed, "--tls-ca", cert, "--tls-cert", other, "--tls-key", otherKey}, "it refuses our certificate (unknown certificate authority); give one that it trusts" + give},
		{[]string{"redis://" + open}, "it closes the connection; check the address, and whether it wants TLS (rediss://)"},
	} {
		run(t, nil, append([]string{"take", "k", "1/s", "--redis"}, tt.args...)...).want(t, exitError, "", "ratelimit: cannot reach "+tt.args[0]+": "+tt.want+"\n")
		_, addr, _ := strings.Cut(tt.args[0], "://")
		run(t, nil, append([]string{"deploy", "--redis"}, tt.args...)...).want(t, exitError, "", "ratelimit: cannot reach "+addr+": "+tt.want+"\n")
	}
	for _, args := range [][]string{{open, "--tls-ca", cert}, {closed, "--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}} {
		for _, command := range [][]string{{"deploy"}, {"take", "k", "1/s"}} {
			if got := run(t, nil, append(append(command, "--redis", "rediss://"+args[0]), args[1:]...)...); got.code != exitFine {
				t.Errorf("%v, %v: %+v", command, args, got)
			}
		}
	}
}

func TestTLSFiles(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--redis", "redis://h:1", "--tls-ca", none}, "--tls-ca, --tls-cert and --tls-key are about TLS, and the URL does not ask for it; write rediss:// in place of redis://"},
		{[]string{"--redis", "rediss://h:1", "--tls-ca", none}, "--tls-ca: open " + none + ": no such file or directory; name a file with certificates"},
		{[]string{"--redis", "rediss://h:1", "--tls-ca", empty}, "--tls-ca: " + empty + " holds no certificate; name a file in PEM form"},
		{[]string{"--redis", "rediss://h:1", "--tls-cert", empty}, "if any flags in the group [tls-cert tls-key] are set they must all be set; missing [tls-key]"},
		{[]string{"--redis", "rediss://h:1", "--tls-cert", empty, "--tls-key", empty}, "--tls-cert and --tls-key: tls: failed to find any PEM data in certificate input; name files in PEM form that belong together"},
	} {
		run(t, nil, append([]string{"status"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
	}
}
