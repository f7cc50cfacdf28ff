package remedy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// TestFor checks that the advice is for operators, and names what they have: flags and commands, not
// Go packages.
func TestFor(t *testing.T) {
	build := redistest.Must[functions.Build](t)(functions.New())
	for _, tt := range []struct {
		reply string // the server's reply to each call; "" for a server without the library
		call  func(*client.Client) error
		want  string
	}{
		{"", take, "deploy it with ratelimit deploy, or start the gateway with --deploy"},
		{"NOPERM this user has no permissions", take, "print the rights that it needs with: ratelimit acl application --all-keys"},
		{"ERR The user executing the script can't run this command", take, "ratelimit acl application --all-keys"},
		{"NOPERM this user has no permissions", reset, "ratelimit acl application --all-keys; and grant it +fcall|ratelimit_reset"},
		{"NOAUTH Authentication required.", take, "write redis://:PASSWORD@host:port in REDIS_URL, or set REDIS_AUTH beside the variables of envoyproxy/ratelimit"},
		{"WRONGPASS invalid username-password pair", take, "check the user name and the password, which are in REDIS_URL or --redis, or in REDIS_AUTH beside the variables of envoyproxy/ratelimit"},
		{"MOVED 1 127.0.0.1:1", take, "write redis+cluster:// in the URL of the servers"},
		{"OK", take, "find out what runs there with: ratelimit status"},
	} {
		source := fmt.Sprintf("#!lua name=ratelimit\nlocal function refuse() return redis.error_reply(%q) end\nredis.register_function('ratelimit_take', refuse)\nredis.register_function('ratelimit_reset', refuse)", tt.reply)
		switch tt.reply {
		case "OK":
			source = strings.ReplaceAll(source, "error_reply", "status_reply")
		case "":
			source = strings.ReplaceAll(build.Text(), "ratelimit_take", "other_take")
		}
		limiter := redistest.Must[*client.Client](t)(client.Open("redis://" + embedded.Run(t, embedded.WithLibrary(source)).Addr()))
		err := tt.call(limiter)
		redistest.Require(t, limiter.Close())
		if got := remedy.For(err); got == nil || !strings.HasSuffix(got.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.reply, got, tt.want)
		}
	}
}

// TestForDeploy does so for errors of a deployment, of which each server can have one.
func TestForDeploy(t *testing.T) {
	const forGo = "call acl.Rules"
	for want, e := range map[string]nodes.Error{
		"print the rights that it needs for --deploy with: ratelimit acl deployer; or run ratelimit deploy as another user": {Class: nodes.ErrNoPermission, Code: "NOPERM"},
		"or set REDIS_AUTH beside the variables of envoyproxy/ratelimit":                                                    {Class: nodes.ErrNoPermission, Code: "NOAUTH"},
		"or in REDIS_AUTH beside the variables of envoyproxy/ratelimit":                                                     {Class: nodes.ErrNoPermission, Code: "WRONGPASS"},
		"for host:port beside the variables of envoyproxy/ratelimit, set REDIS_SOCKET_TYPE=tcp":                             {Class: nodes.ErrUnreachable, Err: os.ErrNotExist},
		"delete it with FUNCTION DELETE ratelimit":                                                                          {Class: nodes.ErrForeign},
		"deploy it with ratelimit deploy, or start the gateway with --deploy":                                               {Class: nodes.ErrNoLibrary},
		"free memory": {Class: nodes.ErrNotWritable, Remedy: "free memory"},
	} {
		e.Problem = "h:1 fails"
		if e.Remedy == "" {
			e.Remedy = forGo
		}
		other := errors.New("other")
		got := remedy.For(errors.Join(&e, other))
		if text := got.Error(); !strings.HasPrefix(text, "h:1 fails; ") || !strings.HasSuffix(text, want+"\nother") || strings.Contains(text, forGo) || !errors.Is(got, other) || !errors.Is(got, e.Class) {
			t.Errorf("%v\nwant %s", got, want)
		}
	}
}

// TestForSocket checks that an error about a socket that is not there names the variable of
// envoyproxy/ratelimit without which an address is the path of a socket.
func TestForSocket(t *testing.T) {
	limiter := redistest.Must[*client.Client](t)(client.Open("unix:///none/redis"))
	err := take(limiter)
	redistest.Require(t, limiter.Close())
	if got := remedy.For(err); got == nil || !strings.HasSuffix(got.Error(), "; check the path; for host:port beside the variables of envoyproxy/ratelimit, set REDIS_SOCKET_TYPE=tcp") {
		t.Error(got)
	}
}

// TestForTLS checks that an error of a connection with TLS, or without it, says what to do.
func TestForTLS(t *testing.T) {
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "127.0.0.1")
	elsewhere, itsKey := redistest.CertificateFiles(t, trusted, "", "db.example")
	server := func(cert, key string) string {
		return redistest.Run(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert).Addr
	}
	strict, other := server(cert, key), server(elsewhere, itsKey)
	config := client.WithTLS(&tls.Config{RootCAs: trusted})
	stranger := client.WithTLS(&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{redistest.Must[tls.Certificate](t)(tls.LoadX509KeyPair(elsewhere, itsKey))}})
	for _, tt := range []struct {
		url     string
		options []client.Option
		want    string
	}{
		{"rediss://" + strict, nil, "name the file with the certificate of the authority in --redis-tls-ca, or in REDIS_TLS_CACERT beside the variables of envoyproxy/ratelimit"},
		{"rediss://" + other, []client.Option{config}, "connect to a host that it is for"},
		{"rediss://" + strict, []client.Option{config}, "name a certificate that the server trusts in --redis-tls-cert, and its key in --redis-tls-key; or in REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY beside the variables of envoyproxy/ratelimit"},
		{"rediss://" + strict, []client.Option{stranger}, "name a certificate that the server trusts in --redis-tls-cert, and its key in --redis-tls-key; or in REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY beside the variables of envoyproxy/ratelimit"},
		{"redis://" + strict, nil, "check the address, and that the URL begins with rediss:// if the server uses TLS, and with redis:// if it does not"},
	} {
		limiter := redistest.Must[*client.Client](t)(client.Open(tt.url, append(tt.options, client.WithTimeout(time.Minute))...))
		// A server that refuses a certificate may close the connection before the client has read why.
		redistest.Eventually(t, tt.want, func() bool {
			err := limiter.Check(t.Context())
			return err != nil && strings.HasSuffix(remedy.For(err).Error(), "; "+tt.want)
		})
		redistest.Require(t, limiter.Close())
	}
}

func take(c *client.Client) error {
	_, err := c.Allow(context.Background(), "a", "1/s")
	return err
}

func reset(c *client.Client) error {
	_, err := c.Reset(context.Background(), "a")
	return err
}
