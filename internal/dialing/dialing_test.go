package dialing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const give = " with --tls-cert and --tls-key (Certificates of the TLSConfig)"

func TestWhy(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	sentinels := func(errs ...error) error {
		return fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(errs...))
	}
	secure := &tls.Config{}
	for _, tt := range []struct {
		err     error
		config  *tls.Config
		why, do string
	}{
		{refused, nil, "connection refused", ""},
		{&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.ENOENT)}, nil, "there is no such socket", ""},
		{&net.DNSError{Name: "h.invalid"}, nil, `there is no host named "h.invalid"`, ""},
		{context.DeadlineExceeded, nil, "no answer within 5s", ""},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, secure, "no answer within 5s", "does it speak TLS? redis in place of rediss in the URL goes without"},
		{io.EOF, nil, "it closes the connection", "check the address, and whether it wants TLS (rediss://)"},
		{syscall.ECONNRESET, secure, "it closes the connection", "check the address, and whether it asks for a certificate of ours: --tls-cert and --tls-key (Certificates of the TLSConfig)"},
		{syscall.EPIPE, secure, "it closes the connection", "check the address, and whether it asks for a certificate of ours: --tls-cert and --tls-key (Certificates of the TLSConfig)"},
		{errors.New("odd"), nil, "odd", ""},
		{errors.New("redis: can't parse"), nil, "it does not speak the Redis protocol (redis: can't parse)", "check the address"},
		{redis.ErrPoolTimeout, nil, "redis: connection pool timeout", ""},
		{sentinels(refused, refused), nil, "no Sentinel answers: connection refused", ""},
		{sentinels(refused, redis.Nil), nil, "the Sentinels watch no primary of this name", "give the name that they know with --sentinel (MasterName)"},
		{sentinels(refusal("ERR unknown command 'sentinel', with args")), nil, "it is no Sentinel",
			"give the addresses of the Sentinels, whose port is usually 26379, or leave out --sentinel (redis-sentinel://)"},
		{sentinels(refusal("NOAUTH Authentication required.")), nil, "the Sentinels want a password",
			"give it as in redis-sentinel://host:26379/name?sentinel_password=PASSWORD (SentinelPassword)"},
		{sentinels(refusal("WRONGPASS no")), nil, "the Sentinels refuse the login",
			"check sentinel_username and sentinel_password in the URL (SentinelUsername, SentinelPassword)"},
		{sentinels(refusal("NOPERM no")), nil, "the Sentinels do not name the primary (NOPERM no)", ""},
	} {
		because, do := why(tt.err, tt.config, 5*time.Second)
		if because != tt.why || do != tt.do {
			t.Errorf("%v: %q, %q\nwant %q, %q", tt.err, because, do, tt.why, tt.do)
		}
	}
	for err, want := range map[error]string{refused: "10.0.0.1:7", sentinels(refused): "", io.EOF: ""} {
		if got := Addr(err); got != want {
			t.Errorf("%v: address %q, want %q", err, got, want)
		}
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// The errors of TLS handshakes that fail.
func TestCertificates(t *testing.T) {
	now := time.Now()
	here := issue(t, now, "127.0.0.1", "db.example")
	late := issue(t, now.Add(-48*time.Hour), "127.0.0.1")
	nameless := issue(t, now)
	other := issue(t, now, "127.0.0.1")
	asks := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusting(here)}
	with := func(config *tls.Config, own tls.Certificate) *tls.Config {
		config = config.Clone()
		config.Certificates = []tls.Certificate{own}
		return config
	}
	older := with(asks, here)
	older.MaxVersion = tls.VersionTLS12
	const day = "2006-01-02 15:04 UTC"
	for _, tt := range []struct {
		name         string
		server, ours *tls.Config
		why, do      string
	}{
		{"an unknown authority", with(&tls.Config{}, here), &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(other)},
			"its certificate is signed by none of the authorities that were named", "name the file with the certificate of the one that signed it with --tls-ca (RootCAs of the TLSConfig)"},
		{"an unknown authority, and none named", with(&tls.Config{}, here), &tls.Config{ServerName: "127.0.0.1"},
			"its certificate is signed by no authority that is trusted here", "name the file with its authority's certificate with --tls-ca (RootCAs of the TLSConfig)"},
		{"another host", with(&tls.Config{}, here), &tls.Config{ServerName: "10.0.0.1", RootCAs: trusting(here)},
			"its certificate is for db.example, 127.0.0.1, and not for 10.0.0.1", "connect by a name that it is for (or set ServerName of the TLSConfig)"},
		{"no host", with(&tls.Config{}, nameless), &tls.Config{ServerName: "h", RootCAs: trusting(nameless)},
			"its certificate names no host", "have it issued for h"},
		{"expired", with(&tls.Config{}, late), &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(late)},
			"its certificate is valid from " + late.Leaf.NotBefore.Format(day) + " to " + late.Leaf.NotAfter.Format(day) + " only", "have it renewed, or set this machine's clock"},
		{"wants ours", with(asks, here), &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here)},
			"it asks for a certificate of ours (certificate required)", "give one" + give},
		{"wants ours, in TLS 1.2", older, &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here)},
			"it asks for a certificate of ours (handshake failure)", "give one" + give},
		{"wants another of ours", with(asks, here), with(&tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here)}, other),
			"it refuses our certificate (unknown certificate authority)", "give one that it trusts" + give},
		{"another version", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{here}},
			&tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here), MaxVersion: tls.VersionTLS12},
			"it ends the TLS handshake (protocol version not supported)", ""},
		{"no TLS", nil, &tls.Config{ServerName: "127.0.0.1"}, "it does not speak TLS", "write redis in place of rediss in the URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := handshake(t, tt.server, tt.ours)
			if because, do := why(err, tt.ours, time.Second); because != tt.why || do != tt.do {
				t.Errorf("%v: %q, %q\nwant %q, %q", err, because, do, tt.why, tt.do)
			}
		})
	}
}

// handshake returns the error of a client's first read from a server that uses TLS, or plain RESP.
func handshake(t *testing.T, server, ours *tls.Config) error {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	served := make(chan struct{})
	defer func() { <-served }()
	go func() {
		defer close(served)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if server == nil {
			_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
		} else {
			_ = tls.Server(conn, server).Handshake()
		}
		_, _ = io.Copy(io.Discard, conn) // until the client has read everything
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = tls.Client(conn, ours).Read(make([]byte, 1))
	if err == nil {
		t.Fatal("the handshake succeeds")
	}
	return err
}

// issue makes a self-signed certificate that is valid for a day from the given time.
func issue(t *testing.T, from time.Time, hosts ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from.Add(-time.Hour), NotAfter: from.Add(23 * time.Hour), IsCA: true, BasicConstraintsValid: true,
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

func trusting(c tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	return pool
}

func TestSentence(t *testing.T) {
	for err, want := range map[error]string{
		io.EOF:                   "cannot reach db: it closes the connection; check the address, and whether it wants TLS (rediss://)",
		context.DeadlineExceeded: "cannot reach db: no answer within 5s; look at it",
		context.Canceled:         "interrupted before db answered",
	} {
		if got := Sentence("db", err, nil, 5*time.Second, "look at it"); got != want {
			t.Errorf("%v: %s\nwant %s", err, got, want)
		}
	}
}
