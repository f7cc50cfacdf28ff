package client

import (
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Trust makes c assume that its Redis client ends every call at its deadline. c then starts no
// goroutine for a call. Calls do not share round trips, because a fake has no pipelines.
func Trust(c *Client) { c.server.punctual, c.server.unshared = true, true }

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

// SetClock sets the clock that c uses for the decisions it makes itself.
func SetClock(c *Client, now func() time.Time) { c.server.now = now }

// WaitingForBatch returns how many calls wait for another call's request for key.
func WaitingForBatch(c *Client, key string) int64 {
	c.batches.mu.Lock()
	defer c.batches.mu.Unlock()
	if k, ok := c.batches.entries.Peek(key); ok {
		return k.waiting
	}
	return 0
}

// Tables holds a number for each table of a client, such as its size.
type Tables struct{ Batches, Denials, Buckets, Limits int }

// Kept returns how many entries each table has.
func Kept(c *Client) Tables {
	return Tables{Batches: c.batches.len(), Denials: c.memory.len(), Buckets: c.fallbacks.buckets.len(), Limits: c.batches.parsed.len()}
}

func (t *table[K, V]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries.Len()
}

// Shrink divides the sizes of all tables by n, and returns the previous sizes.
func Shrink(c *Client, n int) Tables {
	size := func(table interface{ Resize(int) int }) int {
		size := int(reflect.ValueOf(table).Elem().FieldByName("size").Int())
		table.Resize(size / n)
		return size
	}
	return Tables{Batches: size(c.batches.entries), Denials: size(c.memory.entries), Buckets: size(c.fallbacks.buckets.entries), Limits: size(c.batches.parsed.entries)}
}

// Learn fetches the parsed form of a limit from a server and stores it in c.
func Learn(c *Client, limit Limit) {
	parsed, l := c.batches.parsed, limitOn{limit: limit}
	parsed.mu.Lock()
	parsed.get(l)
	parsed.mu.Unlock()
	parsed.refresh(l, c.server.rdb)
}

// Knows reports whether c has the parsed form of a limit.
func Knows(c *Client, limit Limit) bool {
	_, unknown := c.batches.parsed.keys([]Limit{limit})
	return unknown == ""
}

// KnowsPolicy reports whether c has the limits of a policy from the server of key.
func KnowsPolicy(c *Client, key string, policy Limit) bool {
	parsed := c.batches.parsed
	l, _ := parsed.on(context.Background(), key, policy)
	parsed.mu.Lock()
	defer parsed.mu.Unlock()
	entry, ok := parsed.entries.Peek(l)
	return ok && !entry.fetching && entry.keys != nil
}

const RefreshAfter = refreshAfter

// Waiting returns how many queues of waiting callers c has.
func Waiting(c *Client) int {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	return len(c.queues.byName)
}

// TakeLate takes one unit, like a call that has just found its key's batch empty.
func TakeLate(c *Client, key string, limit Limit) (Result, error) {
	req := Request{Keys: []string{key}, Limits: []Limit{limit}}
	return c.batches.takeShared(context.Background(), &req, single{key: key, limit: limit, cost: 1})
}

// BatchCaller is a call for one unit, whose steps a test makes one by one.
type BatchCaller struct {
	b *batches
	c caller
}

// WaitForBatch returns a call that waits for another call's request for key.
func WaitForBatch(c *Client, key string, limit Limit) *BatchCaller {
	w := &BatchCaller{&c.batches, caller{single: single{key: key, limit: limit, cost: 1}}}
	if _, next, _ := w.b.enter(&w.c); next != awaitRequest {
		panic("no request is in progress")
	}
	return w
}

// Wake continues the call when it has waited. It returns false if the call waits again.
func (w *BatchCaller) Wake() (res Result, ok bool, err error) {
	res, next, err := w.b.enter(&w.c)
	req := Request{Keys: []string{w.c.key}, Limits: []Limit{w.c.limit}}
	switch next {
	case askServer:
		res, err = w.b.next.decide(context.Background(), &req)
	case sendRequest:
		res, err = w.b.lead(context.Background(), &req, w.c.batch, w.c.request)
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
	c.fallbacks.next = lateDecider{c.server}
	return c.fallbacks.decide(ctx, &req)
}

// lateDecider sends a call to the server after the client's timeout has passed.
type lateDecider struct{ server *server }

func (d lateDecider) decide(ctx context.Context, req *Request) (Result, error) {
	limited := d.server.bounded(ctx)
	defer limited.release()
	<-limited.wait()
	return d.server.decide(limited, req)
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
