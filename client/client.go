package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client gets rate limit decisions from Redis servers. Make one with [Open], or with [New] from an
// existing go-redis client; the zero value is not usable. A Client is safe for concurrent use by
// multiple goroutines, and one per application is enough.
type Client struct {
	*common
	takes     Limiter // the first layer of a take
	observers *observers
	batches   *batches // nil if there are none
	memory    *memory  // nil if denials are not remembered
	penalties *penalties
	server    *server
	waits     *waits
}

// New returns a Client that sends its calls through rdb: a *redis.Client, a *redis.ClusterClient or
// a *redis.Ring (each shard of which must have the library). New itself sends nothing: if the
// server is unreachable or lacks the library, the first call fails. The Client never closes rdb.
//
// rdb must end each call at the deadline of its context, so that every call returns within its
// timeout: set ContextTimeoutEnabled in the options of rdb. With other options, New returns an error
// that names the option to change. [Open] needs no options.
//
// Hooks see calls that share a round trip as a pipeline; in a cluster or a ring, only the hooks of
// the node's client see the pipeline.
//
// If rdb finds its primary through Sentinels, set its ReadTimeout to at most a third of its
// DialTimeout. Otherwise go-redis never asks another Sentinel if the Sentinel that it talks to hangs
// together with the primary.
//
// go-redis allocates as much memory as a reply announces. If the network between rdb and the server
// is not trusted, use TLS, or [Open], which limits the size of replies.
//
// New also returns an error if rdb is nil or of another type, or if an option is invalid.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	if err := keepsDeadlines(rdb); err != nil {
		return nil, fmt.Errorf("ratelimit: client.New: %w", err)
	}
	c, err := configure("client.New", false, opts)
	if err != nil {
		return nil, err
	}
	return c.build(rdb), nil
}

// keepsDeadlines returns an error unless every call through rdb ends at the deadline of its context.
func keepsDeadlines(rdb redis.UniversalClient) error {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient")
	}
	var honoured, readOnly bool
	var read, write time.Duration
	none := time.Duration(-2) // without a timeout and without the context's deadline
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		honoured, read, write, none = o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout, -1 // redis.NewClient turns -2 into -1
	case *redis.ClusterClient:
		o := rdb.Options()
		honoured, read, write, readOnly = o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout, o.ReadOnly
	case *redis.Ring:
		o := rdb.Options()
		honoured, read, write = o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout
	default:
		return fmt.Errorf("the Redis client is a %T, which may ignore deadlines; pass a *redis.Client, *redis.ClusterClient or *redis.Ring", rdb)
	}
	switch {
	case !honoured:
		return errors.New("the Redis client ignores deadlines of contexts; set ContextTimeoutEnabled: true in its options")
	case read <= none:
		return errors.New("the Redis client reads without a deadline; set ReadTimeout in its options to -1 or more")
	case write <= none:
		return errors.New("the Redis client writes without a deadline; set WriteTimeout in its options to -1 or more")
	case readOnly:
		// To choose a replica, go-redis first sends COMMAND to a server. It waits up to 5 s for the
		// reply, and ignores the context.
		return errors.New("the Redis client reads from replicas, and then ignores deadlines; leave ReadOnly, RouteByLatency and RouteRandomly out of its options")
	}
	return nil
}

// Allow is AllowN with n = 1.
func (c *Client) Allow(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.takes.Take(ctx, For(key, limit))
}

// AllowN takes n units from key under limit, or none: Result.Allowed reports which. A denied call
// changes nothing. n = 0 is allowed unless the key is blocked, and writes nothing. If n is more
// than the limit can ever hold, the call is denied with RetryAfter [Never]. If n is below 0 or
// above 2^53, the error is [ErrMisconfigured].
func (c *Client) AllowN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	if n == 1 { // leave out the cost: 1 is the server's default
		return c.takes.Take(ctx, For(key, limit))
	}
	return c.takes.Take(ctx, For(key, limit, n))
}

// Take makes one atomic decision for all keys of req: it charges all of them or none. A shadow
// policy is decided separately, and only if the other limits allow the call; see [Result.Shadow].
//
// If the reply is lost and req has no OnceKey, Take returns [ErrOutcomeUnknown]. With an OnceKey,
// Take retries up to three times, until ctx is done or half of OnceTTL has passed. The pauses take
// at most 0.3 s in total. The call is charged at most once, even if several attempts arrive.
func (c *Client) Take(ctx context.Context, req Request) (Result, error) {
	return c.takes.Take(ctx, req)
}

// Peek returns what [Client.Take] would return now, and changes nothing. It counts nothing in
// req.UsageKey. If req.OnceKey is set, the error is [ErrMisconfigured].
func (c *Client) Peek(ctx context.Context, req Request) (Result, error) {
	return c.execute(ctx, "peek", &req)
}

// Refund gives the costs of req back to its keys, for example because the work they paid for was not
// done: to all of them, or to none of them if any key is blocked. Then Allowed is false, and
// RetryAfter is the time until the block ends. Units beyond the capacity of the limit are dropped.
// The keys of a shadow policy are refunded separately from the others. To give back what a
// [Client.Take] charged, set Costs to the result of [Result.Charged], and UpTo and Force to false.
// The Result describes the keys after the refund.
//
// Refund counts nothing in req.UsageKey. A refund without an OnceKey is sent at most once; see
// [ErrOutcomeUnknown]. If req has an OnceKey, which must differ from that of the Take, Refund gives
// the units back only once, and retries as Take does if a reply is lost. If the library on the
// server is too old to refund with an OnceKey, the error is [ErrNotDeployed].
func (c *Client) Refund(ctx context.Context, req Request) (Result, error) {
	defer func() {
		c.memory.forget(req.Keys)
		c.waits.queues.changed(c.keys(req.Keys))
	}()
	return c.execute(ctx, "refund", &req)
}

// Reset deletes keys with all their data, and returns the number of keys that existed. The data may
// be counts (all units are then available again), blocks, overrides, leases, the result stored
// under an OnceKey, or the usage recorded under a UsageKey. A key that does not exist is not an
// error. In a cluster, all keys of one call need the same hash tag.
func (c *Client) Reset(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "reset", c.keys(keys), nil, 0)
}

// execute sends req as a peek or a refund.
func (c *Client) execute(ctx context.Context, verb string, req *Request) (res Result, err error) {
	class := ""
	if verb == "peek" {
		class = req.Class
	}
	defer c.observers.reportClass(ctx, verb, time.Now(), req.Limits, class, &res, &err)
	call, err := c.server.callOf(verb, req)
	if err != nil {
		return Result{}, err
	}
	return ask(ctx, c.server, &call, aDecision, func(reply any) (Result, bool) { return parseResult(reply, req) })
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
