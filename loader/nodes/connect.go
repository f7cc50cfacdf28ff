package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// Origin says how to reach the servers that a go-redis client points to: the addresses to start from,
// and how to connect to any node.
type Origin struct {
	addrs   []string                                           // addresses to start from
	servers bool                                               // whether each of addrs is an independent server (Ring)
	slots   func(context.Context) ([]redis.ClusterSlot, error) // the caller's own list of the cluster's nodes, or nil
	options redis.Options                                      // user, password, TLS, dialer
	make    func(*redis.Options) *redis.Client
}

// shared are the fields of redis.Options that an Origin takes from a client, if its options have them.
var shared = []string{"Network", "ClientName", "Dialer", "OnConnect", "Username", "Password", "CredentialsProvider",
	"CredentialsProviderContext", "StreamingCredentialsProvider", "DB", "TLSConfig", "ConnMaxLifetime"}

// Of returns the Origin of the servers that rdb points to. rdb is a *redis.Client, a
// *redis.ClusterClient or a *redis.Ring. Of sends nothing, and rdb itself is neither used nor closed.
func Of(rdb redis.UniversalClient) (Origin, error) {
	var o Origin
	var of any
	switch c := rdb.(type) {
	case nil:
		return o, errors.New("the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient")
	case *redis.Client:
		of = c.Options()
		o.addrs, o.make = []string{c.Options().Addr}, redis.NewClient
	case *redis.ClusterClient:
		of = c.Options()
		o.addrs, o.make, o.slots = c.Options().Addrs, c.Options().NewClient, c.Options().ClusterSlots
	case *redis.Ring:
		of = c.Options()
		o.addrs, o.make, o.servers = slices.Sorted(maps.Values(c.Options().Addrs)), c.Options().NewClient, true
	default:
		return o, fmt.Errorf("a %T does not say how to reach each server; pass a *redis.Client, *redis.ClusterClient or *redis.Ring", rdb)
	}
	if len(o.addrs) == 0 && o.slots == nil {
		return o, errors.New("the Redis client has no address; give it one")
	}
	from, to := reflect.ValueOf(of).Elem(), reflect.ValueOf(&o.options).Elem()
	for _, name := range shared {
		if field := from.FieldByName(name); field.IsValid() {
			to.FieldByName(name).Set(field)
		}
	}
	return o, nil
}

// Conn is a connection to one server.
type Conn struct {
	rdb     *redis.Client
	timeout time.Duration
	user    string // user that logs in, or ""
	tls     *tls.Config
	trace   func(addr, command string)

	mu   sync.Mutex
	addr string
}

// open makes a connection that obeys the deadline of each step and does not retry.
func (p *Pool) open(addr string) *Conn {
	opt, timeout := p.origin.options, p.Timeout
	c := &Conn{addr: addr, timeout: timeout, user: opt.Username, tls: opt.TLSConfig, trace: p.trace}
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
	c.rdb = p.origin.make(&opt)
	return c
}

// Address returns the address of the node, as it appears in reports.
func (c *Conn) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addr
}

// Do runs one step: one command within the step's deadline.
func (c *Conn) Do(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.tell(args)
	return c.rdb.Do(ctx, args...).Result()
}

// DoAndWait runs a write command, then waits until the given number of replicas have it or half of
// the step's deadline has passed. WAIT waits for the last write of its own connection, so both
// commands go through one pipeline.
func (c *Conn) DoAndWait(ctx context.Context, replicas int, args ...any) (acked int, reply, wait error) {
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

func (c *Conn) tell(args []any) {
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
	c.trace(c.Address(), strings.Join(words, " "))
}
