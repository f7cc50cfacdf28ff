package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
)

// Open returns a Client for the servers in url. The Client has its own connections, configured for
// rate limiting: a call ends at its deadline, go-redis does not retry a call that writes, and the client notices immediately that a server is back. [Client.Close] closes
// the connections.
//
//	redis://user:password@host:6379       one server; /2 at the end for database 2
//	redis://host:6379,host:6379           nodes of a cluster, any of them (redis+cluster://host:6379 for a single one)
//	redis-sentinel://host:26379,host:26379/name   the primary that Sentinels know by this name
//	unix:///run/redis.sock                one server
//
// The schemes rediss, rediss+cluster and rediss-sentinel are the same over TLS. Options of go-redis
// may follow, as in ?pool_size=100; dial_timeout is 1 s by default. If a Sentinel does not answer
// within a quarter of dial_timeout, the others are asked. Open itself sends nothing: if a server is
// unreachable, the first call or [Client.Check] fails.
//
// A connection fails if the server announces a reply of more than 64 MB or
// 524,288 elements, so that an impostor cannot use up the memory of this process. It could still
// make decisions: use rediss if the network is not trusted.
//
// Open returns an error if url or an option is invalid. The error does not contain the password.
func Open(url string, opts ...Option) (*Client, error) {
	return openServers(url, redisurl.Dialer, opts)
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

func openServers(url string, dialerOf func(*redis.Options) dial, opts []Option) (*Client, error) {
	s, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("ratelimit: client.Open: the URL %w", err)
	}
	c, err := configure("client.Open", true, opts)
	if err != nil {
		return nil, err
	}
	if err := c.secure(&s.Options); err != nil {
		return nil, err
	}
	// This timeout is only for the commands that go-redis sends on its own, for example to list the
	// nodes of a cluster. Every call has its own deadline.
	s.Punctual(max(c.timeout, time.Second))
	s.Options.Dialer = dialing.Late(dialerOf(&redis.Options{Addr: s.Addrs[0], DialTimeout: s.Options.DialTimeout, TLSConfig: s.Options.TLSConfig}))
	return c.build(s.Open()), nil
}

// WithTLS sets the TLS configuration, such as trusted authorities and client certificates. It is
// for [Open] with a URL such as rediss://host:6379; an rdb given to [New] has its own
// configuration.
func WithTLS(tls *tls.Config) Option {
	return option("WithTLS", "a configuration", func(c *config) error {
		switch {
		case tls == nil:
			return errors.New("the configuration of WithTLS is nil; leave WithTLS out to trust what this machine trusts")
		case !c.opened:
			return errors.New("WithTLS is for Open; set TLSConfig in the options of the Redis client")
		}
		c.tls = tls
		return nil
	})
}

// secure copies the TLS configuration given to WithTLS into the connection options.
func (c *config) secure(o *redis.Options) error {
	if c.tls == nil {
		return nil
	}
	if o.TLSConfig == nil {
		return errors.New("ratelimit: client.Open: WithTLS is about TLS, and the URL does not ask for it; write rediss:// in place of redis://")
	}
	tls := c.tls.Clone()
	tls.ServerName = cmp.Or(tls.ServerName, o.TLSConfig.ServerName)
	o.TLSConfig = tls
	return nil
}
