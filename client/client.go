package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client asks servers for decisions. Make one with [Open], or with [New] from an existing go-redis
// client; the zero value is not usable. A Client is safe for concurrent use by multiple goroutines,
// and one per application is enough.
type Client struct {
	rdb      redis.UniversalClient
	prefix   *string // nil: not given
	timeout  time.Duration
	fallback Fallback
	opened   bool // rdb was made by Open
	tls      *tls.Config
	punctual bool // rdb ends every call at its context's deadline
	ends     endings
	sharing  sharing
	breakers *breakers
	local    *local
	batches  *batches // nil: every call asks a server
	memory   *memory  // nil: denials are not remembered
	healer   *healer  // nil: no healer is set
	life     *life
	queues   queues // the waiting callers

	onCall    []func(context.Context, Observation)
	onBreaker []func(BreakerChange)
}

// Option sets how a Client behaves. [Open] and [New] return an error if an option is invalid.
type Option func(*Client) error

// WithPrefix puts prefix in front of every key. With WithPrefix("rl:"), Allow(ctx, "user:42", ...)
// uses the key "rl:user:42". Without it, keys are sent unchanged. It may be given once.
func WithPrefix(prefix string) Option {
	return func(c *Client) error {
		if c.prefix != nil {
			return fmt.Errorf("WithPrefix is given twice, as %q and as %q; give it once", *c.prefix, prefix)
		}
		c.prefix = &prefix
		return nil
	}
}

// New returns a Client that sends its calls through rdb: a *redis.Client, a *redis.ClusterClient or
// a *redis.Ring (each shard of which must have the library). New itself sends nothing: if the
// server is unreachable or lacks the library, the first call fails. The Client never closes rdb.
//
// Every call returns within its timeout, whatever the options of rdb are. If rdb was made without
// ContextTimeoutEnabled, has a timeout of -2, or is of a type that this package does not know, each
// call needs an extra goroutine. A call that times out then keeps its connection until rdb's own
// timeouts expire. If all connections are in use, the client notices only then that a server is
// back.
//
// Calls share round trips (see [WithSharedRoundTrips]) unless rdb was made without
// ContextTimeoutEnabled or with ReadOnly. Hooks see calls that share a round trip as a pipeline; in
// a cluster or a ring, only the hooks of the node see it.
//
// New returns an error if rdb is nil or a *redis.AutoPipeliner, or if options contradict each
// other.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("ratelimit: client.New: the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient")
	}
	if _, ok := rdb.(*redis.AutoPipeliner); ok {
		return nil, errors.New("ratelimit: client.New: the Redis client is an AutoPipeliner, which ignores deadlines and failovers; " +
			"pass the client that it was made from: calls share round trips anyway")
	}
	c := &Client{}
	if err := c.set("client.New", opts); err != nil {
		return nil, err
	}
	c.start(rdb)
	if c.sharing == always && !c.punctual {
		return nil, errors.New("ratelimit: client.New: WithSharedRoundTrips needs a Redis client that ends calls at their deadlines; " +
			"set ContextTimeoutEnabled, and not ReadOnly, in its options, or use Open")
	}
	return c, nil
}

// set applies opts. caller is the name of the function for errors.
func (c *Client) set(caller string, opts []Option) error {
	c.timeout = defaultTimeout
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return fmt.Errorf("ratelimit: %s: %w", caller, err)
		}
	}
	return nil
}

// start prepares c to send calls through rdb.
func (c *Client) start(rdb redis.UniversalClient) {
	c.rdb = rdb
	c.punctual = punctual(rdb)
	c.breakers = newBreakers(rdb, c.onBreaker)
	c.local = newLocal()
	c.life = newLife()
}

// Allow is AllowN with n = 1.
func (c *Client) Allow(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.Take(ctx, one(key, limit))
}

// AllowN takes n units from key under limit, or none: Result.Allowed reports which. A denied call
// changes nothing. n = 0 is allowed unless the key is blocked, and writes nothing. If n is more
// than the limit can ever hold, the call is denied with RetryAfter [Never]. If n is below 0 or
// above 2^53, AllowN returns an error ([ErrBadCost]).
func (c *Client) AllowN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.Take(ctx, one(key, limit, n))
}

// AllowAtMost takes as many units as fit, from 1 to n, from key under limit. Result.Taken is their
// number. If not even one fits, Allowed is false and RetryAfter is the wait until one does. With n
// = 0 it takes nothing: Allowed is false, and RetryAfter is 0 unless the key is blocked. n is from
// 0 to 2^53 ([ErrBadCost]). If the library on the server is too old for this, the error is
// [ErrNotDeployed]. To use several keys, policies, an OnceKey or a Peek, see [Request].
func (c *Client) AllowAtMost(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	req := one(key, limit, n)
	req.UpTo = true
	return c.Take(ctx, req)
}

