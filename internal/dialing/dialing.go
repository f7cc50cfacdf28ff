// Package dialing explains why a server cannot be reached and what to do, for the error sentences
// of loader and of the command line.
package dialing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sentinel is the error text for a Sentinel that was given in place of a data server.
const Sentinel = "is a Sentinel, which holds no data; name the primary that it watches with --sentinel (MasterName), or connect to that primary"

// Sentence says that the server called name cannot be reached, why, and what to do. check is the
// advice to give if nothing more is known. err comes from a connection attempt or from waiting for
// a reply, within timeout, over TLS if config is not nil.
func Sentence(name string, err error, config *tls.Config, timeout time.Duration, check string) string {
	if errors.Is(err, context.Canceled) {
		return fmt.Sprintf("interrupted before %s answered", name)
	}
	because, do := why(err, config, timeout)
	if do == "" {
		do = check
	}
	return fmt.Sprintf("cannot reach %s: %s; %s", name, because, do)
}

// why returns the meaning of err and what to do, or "" if all that one can do is check the address
// and the server.
func why(err error, config *tls.Config, timeout time.Duration) (because, do string) {
	if AtSentinels(err) {
		return atSentinels(err, config, timeout)
	}
	if config != nil {
		if because, do = certificate(err, config.RootCAs != nil, len(config.Certificates) > 0 || config.GetClientCertificate != nil); because != "" {
			return because, do
		}
	}
	var host *net.DNSError
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", ""
	case errors.Is(err, os.ErrNotExist):
		return "there is no such socket", ""
	case errors.As(err, &host):
		return fmt.Sprintf("there is no host named %q", host.Name), ""
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		if config != nil {
			do = "does it speak TLS? redis in place of rediss in the URL goes without"
		}
		return fmt.Sprintf("no answer within %v", timeout), do
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		do = "check the address, and whether it wants TLS (rediss://)"
		if config != nil {
			do = "check the address, and whether it asks for a certificate of ours: --tls-cert and --tls-key (Certificates of the TLSConfig)"
		}
		return "it closes the connection", do
	}
	if Gibberish(err) {
		return fmt.Sprintf("it does not speak the Redis protocol (%v)", err), "check the address"
	}
	return err.Error(), ""
}

// Gibberish reports whether go-redis could not parse the reply. go-redis has no error type for
// that.
func Gibberish(err error) bool {
	for _, other := range []error{redis.ErrPoolTimeout, redis.ErrPoolExhausted, redis.ErrClosed} {
		if errors.Is(err, other) {
			return false
		}
	}
	return strings.HasPrefix(err.Error(), "redis: ")
}

// certificate returns what is wrong with TLS, or "" if err is something else. chosen means that the
// user named the trusted authorities.
func certificate(err error, chosen, ours bool) (why, do string) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	var alert *net.OpError
	const give = "with --tls-cert and --tls-key (Certificates of the TLSConfig)"
	switch {
	case errors.As(err, &unknown) && chosen:
		return "its certificate is signed by none of the authorities that were named", "name the file with the certificate of the one that signed it with --tls-ca (RootCAs of the TLSConfig)"
	case errors.As(err, &unknown):
		return "its certificate is signed by no authority that is trusted here", "name the file with its authority's certificate with --tls-ca (RootCAs of the TLSConfig)"
	case errors.As(err, &name):
		names := name.Certificate.DNSNames
		for _, ip := range name.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
		if len(names) == 0 {
			return "its certificate names no host", "have it issued for " + name.Host
		}
		return fmt.Sprintf("its certificate is for %s, and not for %s", strings.Join(names, ", "), name.Host), "connect by a name that it is for (or set ServerName of the TLSConfig)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		const day = "2006-01-02 15:04 UTC"
		return fmt.Sprintf("its certificate is valid from %s to %s only", invalid.Cert.NotBefore.UTC().Format(day), invalid.Cert.NotAfter.UTC().Format(day)),
			"have it renewed, or set this machine's clock"
	case errors.As(err, &plain):
		return "it does not speak TLS", "write redis in place of rediss in the URL"
	case errors.As(err, &alert) && alert.Op == "remote error":
		text := strings.TrimPrefix(alert.Err.Error(), "tls: ")
		switch {
		case text == "certificate required", text == "handshake failure" && !ours:
			return "it asks for a certificate of ours (" + text + ")", "give one " + give
		case ours && strings.Contains(text, "certificate"):
			return "it refuses our certificate (" + text + ")", "give one that it trusts " + give
		}
		return "it ends the TLS handshake (" + text + ")", ""
	}
	return "", ""
}

// AtSentinels reports whether the Sentinels of a failover client could not be asked for the
// primary, or did not know it. go-redis has no error type for that.
func AtSentinels(err error) bool {
	return strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable")
}

// Addr returns the address that could not be dialed, if err has one and it is not a Sentinel's.
func Addr(err error) string {
	var dial *net.OpError
	if AtSentinels(err) || !errors.As(err, &dial) || dial.Op != "dial" || dial.Addr == nil {
		return ""
	}
	return dial.Addr.String()
}

func atSentinels(err error, config *tls.Config, timeout time.Duration) (because, do string) {
	var reply redis.Error
	var each interface{ Unwrap() []error }
	if !errors.As(err, &reply) && errors.As(err, &each) {
		because, do := why(each.Unwrap()[0], config, timeout)
		return "no Sentinel answers: " + because, do
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	switch {
	case errors.Is(err, redis.Nil):
		return "the Sentinels watch no primary of this name", "give the name that they know with --sentinel (MasterName)"
	case code == "NOAUTH":
		return "the Sentinels want a password", "give it as in redis-sentinel://host:26379/name?sentinel_password=PASSWORD (SentinelPassword)"
	case code == "WRONGPASS":
		return "the Sentinels refuse the login", "check sentinel_username and sentinel_password in the URL (SentinelUsername, SentinelPassword)"
	case strings.HasPrefix(reply.Error(), "ERR unknown command"):
		return "it is no Sentinel", "give the addresses of the Sentinels, whose port is usually 26379, or leave out --sentinel (redis-sentinel://)"
	}
	return "the Sentinels do not name the primary (" + reply.Error() + ")", ""
}
