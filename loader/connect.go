package loader

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// origin holds what a Loader takes from the caller's client: the addresses to start from, and how
// to connect to any node.
type origin struct {
	addrs   []string                                           // addresses to start from
	servers bool                                               // whether each of addrs is an independent server (Ring)
	slots   func(context.Context) ([]redis.ClusterSlot, error) // the caller's own list of the cluster's nodes, or nil
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
			DB: o.DB, TLSConfig: o.TLSConfig, ConnMaxLifetime: o.ConnMaxLifetime,
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
			TLSConfig: o.TLSConfig, ConnMaxLifetime: o.ConnMaxLifetime,
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
			DB: o.DB, TLSConfig: o.TLSConfig, ConnMaxLifetime: o.ConnMaxLifetime,
		},
	}
}

type conn struct {
	rdb     *redis.Client
	timeout time.Duration
	user    string // user that logs in, or ""
	tls     *tls.Config
	trace   func(Step)

	mu   sync.Mutex
	addr string
}

// open makes a connection that obeys the deadline of each step and does not retry.
func (l *Loader) open(addr string, timeout time.Duration) *conn {
	opt := l.from.options
	c := &conn{addr: addr, timeout: timeout, user: opt.Username, tls: opt.TLSConfig, trace: l.trace}
	if opt.Password == "" && opt.CredentialsProvider == nil && opt.CredentialsProviderContext == nil && opt.StreamingCredentialsProvider == nil {
		c.user = "" // without a password, go-redis does not log in; do not show the name, which may be a password in the wrong field
	}
	opt.Addr = addr
	opt.Protocol = 2 // RESP2, which has no maps and no push messages
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = timeout, timeout, timeout, timeout
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.PoolSize = 64 // high, because after this many failed dials go-redis dials in the background, even for a while after Close
	opt.DisableIdentity = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if opt.Dialer == nil {
		opt.Dialer = redis.NewDialer(&opt)
	}
	opt.Dialer = dialing.Limited(opt.Dialer)
	// A Sentinel client has no fixed address: its dialer finds one. Report the address that it
	// found.
	if _, _, err := net.SplitHostPort(addr); err != nil && opt.Network != "unix" {
		dial := opt.Dialer
		if addr == "FailoverClient" { // go-redis reports this instead of an address
			c.addr = "the primary"
		}
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := dial(ctx, network, addr)
			found := ""
			if err == nil {
				found = nc.RemoteAddr().String()
			} else {
				found = dialing.Addr(err)
			}
			if found != "" {
				c.mu.Lock()
				c.addr = found
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

// Step is a command that a Loader is about to send; see [WithTrace].
type Step struct {
	Addr    string // the node
	Command string // such as "FUNCTION LOAD ratelimit", in which the library's name replaces its source code
}

// do runs one step: one command within the step's deadline.
func (c *conn) do(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.tell(args)
	return c.rdb.Do(ctx, args...).Result()
}

// doAndWait runs a write command, then waits until the given number of replicas have it or half of
// the step's deadline has passed. WAIT waits for the last write of its own connection, so both
// commands go through one pipeline.
func (c *conn) doAndWait(ctx context.Context, replicas int, args ...any) (acked int, reply, wait error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	waits := []any{"WAIT", replicas, max(1, c.timeout.Milliseconds()/2)}
	c.tell(args)
	c.tell(waits)
	pipe := c.rdb.Pipeline()
	write, count := pipe.Do(ctx, args...), pipe.Do(ctx, waits...)
	_, _ = pipe.Exec(ctx) // each command has its own error
	acked, wait = count.Int()
	return acked, write.Err(), wait
}

func (c *conn) tell(args []any) {
	if c.trace == nil {
		return
	}
	var words []string
	for _, arg := range args {
		word := fmt.Sprint(arg)
		if line, isLibrary := strings.CutPrefix(word, "#!lua name="); isLibrary {
			word, _, _ = strings.Cut(line, "\n")
		}
		words = append(words, word)
	}
	c.trace(Step{Addr: c.address(), Command: strings.Join(words, " ")})
}
