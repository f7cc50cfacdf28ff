package redistest

import (
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
	"testing"
	"time"
)

// Certificate returns a self-signed certificate for host names and IP addresses, with its Leaf. It
// is valid from one hour before `from` until 23 hours after it. name is the name of its subject and
// issuer; it may be empty. A client sends its certificate only if the server trusts an authority
// named name.
func Certificate(t testing.TB, name string, from time.Time, hosts ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: name},
		SerialNumber: big.NewInt(1), NotBefore: from.Add(-time.Hour), NotAfter: from.Add(23 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// CertificateFiles writes a self-signed certificate and its key to files for a server. It also adds
// the certificate to trusted.
func CertificateFiles(t testing.TB, trusted *x509.CertPool, name string, hosts ...string) (certFile, keyFile string) {
	t.Helper()
	c := Certificate(t, name, time.Now(), hosts...)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(name, kind string, der []byte) error {
		return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	if err := errors.Join(err, write(certFile, "CERTIFICATE", c.Leaf.Raw), write(keyFile, "PRIVATE KEY", key)); err != nil {
		t.Fatal(err)
	}
	trusted.AddCert(c.Leaf)
	return certFile, keyFile
}
