package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// Client gets rate limit decisions from Redis servers. Make one with [Open], or with [New] from an
// existing go-redis client; the zero value is not usable. A Client is safe for concurrent use by
// multiple goroutines, and one per application is enough.
type Client struct {
	takes     decider // the first decider of a take
	observers observers
	fallbacks fallbacks
	batches   batches
	memory    memory
	server    *server
	queues    queues      // the waiting callers
	turns     turns       // their turns under a leaky_bucket
	tls       *tls.Config // TLS configuration for Open
}

// A decider decides a take itself, or passes the take to the next decider and returns the result.
//
// A take passes through the deciders in this order.
//
//	observers  observe.go   report the result (WithObserver)
//	fallbacks  fallback.go  decide if no server does
//	batches    batch.go     spend units that were taken before (WithBatches)
//	memory     memory.go    repeats a recent denial (WithDenialMemory)
//	server     server.go    sends the take to a Redis server
//
// Other calls, such as a peek, go directly to the server. The request is the call's own copy. It is
// passed as a pointer to keep stack frames small: with many goroutines, growing their stacks took
// up to a seventh of the processor time.
type decider interface {
	decide(ctx context.Context, req *Request) (Result, error)
}

func (c *Client) start(rdb redis.UniversalClient) {
	c.server.start(rdb, c.observers.breaker)
	c.takes = c.server
	if c.memory.longest > 0 {
		c.memory.next, c.takes = c.takes, &c.memory
	}
	if c.batches.most > 0 {
		c.batches.next, c.takes = c.takes, &c.batches
	}
	c.fallbacks.next, c.takes = c.takes, &c.fallbacks
	if c.observers.call != nil {
		c.observers.next, c.takes = c.takes, &c.observers
	}
}

// An Option configures a Client. [Open] and [New] return an error if an option is invalid.
type Option func(*Client) error

// WithPrefix puts prefix in front of every key. With WithPrefix("rl:"), Allow(ctx, "user:42", ...)
// uses the key "rl:user:42". Without it, keys are sent unchanged. WithPrefix may be given only
// once.
func WithPrefix(prefix string) Option {
	return func(c *Client) error {
		if c.server.prefixed {
			return fmt.Errorf("WithPrefix is given twice, as %q and as %q; give it once", c.server.prefix, prefix)
		}
		c.server.prefix, c.server.prefixed = prefix, true
		return nil
	}
}

// New returns a Client that sends its calls through rdb: a *redis.Client, a *redis.ClusterClient or
// a *redis.Ring (each shard of which must have the library). New itself sends nothing: if the
// server is unreachable or lacks the library, the first call fails. The Client never closes rdb.
//
// Every call returns within its timeout, regardless of rdb's options. If rdb was made without
// ContextTimeoutEnabled, has a timeout of -2, is a cluster client with ReadOnly, or is of a type
// that this package does not know, each call needs an extra goroutine and its own round trip. After
// such a call has timed out, its connection stays in use until rdb's own timeouts expire. If this
// happens to all connections, the client notices only then that a server is back.
//
// With any other rdb, calls share round trips; see [WithoutSharedRoundTrips]. Hooks see calls that
// share a round trip as a pipeline; in a cluster or a ring, only the hooks of the node's client see
// the pipeline.
//
// If rdb finds its primary through Sentinels, set its ReadTimeout to at most a third of its
// DialTimeout. Otherwise go-redis never asks another Sentinel if the Sentinel that it talks to hangs
// together with the primary.
//
// go-redis allocates as much memory as a reply announces. If the network between rdb and the server
// is not trusted, use TLS, or [Open], which limits the size of replies.
//
// New returns an error if rdb is nil or a *redis.AutoPipeliner, or if an option is invalid.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("ratelimit: client.New: the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient")
	}
	if _, ok := rdb.(*redis.AutoPipeliner); ok {
		return nil, errors.New("ratelimit: client.New: the Redis client is an AutoPipeliner, which ignores deadlines and failovers; " +
			"pass the client that it was made from: calls share round trips anyway")
	}
	c, err := configured("client.New", false, opts)
	if err != nil {
		return nil, err
	}
	c.start(rdb)
	return c, nil
}

// configured returns a Client with opts, not yet started. caller is the name of the calling
// function, for errors; opened is true if that function is Open.
func configured(caller string, opened bool, opts []Option) (*Client, error) {
	s := &server{timeout: defaultTimeout, now: time.Now, opened: opened}
	c := &Client{server: s, queues: queues{byName: map[string]*queue{}}}
	parsed := &parsedLimits{server: s, given: map[Limit][]parsedKey{}, table: newTable[limitOn, *parsedLimit](mostParsed)}
	c.turns = turns{newTable[string, keptTurn](mostKeys)}
	c.memory = memory{server: s, table: newTable[string, *denial](mostKeys)}
	c.batches = batches{server: s, parsed: parsed, memory: &c.memory, table: newTable[string, *keyBatch](mostKeys)}
	c.fallbacks = fallbacks{server: s, parsed: parsed, preset: ReturnError, log: &fallbackLog{}, buckets: newTable[bucketKey, *rate.Limiter](mostKeys)}
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, fmt.Errorf("ratelimit: %s: %w", caller, err)
		}
	}
	return c, nil
}

// Allow is AllowN with n = 1.
func (c *Client) Allow(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.takes.decide(ctx, one(key, limit))
}