// Peek is PeekN with n = 1.
func (c *Client) Peek(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.PeekRequest(ctx, one(key, limit))
}

// PeekN returns what AllowN would return now, and changes nothing. If the go-redis cluster client
// reads from replicas (ReadOnly), the result may be slightly out of date.
func (c *Client) PeekN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.PeekRequest(ctx, one(key, limit, n))
}

// Take makes one atomic decision for all keys of req: it charges all of them or none. A shadow
// policy is decided separately, and only if the other limits allow the call; see [Shadow].
//
// If the reply is lost, Take returns [ErrOutcomeUnknown] unless req has an OnceKey. With an OnceKey
// it retries up to three times, with at most 0.3 s of pauses in total, while ctx lasts and within
// the first half of OnceTTL. The call is charged at most once, however often it arrives.
func (c *Client) Take(ctx context.Context, req Request) (Result, error) {
	return c.take(ctx, req)
}

// PeekRequest returns what [Client.Take] would return now, and changes nothing. See [Client.PeekN]
// about replicas. It counts nothing under req.UsageKey, and returns an error if req.OnceKey is set
// ([ErrBadArgs]).
func (c *Client) PeekRequest(ctx context.Context, req Request) (Result, error) {
	return c.decide(ctx, "peek", req)
}

// RefundN gives n units back to key under limit, for example because the work they paid for was not
// done. Units beyond the capacity of the limit are dropped. Result describes the key after the
// refund.
//
// If the key is blocked, nothing is given back: Allowed is false, and RetryAfter is how long the
// block lasts. n is from 0 to 2^53 ([ErrBadCost]). A refund is sent at most once; see
// [ErrOutcomeUnknown].
func (c *Client) RefundN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.Refund(ctx, one(key, limit, n))
}

// Refund gives the costs of req back to its keys: to all of them, or to none if one is blocked. The
// keys of a shadow policy are refunded separately from the others. Given the request of an allowed
// [Client.Take], Refund gives back what Take took. See [Client.RefundN].
//
// It counts nothing under req.UsageKey. It returns an error if req.OnceKey is set ([ErrBadArgs]),
// because the stored reply would still say that the call was charged. Remove the OnceKey from the
// request, and do not use that key again.
func (c *Client) Refund(ctx context.Context, req Request) (Result, error) {
	defer c.memory.forget(req.Keys)
	return c.decide(ctx, "refund", req)
}

// Reset deletes everything stored for keys, and returns how many of them stored something: counts
// (the key is full again), blocks, leases, and data under an OnceKey or a UsageKey. A key without
// data is not an error and counts as 0. In a cluster all keys of one call need the same hash tag.
func (c *Client) Reset(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "reset", c.keys(keys), nil, 0)
}

// decide calls take, peek or refund.
func (c *Client) decide(ctx context.Context, verb string, req Request) (res Result, err error) {
	if c.onCall != nil && verb != "take" { // take reports itself, because it may decide without this call
		defer func(began time.Time) { c.observeResult(ctx, verb, began, res, err) }(time.Now())
	}
	call, err := c.callOf(verb, req)
	if err != nil {
		return Result{}, err
	}
	reply, err := c.ask(ctx, call)
	if err != nil {
		return Result{}, err
	}
	return decision(verb, call.keys, req, reply)
}

// callOf returns the call for a request.
func (c *Client) callOf(verb string, req Request) (call, error) {
	call := call{verb: verb, keys: c.keys(req.keys(verb))}
	switch {
	case verb == "peek":
		call.way = readOnly
	case verb == "take" && req.OnceKey != "":
		call.way, call.within = again, req.OnceTTL/2
	}
	var err error
	if call.args, err = req.args(verb); err != nil {
		return call, refused(verb, call.keys, err)
	}
	return call, nil
}

// decision parses the reply to take, peek, refund, acquire or renew.
func decision(verb string, keys []string, req Request, reply any) (Result, error) {
	res, ok := parseResult(reply, req)
	if !ok {
		return Result{}, badReply(verb, keys, "an array of at least 6 integers", reply)
	}
	return res, nil
}

// count calls a function that writes and returns the number of keys it changed. least is the
// smallest valid number.
func (c *Client) count(ctx context.Context, verb string, keys []string, args []any, least int) (n int64, err error) {
	if c.onCall != nil {
		defer func(began time.Time) { c.observeDone(ctx, verb, began, err) }(time.Now())
	}
	reply, err := c.ask(ctx, call{verb: verb, keys: keys, args: args})
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok || n < int64(least) || n > int64(len(keys)) {
		return 0, badReply(verb, keys, fmt.Sprintf("a count from %d to %d", least, len(keys)), reply)
	}
	return n, nil
}

func (c *Client) keys(given []string) []string {
	if c.prefix == nil || *c.prefix == "" {
		return given
	}
	keys := make([]string, len(given))
	for i, key := range given {
		keys[i] = *c.prefix + key
	}
	return keys
}
