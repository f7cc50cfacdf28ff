package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/internal/sharing"
)

// config is what the options set.
type config struct {
	given map[string]any // by the name of an option that may be given once: its argument

	prefix     string
	timeout    time.Duration
	now        func() time.Time
	tls        *tls.Config // for Open
	opened     bool        // the Client is made by Open
	healer     func(context.Context, redis.UniversalClient) error
	batchSize  int64 // 0: no batches
	batchTTL   time.Duration
	remembered time.Duration // how long denials are remembered; 0: not at all
	fallback   Fallback
	tables     tableSizes
	shareAbove int64
	observe    observers
	log        *fallbackLog
}

// An Option configures a Client. [Open] and [New] return an error if an option is invalid, or if one
// other than [WithObserver] is given twice.
type Option func(*config) error

// option returns an Option that may be given once. argument is its argument, for errors.
func option(name string, argument any, set func(*config) error) Option {
	return func(c *config) error {
		if first, twice := c.given[name]; twice {
			return fmt.Errorf("%s is given twice, as %q and as %q; give it once", name, fmt.Sprint(first), fmt.Sprint(argument))
		}
		c.given[name] = argument
		return set(c)
	}
}

// WithPrefix puts prefix in front of every key. With WithPrefix("rl:"), Allow(ctx, "user:42", ...)
// uses the key "rl:user:42". Without it, keys are sent unchanged.
func WithPrefix(prefix string) Option {
	return option("WithPrefix", prefix, func(c *config) error {
		c.prefix = prefix
		return nil
	})
}

// configure returns what opts set. caller is the name of the calling function, for errors; opened is
// true if that function is Open.
func configure(caller string, opened bool, opts []Option) (*config, error) {
	c := &config{
		given: map[string]any{}, timeout: defaultTimeout, now: time.Now, opened: opened,
		fallback: ReturnError, tables: tableSizes{keys: mostKeys, limits: mostParsed}, shareAbove: cmp.Or(sharing.Above.Load(), shareAbove), log: &fallbackLog{},
	}
	for _, opt := range opts {
		err := errors.New("an option is nil; leave it out")
		if opt != nil {
			err = opt(c)
		}
		if err != nil {
			return nil, fmt.Errorf("ratelimit: %s: %w", caller, err)
		}
	}
	return c, nil
}

// common is what all layers of a Client share.
type common struct {
	prefix   string
	timeout  time.Duration
	now      func() time.Time // the clock for decisions without a server
	opened   bool             // the Client was made by Open
	timers   sharedTimers
	lifetime *lifetime
}

func (c *common) keys(given []string) []string {
	if c.prefix == "" {
		return given
	}
	keys := make([]string, len(given))
	for i, key := range given {
		keys[i] = c.prefix + key
	}
	return keys
}

// refused returns the error for a take rejected before sending.
func (c *common) refused(req *Request, err error) error {
	return refused("take", c.keys(req.keys("take")), err)
}

// build returns a Client with its layers in the one order that keeps the bounds of each. A take
// passes through them from the first to the last; each decides it, or passes it to the next. Other
// calls, such as a peek, go to the server directly.
//
//	observers  observe.go   report the result (WithObserver)
//	fallbacks  fallback.go  decide if no server does (WithFallback)
//	batches    batch.go     spend units that were taken before (WithBatches)
//	memory     memory.go    repeats a recent denial (WithDenialMemory)
//	server     server.go    sends the take to a Redis server
//
// Memory over batches would deny units that a batch holds, and memory over fallbacks would repeat
// their denials after the server is back.
func (c *config) build(rdb redis.UniversalClient) *Client {
	shared := &common{prefix: c.prefix, timeout: c.timeout, now: c.now, opened: c.opened, lifetime: newLifetime()}
	server := &server{common: shared, rdb: rdb, breakers: newBreakers(rdb, c.observe.breaker), healer: c.healer, shareAbove: c.shareAbove}
	parsed := &parsedLimits{server: server, table: newTable[limitOn, *parsedLimit](c.tables.limits)}
	made := &Client{common: shared, server: server, observers: &c.observe, takes: server}
	if c.remembered > 0 {
		made.memory = &memory{common: shared, next: made.takes, longest: c.remembered, sharedTable: newSharedTable[*denial](c.tables.keys)}
		made.takes = made.memory
	}
	if c.batchSize > 0 {
		made.batches = &batches{
			common: shared, parsed: parsed, recall: made.memory.recall, next: made.takes,
			most: c.batchSize, ttl: c.batchTTL, sharedTable: newSharedTable[*keyBatch](c.tables.keys),
		}
		made.takes = made.batches
	}
	made.penalties = &penalties{common: shared, parsed: parsed, table: newTable[string, *penalized](c.tables.keys)}
	made.takes = &fallbacks{
		common: shared, parsed: parsed, next: made.takes, preset: c.fallback, log: c.log,
		buckets: newTable[bucketKey, *rate.Limiter](c.tables.keys),
	}
	if c.observe.call != nil {
		made.observers.next, made.takes = made.takes, made.observers
	}
	made.waits = newWaits(made, made)
	return made
}

// forget drops the remembered denials, blocks, turns and batches of keys, and lets callers of Wait retry.
// So a change to the keys takes effect immediately. However, callers that are already waiting for the
// reply to a request still get its units.
func (c *Client) forget(keys []string) {
	c.forgetUnits(keys)
	c.penalties.drop(keys)
	c.waits.queues.changed(c.keys(keys))
}

// forgetUnits is forget, but the blocks of keys stay remembered.
func (c *Client) forgetUnits(keys []string) {
	c.memory.forget(keys)
	c.batches.forget(keys)
	c.waits.turns.drop(keys)
}
