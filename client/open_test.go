package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestOpenRefuses(t *testing.T) {
	const such = "; give one such as redis://user:password@host:6379"
	for _, tt := range []struct {
		url  string
		opts []client.Option
		want string
	}{
		{"", nil, "the URL is empty" + such},
		{"http://h", nil, "the URL http://h is not usable (invalid URL scheme: http)" + such},
		{"redis://u:secret@h/x", nil, `the URL redis://u:xxxxx@h/x is not usable (invalid database number: "x")` + such},
		{"redis-sentinel://h", nil, "the URL does not name the primary that the Sentinels watch; give one such as redis-sentinel://host:26379,host:26379/name"},
		{"redis://h", []client.Option{client.WithTimeout(-1)}, "the timeout -1ns is not above 0; give one such as 500ms"},
		{"redis://h", []client.Option{client.WithTLS(&tls.Config{})}, "WithTLS is about TLS, and the URL does not ask for it; write rediss:// in place of redis://"},
		{"rediss://h", []client.Option{client.WithTLS(nil)}, "the configuration of WithTLS is nil; leave WithTLS out to trust what this machine trusts"},
	} {
		c, err := client.Open(tt.url, tt.opts...)
		if c != nil || err == nil || err.Error() != "ratelimit: client.Open: "+tt.want {
			t.Errorf("%s: %v, %v\nwant %s", tt.url, c, err, tt.want)
		}
	}
}

// A URL can name every kind of server.
func TestOpenOfServers(t *testing.T) {
	server, _ := deployed(t)
	nodes := startCluster(t)
	flushCluster(t, nodes)
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "127.0.0.1")
	config := &tls.Config{RootCAs: trusted}
	secure := redistest.Run(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	deploy(t, connect(t, redis.Options{Addr: secure.Addr, TLSConfig: config}))
	sentinel := startSentinel(t, server.Addr)
	for url, opts := range map[string][]client.Option{
		"redis://" + server.Addr:                          nil,
		"redis://" + server.Addr + "/2?pool_size=1":       nil,
		nodes.nodes[0].Addr + "," + nodes.nodes[1].Addr:   nil,
		"redis+cluster://" + nodes.nodes[1].Addr:          nil,
		"redis-sentinel://" + sentinel + "/main":          nil,
		"rediss://" + secure.Addr:                         {client.WithTLS(config)},
		"rediss://" + secure.Addr + "/1?skip_verify=true": nil,
	} {
		c := open(t, url, append(opts, client.WithTimeout(slow))...)
		for _, key := range []string{lowKey, highKey} {
			if got, err := c.Allow(t.Context(), url+key, perDay); err != nil || got.Remaining != 9 {
				t.Errorf("%s: %+v, %v", url, got, err)
			}
		}
	}
	_, err := open(t, "rediss://"+secure.Addr).Allow(t.Context(), "k", perDay)
	wantClasses(t, "an authority that nobody trusts", err, client.ErrUnavailable)
}

// looked is a context that counts the calls to Done.
type looked struct {
	context.Context
	times atomic.Int64
}

func (l *looked) Done() <-chan struct{} { l.times.Add(1); return l.Context.Done() }

// If a connection is free, nothing waits for the end of the context, so there is no timer and no
// goroutine.
func TestADeadlineCostsNoTimer(t *testing.T) {
	server, _ := wholeCluster(t)
	for _, url := range []string{"redis://" + server.Addr, "redis+cluster://" + server.Addr} {
		c := open(t, url, client.WithTimeout(slow))
		must[client.Result](t)(c.Allow(t.Context(), "k", perDay)) // makes the connection
		ctx := &looked{Context: t.Context()}
		must[client.Result](t)(c.Allow(ctx, "k", perDay))
		if n := ctx.times.Load(); n > 1 {
			t.Errorf("%s: looked for its end %d times, want once: each more makes a timer", url, n)
		}
	}
}

