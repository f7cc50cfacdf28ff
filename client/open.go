package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
)

// Open returns a Client of the servers that url names, with connections of its own that are set for decisions: a call
// ends at its deadline without a goroutine, no call that counts is repeated, and a server that is back is noticed at once.
// [Client.Close] closes them.
//
//	redis://user:password@host:6379       one server; /2 at the end for database 2
//	redis://host:6379,host:6379           nodes of a cluster, any of them (redis+cluster://host:6379 where there is but one)
//	redis-sentinel://host:26379,host:26379/name   the primary that Sentinels know by this name
//	unix:///run/redis.sock                one server
//
// rediss, rediss+cluster and rediss-sentinel are the same over TLS. Options of go-redis may follow, as in ?pool_size=100;
// dial_timeout is 1 s unless it is given. Open sends nothing: servers that cannot be reached show at the first call, or
// at [Client.Check].
//
// It fails when url cannot be read or when options contradict each other. The error does not show a password.
func Open(url string, opts ...Option) (*Client, error) {
	return openServers(url, redisurl.Dialer, opts)
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

func openServers(url string, dialerOf func(*redis.Options) dial, opts []Option) (*Client, error) {
	s, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: client.Open: the URL %w", err)
	}
	c := &Client{opened: true}
	if err := c.set("client.Open", opts); err != nil {
		return nil, err
	}
	if err := c.secure(&s.Options); err != nil {
		return nil, err
	}
	// The timeouts of the connections are no shorter than those of calls, which deadlines end: they are for what go-redis
	// does by itself, such as asking a cluster for its nodes.
	s.Punctual(max(c.timeout, time.Second))
	s.Options.Dialer = dialer(dialerOf(&redis.Options{Addr: s.Addrs[0], DialTimeout: s.Options.DialTimeout, TLSConfig: s.Options.TLSConfig}))
	c.start(s.Open())
	return c, nil
}

// WithTLS sets which authorities a TLS connection trusts, which certificate it shows, and the like. It is for [Open] with a
// URL such as rediss://; an rdb that [New] takes has its own.
func WithTLS(config *tls.Config) Option {
	return func(c *Client) error {
		switch {
		case config == nil:
			return errors.New("the configuration of WithTLS is nil; leave WithTLS out to trust what this machine trusts")
		case !c.opened:
			return errors.New("WithTLS is for Open; set TLSConfig in the options of the Redis client")
		}
		c.tls = config
		return nil
	}
}

// secure puts what WithTLS gave into the options of the connections.
func (c *Client) secure(o *redis.Options) error {
	if c.tls == nil {
		return nil
	}
	if o.TLSConfig == nil {
		return errors.New("ratelimit: client.Open: WithTLS is about TLS, and the URL does not ask for it; write rediss:// in place of redis://")
	}
	config := c.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = o.TLSConfig.ServerName
	}
	o.TLSConfig = config
	return nil
}

// dialer dials as dial does, but an error comes from the first use of the connection in place of from the dial. go-redis
// counts dials that fail, and after as many as the pool is large it fails every call without a look at the server, until
// a goroutine that looks once a second finds it back.
func dialer(dial dial) dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return notConnected{&dialFailed{err}}, nil
		}
		return conn, nil
	}
}

// dialFailed is why a connection could not be made. It hides that from go-redis, which would try again, and wait before.
type dialFailed struct{ cause error }

func (d *dialFailed) Error() string { return d.cause.Error() }

// notConnected is a connection that could not be made.
type notConnected struct{ err *dialFailed }

func (c notConnected) Read([]byte) (int, error)  { return 0, c.err }
func (c notConnected) Write([]byte) (int, error) { return 0, c.err }

func (notConnected) Close() error                     { return nil }
func (notConnected) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (notConnected) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (notConnected) SetDeadline(time.Time) error      { return nil }
func (notConnected) SetReadDeadline(time.Time) error  { return nil }
func (notConnected) SetWriteDeadline(time.Time) error { return nil }
