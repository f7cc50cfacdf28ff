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

// Client asks for decisions. Make one with [Open], or with [New] over a go-redis client that you have; the zero value is
// not usable. It is safe for concurrent use by many goroutines, and one for each application is enough.
type Client struct {
	rdb      redis.UniversalClient
	prefix   *string // nil: not given
	timeout  time.Duration
	fallback Fallback
	opened   bool // rdb is ours
	tls      *tls.Config
	punctual bool // rdb ends every call at the deadline of its context
	ends     endings
	sharing  sharing
	share    bool // calls share round trips
	breakers *breakers
	local    *local
	batches  *batches // nil: every call asks a server
	memory   *memory  // nil: no denial is remembered
	healer   *healer  // nil: none was given
	life     *life
	queues   queues // of who waits

	onCall    []func(context.Context, Observation)
	onBreaker []func(BreakerChange)
}

// Option sets how a Client behaves. An option that cannot be met makes [Open] and [New] fail.
type Option func(*Client) error

// WithPrefix puts prefix in front of every key, as in WithPrefix("rl:"): Allow(ctx, "user:42", ...) then uses the key
// "rl:user:42". Keys are otherwise sent as they are given. It may be given once.
func WithPrefix(prefix string) Option {
	return func(c *Client) error {
		if c.prefix != nil {
			return fmt.Errorf("WithPrefix is given twice, as %q and as %q; give it once", *c.prefix, prefix)
		}
		c.prefix = &prefix
		return nil
	}
}

// New returns a Client that sends its calls through rdb: a *redis.Client, a *redis.ClusterClient or a *redis.Ring (whose
// shards must each hold the library). It sends nothing itself: a server that cannot be reached or
// does not hold the library shows at the first call. The Client never closes rdb.
//
// Every call returns within its bound, whatever rdb's options are. Where rdb was made without ContextTimeoutEnabled or with
// a timeout of -2, or is of a type that this package does not know, that takes a goroutine for each call; and a call that is
// late keeps its connection for as long as the timeouts of rdb say, so that a server that is back is noticed only then
// where no other is left.
//
// Calls share round trips (see [WithSharedRoundTrips]) unless rdb was made without ContextTimeoutEnabled or with ReadOnly. Calls
// that share one are a pipeline for hooks, and in a cluster or a ring only the hooks of the node see it.
//
// It fails when rdb is nil or a *redis.AutoPipeliner, or when options contradict each other.
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
	if c.sharing == always && !c.share {
		return nil, errors.New("ratelimit: client.New: WithSharedRoundTrips needs a Redis client that ends calls at their deadlines; " +
			"set ContextTimeoutEnabled, and not ReadOnly, in its options, or use Open")
	}
	return c, nil
}

// set applies the options that were given to caller.
func (c *Client) set(caller string, opts []Option) error {
	c.timeout = defaultTimeout
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return fmt.Errorf("ratelimit: %s: %w", caller, err)
		}
	}
	return nil
}

// start makes c ready to ask through rdb.
func (c *Client) start(rdb redis.UniversalClient) {
	c.rdb = rdb
	c.punctual = punctual(rdb)
	c.share = c.punctual && c.sharing != never
	c.breakers = newBreakers(rdb, c.onBreaker)
	c.local = newLocal()
	c.life = newLife()
}

// Allow is AllowN with n = 1.
func (c *Client) Allow(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.Take(ctx, one(key, limit))
}

// AllowN takes n units from key under limit, all of them or none: Result.Allowed tells which. A denied call changes
// nothing. n = 0 is allowed unless the key is blocked, and writes nothing; n above what the limit can ever hold is denied
// with RetryAfter [Never]; n below 0 or above 2^53 is an error ([ErrBadCost]).
func (c *Client) AllowN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.Take(ctx, one(key, limit, n))
}

