package client

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Alone makes each call of a client go alone, as few calls do.
func Alone() Option {
	return func(c *config) error {
		c.shareAbove = math.MaxInt64
		return nil
	}
}

// DefaultTimeout sets the timeout of calls unless WithTimeout does.
func DefaultTimeout(d time.Duration) Option {
	return func(c *config) error {
		if c.given["WithTimeout"] == nil {
			c.timeout = d
		}
		return nil
	}
}

// WithClock sets the clock of the decisions that a client makes itself.
func WithClock(now func() time.Time) Option {
	return func(c *config) error {
		c.now = now
		return nil
	}
}

// MostKeys and MostLimits are the maximum sizes of a client's tables.
const (
	MostKeys   = mostKeys
	MostLimits = mostParsed
)

// WithTables sets the maximum sizes of a client's tables of keys and of limits.
func WithTables(keys, limits int) Option {
	return func(c *config) error {
		c.tables = tableSizes{keys, limits}
		return nil
	}
}

// OpenWithDialer is Open with connections made by dial.
func OpenWithDialer(t *testing.T, url string, dial func(ctx context.Context, network, addr string) (net.Conn, error), opts ...Option) *Client {
	t.Helper()
	c, err := openServers(url, func(*redis.Options) func(context.Context, string, string) (net.Conn, error) { return dial }, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// WithCharged returns r as if the reply had said what each key was charged.
func WithCharged(r Result, units ...int64) Result {
	r.charged = units
	return r
}

// WaitingForBatch returns how many calls wait for another call's request for key.
func WaitingForBatch(c *Client, key string) int64 {
	c.batches.mu.Lock()
	defer c.batches.mu.Unlock()
	if k, ok := c.batches.entries.Peek(sharedKey{key: key}); ok {
		return k.waiting
	}
	return 0
}

// Tables holds a number for each table of a client, such as its size. Shares are the classes and floors of
// Batches and Denials.
type Tables struct{ Batches, Denials, Buckets, Limits, Shares int }

// Kept returns how many entries each table has.
func Kept(c *Client) (kept Tables) {
	f := fallbacksOf(c)
	kept.Buckets, kept.Limits = f.buckets.len(), f.parsed.len()
	if c.batches != nil {
		kept.Batches = c.batches.len()
		kept.Shares += len(c.batches.shares)
	}
	if c.memory != nil {
		kept.Denials = c.memory.len()
		kept.Shares += len(c.memory.shares)
	}
	return kept
}

func fallbacksOf(c *Client) *fallbacks {
	layer := c.takes
	if o, ok := layer.(*observers); ok {
		layer = o.next
	}
	return layer.(*fallbacks)
}

func (t *table[K, V]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries.Len()
}

// Learn fetches the parsed form of a limit from a server and stores it in c.
func Learn(c *Client, limit Limit) {
	parsed, l := fallbacksOf(c).parsed, limitOn{limit: limit}
	parsed.mu.Lock()
	parsed.get(l)
	parsed.mu.Unlock()
	parsed.refresh(context.Background(), l, c.server.rdb)
}

// Knows reports whether c has the parsed form of a limit.
func Knows(c *Client, limit Limit) bool {
	f := fallbacksOf(c)
	var given map[Limit][]parsedKey
	if f.preset.local != nil {
		given = f.preset.local.given
	}
	_, unknown := f.parsed.keys([]Limit{limit}, given)
	return unknown == ""
}

// KnowsPolicy reports whether c has the limits of a policy from the server of key.
func KnowsPolicy(c *Client, key string, policy Limit) bool {
	parsed := fallbacksOf(c).parsed
	l, _ := parsed.on(context.Background(), key, policy)
	parsed.mu.Lock()
	defer parsed.mu.Unlock()
	entry, ok := parsed.entries.Peek(l)
	return ok && !entry.fetching && entry.keys != nil
}

const RefreshAfter = refreshAfter

// Waiting returns how many queues of waiting callers c has.
func Waiting(c *Client) int {
	c.waits.queues.mu.Lock()
	defer c.waits.queues.mu.Unlock()
	return len(c.waits.queues.byName)
}

// WaitingKeys returns how many keys the queues of c have.
func WaitingKeys(c *Client) int {
	c.waits.queues.mu.Lock()
	defer c.waits.queues.mu.Unlock()
	return len(c.waits.queues.byKey)
}

// Waiters returns how many callers wait in the queues of c.
func Waiters(c *Client) (n int) {
	c.waits.queues.mu.Lock()
	defer c.waits.queues.mu.Unlock()
	for _, q := range c.waits.queues.byName {
		n += len(q.waiters)
	}
	return n
}

// TakeLate takes one unit, like a call that has just found its key's batch empty.
func TakeLate(c *Client, key string, limit Limit) (Result, error) {
	return c.batches.takeShared(context.Background(), For(key, limit), single{sharedKey: sharedKey{key: key}, limit: limit, cost: 1})
}

// BatchCaller is a call for one unit, whose steps a test makes one by one.
type BatchCaller struct {
	b *batches
	c caller
}

// WaitForBatch returns a call that waits for another call's request for key.
func WaitForBatch(c *Client, key string, limit Limit) *BatchCaller {
	w := &BatchCaller{c.batches, caller{single: single{sharedKey: sharedKey{key: key}, limit: limit, cost: 1}}}
	if _, next, _ := w.b.enter(&w.c); next != awaitRequest {
		panic("no request is in progress")
	}
	return w
}

// Wake continues the call when it has waited. It returns false if the call waits again.
func (w *BatchCaller) Wake() (res Result, ok bool, err error) {
	res, next, err := w.b.enter(&w.c)
	req := For(w.c.key, w.c.limit)
	switch next {
	case askServer:
		res, err = w.b.next.Take(context.Background(), req)
	case sendRequest:
		res, err = w.b.lead(context.Background(), req, w.c.batch, w.c.request)
	}
	return res, next != awaitRequest, err
}

// ShareAbove is the number of concurrent calls that are sent separately. Further calls share round
// trips.
const ShareAbove = shareAbove

// SharedWaiting returns how many calls of c wait for a shared round trip, and how many shared round
// trips are in progress. c must use a single server.
func SharedWaiting(c *Client) (calls, running int) {
	r := &c.server.breakers.first.trips
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.waiting {
		calls += len(t.cmds)
	}
	return calls, r.running
}

// Stopped reports whether Close has stopped calls.
func Stopped(c *Client) bool { return c.server.lifetime.closed.Load() }

// Nodes returns how many nodes of a cluster or a ring c has a circuit breaker for.
func Nodes(c *Client) (n int) {
	c.server.breakers.nodes.Range(func(any, any) bool { n++; return true })
	return n
}

// Sweep makes breakers whose nodes have left go, and reports whether it will look again.
func Sweep(c *Client) bool {
	c.server.breakers.sweep()
	return c.server.breakers.sweeping.Load()
}

// Ended reports whether Close has ended the background work of c.
func Ended(c *Client) bool { return c.server.lifetime.ctx.Err() != nil }

// TakeAfterWaiting decides req like a call that shared another caller's request and waited until
// the client's timeout.
func TakeAfterWaiting(ctx context.Context, c *Client, req Request) (Result, error) {
	f := fallbacksOf(c)
	f.next = late{c}
	return f.Take(ctx, req)
}

// late sends a call to the server after the client's timeout has passed.
type late struct{ *Client }

func (l late) Take(ctx context.Context, req Request) (Result, error) {
	limited := l.bounded(ctx)
	defer limited.release()
	<-limited.wait()
	return l.server.Take(limited, req)
}

// ServerErrors returns the beginnings of the servers' own errors that c knows: those after which the
// call was not executed, and those after which it may have been.
func ServerErrors() (notExecuted, unknown []string) {
	for _, r := range replies {
		switch {
		case strings.HasPrefix(r.prefix, "RATELIMIT "):
		case r.sentence == noCommand:
			unknown = append(unknown, r.prefix)
		default:
			notExecuted = append(notExecuted, r.prefix)
		}
	}
	return notExecuted, unknown
}

// Kind returns the kind of an error, and OfKind an error of this kind.
func Kind(e *Error) string      { return e.kind }
func OfKind(kind string) *Error { return &Error{kind: kind} }

// ErrorType returns Observation.ErrorType for an error.
func ErrorType(err error) string { return errorType(err) }