// With Open, go-redis does not dial in the background, even after many calls have failed.
// Otherwise, calls would fail in the meantime, and go-redis would try the server only once a
// second.
func TestOpenFindsAServerThatIsBack(t *testing.T) {
	server := redistest.Run(t)
	_, port, _ := net.SplitHostPort(server.Addr)
	eventually(t, "nobody else dials", func() bool { return !dials() })
	c := open(t, "redis://"+server.Addr+"?pool_size=2", client.WithTimeout(slow))
	server.Stop()
	for i := range 10 {
		_, err := c.Allow(t.Context(), "k", perDay)
		wantClasses(t, "gone", err, client.ErrUnavailable)
		if i == 0 && !strings.Contains(err.Error(), "no connection, nothing was counted (") || !strings.Contains(err.Error(), "connection refused") {
			t.Fatalf("%v, want that the connection was refused", err)
		}
	}
	if dials() {
		t.Error("go-redis dials in the background")
	}
	back := must[*redistest.Server](t)(redistest.Start("redis-server", "--port", port))
	defer back.Stop()
	deploy(t, connect(t, redis.Options{Addr: back.Addr}))
	eventually(t, "the server is found again", func() bool {
		_, err := c.Allow(t.Context(), "k", perDay)
		return err == nil
	})
}

// dials reports whether a pool of go-redis is dialing in the background.
func dials() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), dialing)
}

func TestClose(t *testing.T) {
	server, rdb := deployed(t)
	for name, c := range map[string]*client.Client{
		"Open": must[*client.Client](t)(client.Open("redis://"+server.Addr, client.WithFallback(client.FailOpen), client.WithTimeout(slow))),
		"New":  newClient(t, rdb, client.WithFallback(client.FailOpen)),
	} {
		must[client.Result](t)(c.Allow(t.Context(), "k", perDay))
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for verb, call := range everyCall(t.Context(), c, "k") {
			err := call()
			if err == nil || !strings.HasSuffix(err.Error(), ": not sent, since the client is closed; Close it when nothing asks any more") {
				t.Errorf("%s, %s: %v", name, verb, err)
			}
			wantClasses(t, verb, err, client.ErrUnavailable)
		}
	}
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("Close closed the Redis client of another: %v", err)
	}
	if n := left(t, newClient(t, rdb), "k", perDay); n != 8 {
		t.Errorf("%d are left, want 8", n)
	}
}

// If a function given to WithHealer ignores its context, Close returns an error.
func TestCloseWhileAHealerHangs(t *testing.T) {
	let, began := make(chan struct{}), make(chan struct{})
	c := newClient(t, &fake{err: answered("ERR Function not found")}, client.WithTimeout(bound),
		client.WithHealer(func(context.Context, redis.UniversalClient) error {
			close(began)
			<-let
			return nil
		}))
	_, err := c.Allow(t.Context(), "k", perDay)
	wantClasses(t, "no library", err, client.ErrNotDeployed)
	<-began
	wantText(t, c.Close(), "ratelimit: Close: 1 goroutines still run; a function given to WithHealer must return when its context ends")
	close(let)
}

// A call that timed out before it had a connection is never executed, because it was reported as
// not counted.
func TestLeftBehindIsNotExecuted(t *testing.T) {
	server := redistest.Run(t)
	rdb := connect(t, redis.Options{Addr: server.Addr, PoolSize: 1, PoolTimeout: slow, ReadTimeout: slow})
	deploy(t, rdb)
	c := newClient(t, rdb, client.WithTimeout(bound))
	held := rdb.Conn() // takes the only connection
	require(t, held.Ping(t.Context()).Err())
	_, err := c.Allow(t.Context(), "k", perDay)
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want ErrUnavailable alone", err)
	}
	require(t, held.Close())
	if err := c.Close(); err != nil { // waits for the abandoned call
		t.Fatal(err)
	}
	if n := left(t, newClient(t, rdb), "k", perDay); n != 10 {
		t.Errorf("%d are left of 10: a call that was said to count nothing was executed", n)
	}
}
