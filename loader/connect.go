package loader

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// origin is what the caller's client tells: where to begin, and how to connect to any node.
type origin struct {
	addrs   []string                                           // where to begin
	servers bool                                               // each of addrs is a server of its own (Ring)
	slots   func(context.Context) ([]redis.ClusterSlot, error) // the caller's own list of a cluster's nodes, or nil
	options redis.Options                                      // user, password, TLS, dialer
	make    func(*redis.Options) *redis.Client
}

func originOfClient(o *redis.Options) origin {
	return origin{
		addrs: []string{o.Addr},
		make:  redis.NewClient,
		options: redis.Options{
			Network: o.Network, ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect,
			Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
			CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
			DB: o.DB, TLSConfig: o.TLSConfig,
		},
	}
}

func originOfCluster(o *redis.ClusterOptions) origin {
	return origin{
		addrs: o.Addrs,
		slots: o.ClusterSlots,
		make:  o.NewClient,
		options: redis.Options{
			ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect,
			Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
			CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
			TLSConfig: o.TLSConfig,
		},
	}
}

func originOfRing(o *redis.RingOptions) origin {
	return origin{
		addrs:   slices.Sorted(maps.Values(o.Addrs)),
		servers: true,
		make:    o.NewClient,
		options: redis.Options{
			ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect,
			Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
			CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
			DB: o.DB, TLSConfig: o.TLSConfig,
		},
	}
}

// conn is a connection to one node, opened for one call of the Loader.
type conn struct {
	rdb     *redis.Client
	timeout time.Duration
	user    string

	mu   sync.Mutex
	addr string
}

// open makes a connection that obeys the deadline of each step, and repeats nothing by itself.
func (l *Loader) open(addr string) *conn {
	c := &conn{addr: addr, timeout: l.timeout, user: l.from.options.Username}
	opt := l.from.options
	opt.Addr = addr
	opt.Protocol = 2 // replies in one shape, and nothing pushed in between
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = l.timeout, l.timeout, l.timeout, l.timeout
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.PoolSize = 4 // as many failed dials make go-redis go on dialling in the background
	opt.DisableIdentity = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// A Sentinel's client has no address of its own: its dialer finds out. What it found is what is reported.
	if _, _, err := net.SplitHostPort(addr); err != nil && opt.Dialer != nil && opt.Network != "unix" {
		dial := opt.Dialer
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := dial(ctx, network, addr)
			if err == nil {
				c.mu.Lock()
				c.addr = nc.RemoteAddr().String()
				c.mu.Unlock()
			}
			return nc, err
		}
	}
	c.rdb = l.from.make(&opt)
	return c
}

func (c *conn) close() { _ = c.rdb.Close() }

func (c *conn) address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addr
}

// do runs one step: one command, within its deadline.
func (c *conn) do(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.rdb.Do(ctx, args...).Result()
}
