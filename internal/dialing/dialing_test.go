package dialing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestWhy(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	sentinels := func(errs ...error) error {
		return fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(errs...))
	}
	secure := &tls.Config{}
	var texts strings.Builder
	for _, tt := range []struct {
		err    error
		config *tls.Config
		class  *Class
	}{
		{refused, nil, nil},
		{&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.ENOENT)}, nil, nil},
		{&net.DNSError{Name: "h.invalid"}, nil, nil},
		{context.DeadlineExceeded, nil, nil},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, secure, ErrNoTLS},
		{io.EOF, nil, ErrClosed},
		{syscall.ECONNRESET, secure, ErrClosedTLS},
		{syscall.EPIPE, secure, ErrClosedTLS},
		{errors.New("odd"), nil, nil},
		{errors.New("redis: can't parse"), nil, nil},
		{redis.ErrPoolTimeout, nil, nil},
		{context.Canceled, nil, nil},
		{sentinels(refused, refused), nil, nil},
		{sentinels(io.EOF, refused), nil, ErrClosed},
		{sentinels(refused, redis.Nil), nil, ErrPrimaryName},
		{sentinels(refusal("ERR unknown command 'sentinel', with args")), nil, ErrNotSentinel},
		{sentinels(refusal("NOAUTH Authentication required.")), nil, ErrSentinelPassword},
		{sentinels(refusal("WRONGPASS no")), nil, ErrSentinelLogin},
		{sentinels(refusal("NOPERM no")), nil, nil},
	} {
		e := New("db", tt.err, tt.config, 5*time.Second, "look at it")
		if e.Class != tt.class || !errors.Is(e, tt.err) {
			t.Errorf("%v: %v, want the class %v", tt.err, e.Class, tt.class)
		}
		fmt.Fprintln(&texts, e)
	}
	golden(t, "errors.txt", texts.String())
	for err, want := range map[error]string{refused: "10.0.0.1:7", sentinels(refused): "", io.EOF: ""} {
		if got := Addr(err); got != want {
			t.Errorf("%v: address %q, want %q", err, got, want)
		}
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// TestCertificates checks the errors of TLS handshakes that fail.
func TestCertificates(t *testing.T) {
	now := time.Now()
	here := redistest.Certificate(t, "", now, "127.0.0.1", "db.example")
	late := redistest.Certificate(t, "", now.Add(-48*time.Hour), "127.0.0.1")
	nameless := redistest.Certificate(t, "", now)
	other := redistest.Certificate(t, "", now, "127.0.0.1")
	asks := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusting(here)}
	with := func(config *tls.Config, own tls.Certificate) *tls.Config {
		config = config.Clone()
		config.Certificates = []tls.Certificate{own}
		return config
	}
	older := with(asks, here)
	older.MaxVersion = tls.VersionTLS12
	var texts strings.Builder
	for _, tt := range []struct {
		name         string
		server, ours *tls.Config
		class        *Class
	}{
		{"an unknown authority", with(&tls.Config{}, here), &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(other)}, ErrAuthority},
		{"an unknown authority, and none named", with(&tls.Config{}, here), &tls.Config{ServerName: "127.0.0.1"}, ErrAuthority},
		{"another host", with(&tls.Config{}, here), &tls.Config{ServerName: "10.0.0.1", RootCAs: trusting(here)}, ErrHost},
		{"no host", with(&tls.Config{}, nameless), &tls.Config{ServerName: "h", RootCAs: trusting(nameless)}, nil},
		{"expired", with(&tls.Config{}, late), &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(late)}, nil},
		{"a client certificate", with(asks, here), &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here)}, ErrCertificate},
		{"a client certificate, in TLS 1.2", older, &tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here)}, ErrCertificate},
		{"another client certificate", with(asks, here), with(&tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here)}, other), ErrCertificate},
		{"another version", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{here}},
			&tls.Config{ServerName: "127.0.0.1", RootCAs: trusting(here), MaxVersion: tls.VersionTLS12}, nil},
		{"no TLS", nil, &tls.Config{ServerName: "127.0.0.1"}, ErrNoTLS},
	} {
		e := New("db", handshake(t, tt.server, tt.ours), tt.ours, time.Second, "look at it")
		if e.Class != tt.class {
			t.Errorf("%s: %v, want the class %v", tt.name, e.Class, tt.class)
		}
		fmt.Fprintln(&texts, e)
	}
	const day = "2006-01-02 15:04 UTC"
	from, to := late.Leaf.NotBefore.Format(day), late.Leaf.NotAfter.Format(day)
	golden(t, "certificates.txt", strings.NewReplacer(from, "FROM", to, "TO").Replace(texts.String()))
}

// TestFilesRenewed checks that a renewed certificate is used, and stays in use while its file is broken:
// the first certificate may have expired.
func TestFilesRenewed(t *testing.T) {
	cert, key := redistest.CertificateFiles(t, x509.NewCertPool(), "first")
	next, nextKey := redistest.CertificateFiles(t, x509.NewCertPool(), "next")
	config := redistest.Must[*tls.Config](t)(Files(&tls.Config{}, "--tls-", "", cert, key))
	check := func(want string) {
		t.Helper()
		if got := redistest.Must[*tls.Certificate](t)(config.GetClientCertificate(nil)); got.Leaf.Subject.CommonName != want {
			t.Errorf("the certificate is %s, want %s", got.Leaf.Subject.CommonName, want)
		}
	}
	check("first")
	for file, renewed := range map[string]string{cert: next, key: nextKey} {
		redistest.Require(t, os.WriteFile(file, redistest.Must[[]byte](t)(os.ReadFile(renewed)), 0o600))
	}
	check("next")
	redistest.Require(t, os.WriteFile(cert, nil, 0o600))
	check("next")
}

var update = flag.Bool("update", false, "rewrite the files in testdata")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		redistest.Require(t, os.WriteFile(file, []byte(got), 0o666))
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%v: %s has\n%s\nwant\n%s", err, name, want, got)
	}
}

// handshake returns the error of a client's first read from a server. The parameters are the TLS
// configurations of the server and of the client. If the server's is nil, it uses plain RESP.
func handshake(t *testing.T, server, ours *tls.Config) error {
	t.Helper()
	ln := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
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
	conn := redistest.Must[net.Conn](t)(net.Dial("tcp", ln.Addr().String()))
	defer func() { _ = conn.Close() }()
	_, err := tls.Client(conn, ours).Read(make([]byte, 1))
	if err == nil {
		t.Fatal("the handshake succeeds")
	}
	return err
}

func trusting(c tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	return pool
}