// AllowAtMost takes as many units from key under limit as fit, from 1 to n: Result.Taken is how many, and Allowed is false
// if not even one fits; then RetryAfter is the wait until one does. Of n = 0 nothing is taken: Allowed is false, with
// RetryAfter 0 unless the key is blocked. n is from 0 to 2^53 ([ErrBadCost]). A library that is too old for this is
// [ErrNotDeployed]. For several keys, policies, an OnceKey or a Peek, see [Request].
func (c *Client) AllowAtMost(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	req := one(key, limit, n)
	req.UpTo = true
	return c.Take(ctx, req)
}

// Peek is PeekN with n = 1.
func (c *Client) Peek(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.PeekRequest(ctx, one(key, limit))
}

// PeekN returns what AllowN would return now, and changes nothing. It may come from a replica, and so be a little old,
// where the go-redis cluster client is set to read from replicas (ReadOnly).
func (c *Client) PeekN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.PeekRequest(ctx, one(key, limit, n))
}

// Take makes one atomic decision over all keys of req: every one is charged, or none is. A shadow policy decides for itself,
// and only where the others allow; see [Shadow].
//
// A reply that is lost ends in [ErrOutcomeUnknown], unless req has an OnceKey: then the call is asked again up to three
// times, within 0.3 s besides the calls themselves, as long as ctx
// lasts and in the first half of OnceTTL. However often it
// arrives, it is charged once at most.
func (c *Client) Take(ctx context.Context, req Request) (Result, error) {
	return c.take(ctx, req)
}

// PeekRequest returns what [Client.Take] would return now, and changes nothing. See [Client.PeekN] for replicas.
// Nothing is counted under req.UsageKey, and a req.OnceKey is an error ([ErrBadArgs]).
func (c *Client) PeekRequest(ctx context.Context, req Request) (Result, error) {
	return c.decide(ctx, "peek", req)
}

// RefundN gives n units back to key under limit, as when the work that they were taken for was not done. A key is never
// fuller than full: what is given back beyond that is lost. Result says how the key stands now.
//
// Nothing is given back while the key is blocked: then Allowed is false, and RetryAfter is how long the block lasts.
// n is from 0 to 2^53 ([ErrBadCost]). Refunds are sent at most once; see [ErrOutcomeUnknown].
func (c *Client) RefundN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.Refund(ctx, one(key, limit, n))
}

// Refund gives the costs of req back to its keys: to all, or, where one is blocked, to none; the keys of a shadow policy
// apart from the others. With the request of an allowed [Client.Take] it gives back what that took. See [Client.RefundN].
//
// Nothing is counted under req.UsageKey. A req.OnceKey is an error ([ErrBadArgs]): the kept reply would go on to tell
// that the call was charged. Take the key out, and do not take with it again.
func (c *Client) Refund(ctx context.Context, req Request) (Result, error) {
	defer c.memory.forget(req.Keys)
	return c.decide(ctx, "refund", req)
}

// Reset forgets what is kept for keys, and returns how many of them held something: what was counted, so that each is
// full again, blocks, leases, and what was kept under an OnceKey or a UsageKey. A key that never limited anything is 0,
// not an error. In a cluster all keys of one call need the same hash tag.
func (c *Client) Reset(ctx context.Context, keys ...string) (int64, error) {
	defer c.forget(keys)
	return c.count(ctx, "reset", c.keys(keys), nil, 0)
}

// decide calls take, peek or refund.
func (c *Client) decide(ctx context.Context, verb string, req Request) (res Result, err error) {
	if c.onCall != nil && verb != "take" { // take tells of itself, as its decision may be another's
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

// callOf returns a request as it is sent.
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

// decision reads the reply of take, peek, refund, acquire and renew.
func decision(verb string, keys []string, req Request, reply any) (Result, error) {
	res, ok := parseResult(reply, req)
	if !ok {
		return Result{}, badReply(verb, keys, "an array of at least 6 integers", reply)
	}
	return res, nil
}

// count calls a function that writes and returns for how many of the keys it did something; least is how many these must be.
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
