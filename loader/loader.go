package loader

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
)

const (
	defaultTimeout  = 5 * time.Second
	defaultInterval = 500 * time.Millisecond
)

// Loader deploys to, and inspects, the servers that a go-redis client points to. Make one with
// [New]; the zero value is not usable. It keeps no state between calls and is safe for concurrent
// use.
type Loader struct {
	from     origin
	timeout  time.Duration
	interval time.Duration
	trace    func(Step)
	steps    func(protocol.Step)
	clock    clock

	effects   func(string, [][2]functions.Policy) ([]functions.Effect, error)
	namespace string // "" for the code and the policies without a namespace
}

// clock is the machine's clock, or that of a test.
type clock struct {
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

// Option configures a Loader. An invalid option makes [New] fail.
type Option func(*Loader) error

// WithTimeout sets the maximum time for one step on one node: a command and its reply, including
// connecting. The default is 5 s. It must be above 0.
func WithTimeout(d time.Duration) Option {
	return func(l *Loader) error {
		if d <= 0 {
			return fmt.Errorf("the timeout %v is not above 0; give one such as 5s", d)
		}
		l.timeout = d
		return nil
	}
}

// WithInterval sets how long [Loader.Watch] waits between two rounds. The default is 500 ms. It
// must be above 0.
func WithInterval(d time.Duration) Option {
	return func(l *Loader) error {
		if d <= 0 {
			return fmt.Errorf("the interval %v is not above 0; give one such as 500ms", d)
		}
		l.interval = d
		return nil
	}
}

// WithTrace sets a function that is called before each command is sent to a node, by the goroutine
// that sends it. Use it for logs, and for tests that act between two steps. Several goroutines may
// call f at the same time.
func WithTrace(f func(Step)) Option {
	return func(l *Loader) error {
		if f == nil {
			return errors.New("the function of WithTrace is nil; pass one, or leave WithTrace out")
		}
		l.trace = f
		return nil
	}
}

// WithSteps sets a function that is called for each step of the protocol. Tests check the steps with
// [protocol.Check]. Several goroutines may call f at the same time.
func WithSteps(f func(protocol.Step)) Option {
	return func(l *Loader) error { l.steps = f; return nil }
}

// New returns a Loader for the servers that rdb points to. rdb is a *redis.Client (also one made by
// NewFailoverClient), which may point to any node of a cluster, a *redis.ClusterClient, or a
// *redis.Ring, whose shards are treated as independent servers. The Loader takes addresses, user,
// password, TLS settings and dialer from rdb. Each call opens and closes its own connections. rdb
// itself is neither used nor closed, and its timeouts and retries are ignored. New sends nothing.
//
// New fails if rdb is nil, has none of these types or has no address, or if an option is invalid.
func New(rdb redis.UniversalClient, opts ...Option) (*Loader, error) {
	l := &Loader{timeout: defaultTimeout, interval: defaultInterval, clock: clock{time.Now, time.After}}
	switch c := rdb.(type) {
	case nil:
		return nil, errors.New("loader.New: the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient")
	case *redis.Client:
		l.from = originOfClient(c.Options())
	case *redis.ClusterClient:
		l.from = originOfCluster(c.Options())
	case *redis.Ring:
		l.from = originOfRing(c.Options())
	default:
		return nil, fmt.Errorf("loader.New: a %T does not say how to reach each server; pass a *redis.Client, *redis.ClusterClient or *redis.Ring", rdb)
	}
	if len(l.from.addrs) == 0 && l.from.slots == nil {
		return nil, errors.New("loader.New: the Redis client has no address; give it one")
	}
	for _, opt := range opts {
		if err := opt(l); err != nil {
			return nil, fmt.Errorf("loader.New: %w", err)
		}
	}
	return l, nil
}
