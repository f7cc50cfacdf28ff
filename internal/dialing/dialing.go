// Package dialing explains why a server cannot be reached and what to do about it. Package loader
// and the command line use its errors.
package dialing

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Classes of errors. An option of the Redis client or a flag of the command can fix each of them.
var (
	ErrNoTLS = &Class{"the server does not speak TLS",
		"leave out TLSConfig if the server does not use TLS",
		"write redis:// in place of rediss:// if the server does not use TLS"}
	ErrClosed = &Class{"the server closes the connection",
		"check the address, and set TLSConfig if the server uses TLS",
		"check the address, and write rediss:// if the server uses TLS"}
	ErrClosedTLS = &Class{"the server closes the TLS connection",
		"check the address and, if the server requires a client certificate, set Certificates of the TLSConfig to one that it trusts",
		"check the address and, if the server requires a client certificate, name the files of one that it trusts with --tls-cert and --tls-key"}
	ErrAuthority = &Class{"unknown authority",
		"add the certificate of the authority to RootCAs of the TLSConfig",
		"name the file with the certificate of the authority with --tls-ca"}
	ErrHost = &Class{"the certificate is for another host",
		"connect to a host that it is for, or set ServerName of the TLSConfig",
		"connect to a host that it is for"}
	ErrCertificate = &Class{"the server does not accept the client's certificate",
		"set Certificates of the TLSConfig to one that the server trusts",
		"name the files of one that the server trusts with --tls-cert and --tls-key"}
	ErrPrimaryName = &Class{"the Sentinels do not know the primary",
		"set MasterName to the name that they know",
		"write the name that they know in redis-sentinel://HOST:26379/NAME"}
	ErrSentinelPassword = &Class{"the Sentinels require a password",
		"set SentinelPassword",
		"write redis-sentinel://HOST:26379/NAME?sentinel_password=PASSWORD"}
	ErrSentinelLogin = &Class{"the Sentinels refuse the login",
		"check SentinelUsername and SentinelPassword",
		"check sentinel_username and sentinel_password in the URL"}
	ErrNotSentinel = &Class{"not a Sentinel",
		"set SentinelAddrs to the addresses of the Sentinels, whose port is usually 26379",
		"give the addresses of the Sentinels, whose port is usually 26379, or write redis:// in place of redis-sentinel://"}
)

// Class is a class of errors, with advice on what to do about them.
type Class struct {
	name   string
	remedy string // for Go programs
	Hint   string // remedy for users of the command
}

func (c *Class) Error() string { return c.name }

// Error says why a server cannot be reached, and what to do.
type Error struct {
	Class   *Class // one of the Err values, or nil
	Problem string // why the server cannot be reached
	Remedy  string // what to do
	Err     error  // the error from the connection
}

// Error returns the problem and the remedy in one line.
func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Problem
	}
	return e.Problem + "; " + e.Remedy
}

// Unwrap returns the class and the error from the connection.
func (e *Error) Unwrap() []error {
	if e.Class == nil {
		return []error{e.Err}
	}
	return []error{e.Class, e.Err}
}

// PasswordError reports why no password is available to log in with, and what to do. It wraps no
// error: if it did, go-redis would return the wrapped error instead.
type PasswordError struct{ Problem, Remedy string }

// Error returns the problem and the remedy in one line.
func (e *PasswordError) Error() string { return e.Problem + "; " + e.Remedy }

// New returns the error for the server called name. err comes from a connection attempt or from
// waiting for a reply; timeout limits how long either may take. config is nil without TLS. The
// parameter check is the remedy if no better one is known.
func New(name string, err error, config *tls.Config, timeout time.Duration, check string) *Error {
	if errors.Is(err, context.Canceled) {
		return &Error{Problem: fmt.Sprintf("interrupted before %s answered", name), Err: err}
	}
	if password, ok := errors.AsType[*PasswordError](err); ok {
		return &Error{Problem: fmt.Sprintf("cannot log in to %s: %s", name, password.Problem), Remedy: password.Remedy, Err: err}
	}
	reason, remedy, class := why(err, config, timeout)
	if class != nil {
		remedy = class.remedy
	}
	return &Error{Class: class, Problem: fmt.Sprintf("cannot reach %s: %s", name, reason), Remedy: cmp.Or(remedy, check), Err: err}
}

// why returns the reason for err in words and, if known, its class or a remedy.
func why(err error, config *tls.Config, timeout time.Duration) (reason, remedy string, class *Class) {
	if AtSentinels(err) {
		return atSentinels(err, config, timeout)
	}
	if config != nil {
		if reason, remedy, class = certificate(err, config.RootCAs != nil, len(config.Certificates) > 0 || config.GetClientCertificate != nil); reason != "" {
			return reason, remedy, class
		}
	}
	var host *net.DNSError
	var network net.Error
	var silent noAnswer
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", "", nil
	case errors.Is(err, os.ErrNotExist):
		return "the socket does not exist", "", nil
	case errors.As(err, &host):
		return fmt.Sprintf("there is no host named %q", host.Name), "", nil
	case errors.As(err, &silent):
		if config != nil {
			class = ErrNoTLS
		}
		return silent.Error(), "", class
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		if config != nil {
			class = ErrNoTLS
		}
		return fmt.Sprintf("no answer within %v", timeout), "", class
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		if config != nil {
			return "it closes the connection", "", ErrClosedTLS
		}
		return "it closes the connection", "", ErrClosed
	}
	if Gibberish(err) {
		return fmt.Sprintf("it does not speak the Redis protocol (%v)", err), "check the address", nil
	}
	return err.Error(), "", nil
}