// AllowN takes n units from key under limit, or none: Result.Allowed reports which. A denied call
// changes nothing. n = 0 is allowed unless the key is blocked, and writes nothing. If n is more
// than the limit can ever hold, the call is denied with RetryAfter [Never]. If n is below 0 or
// above 2^53, the error is [ErrBadCost].
func (c *Client) AllowN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	if n == 1 { // leave out the cost: 1 is the server's default
		return c.takes.decide(ctx, one(key, limit))
	}
	return c.takes.decide(ctx, one(key, limit, n))
}

// AllowAtMost takes as many units as are available, from 1 to n, from key under limit. Result.Taken
// is the number of units taken. If no unit is available, Allowed is false and RetryAfter is the
// wait until one is. With n = 0 it takes nothing: Allowed is false, and RetryAfter is 0 unless the
// key is blocked. If n is below 0 or above 2^53, the error is [ErrBadCost]. If the library on the
// server is too old for AllowAtMost, the error is [ErrNotDeployed]. For several keys, an OnceKey or
// a peek, use a [Request] with UpTo.
func (c *Client) AllowAtMost(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	req := one(key, limit, n)
	req.UpTo = true
	return c.takes.decide(ctx, req)
}

// Peek is PeekN with n = 1.
func (c *Client) Peek(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.execute(ctx, "peek", one(key, limit))
}

// PeekN returns what AllowN would return now, and changes nothing. If the go-redis cluster client
// reads from replicas (ReadOnly), the result may be slightly out of date.
func (c *Client) PeekN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.execute(ctx, "peek", one(key, limit, n))
}

// Take makes one atomic decision for all keys of req: it charges all of them or none. A shadow
// policy is decided separately, and only if the other limits allow the call; see [Shadow].
//
// If the reply is lost and req has no OnceKey, Take returns [ErrOutcomeUnknown]. With an OnceKey,
// Take retries up to three times, until ctx is done or half of OnceTTL has passed. The pauses take
// at most 0.3 s in total. The call is charged at most once, even if several attempts arrive.
func (c *Client) Take(ctx context.Context, req Request) (Result, error) {
	return c.takes.decide(ctx, &req)
}

// PeekRequest returns what [Client.Take] would return now, and changes nothing. See [Client.PeekN]
// about replicas. PeekRequest counts nothing in req.UsageKey. If req.OnceKey is set, the error is
// [ErrBadArgs].
func (c *Client) PeekRequest(ctx context.Context, req Request) (Result, error) {
	return c.execute(ctx, "peek", &req)
}

// RefundN gives n units back to key under limit, for example because the work they paid for was not
// done. Units beyond the capacity of the limit are dropped. The Result describes the key after the
// refund.
//
// If the key is blocked, nothing is given back: Allowed is false, and RetryAfter is the time until
// the block ends. If n is below 0 or above 2^53, the error is [ErrBadCost]. A refund without an
// OnceKey is sent at most once; see [ErrOutcomeUnknown].
func (c *Client) RefundN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.Refund(ctx, *one(key, limit, n))
}

// Refund gives the costs of req back to its keys: to all of them, or to none of them if any key is
// blocked. The keys of a shadow policy are refunded separately from the others. To give back what a
// [Client.Take] charged, set Costs to the result of [Result.Charged], and UpTo and Force to false.
// See [Client.RefundN].
//
// Refund counts nothing in req.UsageKey. If req has an OnceKey, which must differ from that of the
// Take, Refund gives the units back only once, and retries as Take does if a reply is lost. If the
// library on the server is too old to refund with an OnceKey, the error is [ErrNotDeployed].
func (c *Client) Refund(ctx context.Context, req Request) (Result, error) {
	defer c.memory.forget(req.Keys)
	return c.execute(ctx, "refund", &req)
}

// Reset deletes keys with all their data, and returns the number of keys that existed. The data may
// be counts (all units are then available again), blocks, overrides, leases, the result stored
// under an OnceKey, or the usage recorded under a UsageKey. A key that does not exist is not an
// error. In a cluster, all keys of one call need the same hash tag.
func (c *Client) Reset(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "reset", c.server.keys(keys), nil, 0)
}

// execute sends req as a peek or a refund.
func (c *Client) execute(ctx context.Context, verb string, req *Request) (res Result, err error) {
	defer c.observers.report(ctx, verb, time.Now(), req.Limits, &res, &err)
	return c.server.execute(ctx, verb, req)
}

// count sends a call that writes, and returns its reply: the number of keys that it changed. least
// is the smallest valid reply.
func (c *Client) count(ctx context.Context, verb string, keys []string, args []any, least int) (n int64, err error) {
	defer c.observers.report(ctx, verb, time.Now(), nil, nil, &err)
	want := fmt.Sprintf("a count from %d to %d", least, len(keys))
	return ask(ctx, c.server, &call{verb: verb, keys: keys, args: args}, want, func(reply any) (int64, bool) {
		n, ok := reply.(int64)
		return n, ok && n >= int64(least) && n <= int64(len(keys))
	})
}

// forget drops the remembered denials, turns and batches of keys, so that a change to the keys takes
// effect immediately. However, callers that are already waiting for a request still get its units.
func (c *Client) forget(keys []string) {
	c.memory.forget(keys)
	c.batches.drop(keys)
	c.turns.drop(keys)
}
