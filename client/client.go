package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// The functions of the library, and how they are called. Names and argument order are the wire contract.
const (
	fnTake  = "ratelimit_take"
	fnPeek  = "ratelimit_peek"
	fnReset = "ratelimit_reset"
)

// Client asks for decisions over a go-redis client: a *redis.Client, a *redis.ClusterClient or a *redis.Ring (whose
// shards must each hold the library). Make one with [New]; the zero value is not usable. It is safe for concurrent use
// by many goroutines, and one for each application is enough.
type Client struct {
	rdb    redis.UniversalClient
	prefix *string // nil: not given
}

// Option sets how a Client behaves. An option that cannot be met makes [New] fail.
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

// New returns a Client that sends its calls through rdb. It sends nothing itself: a server that cannot be reached or
// does not hold the library shows at the first call. The Client never closes rdb.
//
// It fails when rdb is nil or when options contradict each other.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	if rdb == nil {
		return nil, errors.New("ratelimit: client.New: the Redis client is nil; pass one made with redis.NewClient or redis.NewClusterClient")
	}
	c := &Client{rdb: rdb}
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, fmt.Errorf("ratelimit: client.New: %w", err)
		}
	}
	return c, nil
}

// Allow is AllowN with n = 1.
func (c *Client) Allow(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.Take(ctx, Request{Keys: []string{key}, Limits: []Limit{limit}})
}

// AllowN takes n units from key under limit, all of them or none: Result.Allowed tells which. A denied call changes
// nothing. n = 0 is allowed and writes nothing; n above what the limit can ever hold is denied with RetryAfter
// [Never]; n below 0 or above 2^53 is an error ([ErrBadCost]).
func (c *Client) AllowN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.Take(ctx, Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}})
}

// Peek is PeekN with n = 1.
func (c *Client) Peek(ctx context.Context, key string, limit Limit) (Result, error) {
	return c.PeekRequest(ctx, Request{Keys: []string{key}, Limits: []Limit{limit}})
}

// PeekN answers what AllowN would answer now, and changes nothing. It may be answered by a replica, whose answer can
// be a little old, where the go-redis cluster client is set to read from replicas (ReadOnly).
func (c *Client) PeekN(ctx context.Context, key string, limit Limit, n int64) (Result, error) {
	return c.PeekRequest(ctx, Request{Keys: []string{key}, Limits: []Limit{limit}, Costs: []int64{n}})
}

// Take makes one atomic decision over all keys of req: every one is charged, or none is.
func (c *Client) Take(ctx context.Context, req Request) (Result, error) {
	return c.decide(ctx, "take", req)
}

// PeekRequest answers what [Client.Take] would answer now, and changes nothing. See [Client.PeekN] for replicas.
func (c *Client) PeekRequest(ctx context.Context, req Request) (Result, error) {
	return c.decide(ctx, "peek", req)
}

// Reset forgets what was counted for keys, so that each is full again, and answers how many of them held something.
// A key that never limited anything is 0, not an error. In a cluster all keys of one call need the same hash tag.
func (c *Client) Reset(ctx context.Context, keys ...string) (int64, error) {
	keys = c.keys(keys)
	reply, err := c.callOnce(ctx, "reset", fnReset, keys, nil)
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok || n < 0 {
		return 0, badReply("reset", keys, fnReset, "a count", reply)
	}
	return n, nil
}

func (c *Client) decide(ctx context.Context, op string, req Request) (Result, error) {
	keys := c.keys(req.Keys)
	args, err := req.args()
	if err != nil {
		return Result{}, &Error{Op: op, Code: "BADLIMIT", Keys: keys, Err: err, says: err.Error(), class: ErrBadLimit}
	}
	var reply any
	function := fnTake
	if op == "peek" {
		function = fnPeek
		reply, err = c.callReadOnly(ctx, op, function, keys, args)
	} else {
		reply, err = c.callOnce(ctx, op, function, keys, args)
	}
	if err != nil {
		return Result{}, err
	}
	res, ok := parseResult(reply, len(keys))
	if !ok {
		return Result{}, badReply(op, keys, function, "an array of at least 6 integers", reply)
	}
	return res, nil
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