// Gibberish reports whether err means that a reply was too large, or that go-redis could not parse
// it. go-redis has no error type for the second case.
func Gibberish(err error) bool {
	if _, ok := errors.AsType[*ReplyError](err); ok {
		return true
	}
	for _, other := range []error{redis.ErrPoolTimeout, redis.ErrPoolExhausted, redis.ErrClosed} {
		if errors.Is(err, other) {
			return false
		}
	}
	return strings.HasPrefix(err.Error(), "redis: ")
}

// certificate explains a TLS error, or returns "" if err has another cause. chosen is true if the
// caller chose the trusted authorities, and ours is true if it has a client certificate.
func certificate(err error, chosen, ours bool) (reason, remedy string, class *Class) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &unknown) && chosen:
		return "its certificate is not signed by one of the given authorities", "", ErrAuthority
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that this machine does not trust", "", ErrAuthority
	case errors.As(err, &name):
		names := name.Certificate.DNSNames
		for _, ip := range name.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
		if len(names) == 0 {
			return "its certificate is for no host", "issue one for " + name.Host, nil
		}
		return fmt.Sprintf("its certificate is for %s, not for %s", strings.Join(names, ", "), name.Host), "", ErrHost
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		const day = "2006-01-02 15:04 UTC"
		return fmt.Sprintf("its certificate is valid from %s to %s only", invalid.Cert.NotBefore.UTC().Format(day), invalid.Cert.NotAfter.UTC().Format(day)),
			"renew it, or set this machine's clock", nil
	case errors.As(err, &plain):
		return "it does not speak TLS", "", ErrNoTLS
	case errors.As(err, &alert) && alert.Op == "remote error":
		text := strings.TrimPrefix(alert.Err.Error(), "tls: ")
		switch {
		case text == "certificate required", !ours && (text == "handshake failure" || strings.Contains(text, "certificate")):
			return "it requires a client certificate (" + text + ")", "", ErrCertificate
		case strings.Contains(text, "certificate"):
			return "it refuses the client certificate (" + text + ")", "", ErrCertificate
		}
		return "it ends the TLS handshake (" + text + ")", "", nil
	}
	return "", "", nil
}

// Files returns a copy of config with the certificates of authorities to trust, and a client certificate
// with its key, from PEM files; "" for none. In errors, the flags that name the files are prefix followed
// by ca, cert and key. A renewed certificate is used from the next connection on. If its file and that of
// the key do not fit together, the certificate of the last connection is used.
func Files(config *tls.Config, prefix, ca, cert, key string) (*tls.Config, error) {
	config = config.Clone()
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%[1]scert and %[1]skey belong together; give both", prefix)
	}
	if cert != "" {
		first, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%[1]scert and %[1]skey: %[2]w; name files in PEM form that belong together", prefix, err)
		}
		var last atomic.Pointer[tls.Certificate]
		last.Store(&first)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if renewed, err := tls.LoadX509KeyPair(cert, key); err == nil {
				last.Store(&renewed)
			}
			return last.Load(), nil
		}
	}
	if ca == "" {
		return config, nil
	}
	var err error
	config.RootCAs, err = Authorities(prefix+"ca", ca)
	return config, err
}

// Authorities returns the certificates in a PEM file. flag names the file in errors.
func Authorities(flag, file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name a file with certificates", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s contains no certificate; name a file in PEM form", flag, file)
	}
	return pool, nil
}

// AtSentinels reports whether err means that a failover client got no primary from its Sentinels,
// because it could not reach them or because they do not know the primary. go-redis has no error
// type for this case.
func AtSentinels(err error) bool {
	return strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable")
}

// Addr returns the address that could not be dialed. It returns "" if err does not contain the
// address, or if it is the address of a Sentinel.
func Addr(err error) string {
	var dial *net.OpError
	if AtSentinels(err) || !errors.As(err, &dial) || dial.Op != "dial" || dial.Addr == nil {
		return ""
	}
	return dial.Addr.String()
}

func atSentinels(err error, config *tls.Config, timeout time.Duration) (reason, remedy string, class *Class) {
	var reply redis.Error
	var each interface{ Unwrap() []error }
	if !errors.As(err, &reply) && errors.As(err, &each) {
		reason, remedy, class := why(each.Unwrap()[0], config, timeout)
		return "no Sentinel answers: " + reason, remedy, class
	}
	return refused(reply)
}

// Refusal returns what the Sentinels replied in place of the address of the primary, in words, and what
// a user can do about it. It returns "" if the reply in err is not from Sentinels.
func Refusal(err error, reply redis.Error) (why, hint string) {
	if !AtSentinels(err) {
		return "", ""
	}
	why, _, class := refused(reply)
	if class != nil {
		hint = class.Hint
	}
	return why, hint
}

func refused(reply redis.Error) (reason, remedy string, class *Class) {
	code, _, _ := strings.Cut(reply.Error(), " ")
	switch {
	case reply == redis.Nil:
		return "the Sentinels do not watch a primary of this name", "", ErrPrimaryName
	case code == "NOAUTH":
		return "the Sentinels require a password", "", ErrSentinelPassword
	case code == "WRONGPASS":
		return "the Sentinels refuse the login", "", ErrSentinelLogin
	case strings.HasPrefix(reply.Error(), "ERR unknown command"):
		return "it is not a Sentinel", "", ErrNotSentinel
	}
	return "the Sentinels do not name the primary (" + reply.Error() + ")", "", nil
}
