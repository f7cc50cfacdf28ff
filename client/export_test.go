package client

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Trust tells c that its rdb ends every call by itself, so that no goroutine is between a test and its fake.
func Trust(c *Client) { c.punctual = true }

// OpenWithDialer is Open over connections that dial makes.
func OpenWithDialer(t *testing.T, url string, dial func(ctx context.Context, network, addr string) (net.Conn, error), opts ...Option) *Client {
	t.Helper()
	c, err := openServers(url, func(*redis.Options) func(context.Context, string, string) (net.Conn, error) { return dial }, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// SetClock gives what c decides by itself a clock of its own.
func SetClock(c *Client, now func() time.Time) {
	c.local.now = now
	if c.batches != nil {
		c.batches.now = now
	}
	if c.memory != nil {
		c.memory.now = now
	}
}

// WaitingForBatch is how many calls wait for the request of another for key.
func WaitingForBatch(c *Client, key string) int64 {
	c.batches.mu.Lock()
	defer c.batches.mu.Unlock()
	if held, ok := c.batches.keys.Peek(key); ok {
		return held.waiting
	}
	return 0
}

// Batched and Remembered are how many keys c keeps a batch and a denial of.
func Batched(c *Client) int {
	c.batches.mu.Lock()
	defer c.batches.mu.Unlock()
	return c.batches.keys.Len()
}

func Remembered(c *Client) int {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return c.memory.keys.Len()
}

// Knows tells whether c has learned what a limit says.
func Knows(c *Client, limit Limit) bool {
	c.local.mu.Lock()
	defer c.local.mu.Unlock()
	_, unknown := c.local.of([]Limit{limit})
	return unknown == ""
}

// KnowsPolicy reports whether the server of key has told c what a policy says.
func KnowsPolicy(c *Client, key string, policy Limit) bool {
	address := ""
	if c.breakers.node != nil {
		_, address = c.nodeOf(context.Background(), key)
	}
	c.local.mu.Lock()
	defer c.local.mu.Unlock()
	r, ok := c.local.readings.Peek(question{policy, address})
	return ok && !r.asking && r.keys != nil
}

// Kept is how many buckets and limits c keeps for deciding by itself.
func Kept(c *Client) (buckets, limits int) {
	c.local.mu.Lock()
	defer c.local.mu.Unlock()
	return c.local.buckets.Len(), c.local.readings.Len()
}

const (
	MostLocal    = mostLocal
	MostReadings = mostReadings
	MostBatches  = mostBatches
	MostDenials  = mostDenials
	RereadAfter  = rereadAfter
)

// Waiting is how many queues of waiting callers c has.
func Waiting(c *Client) int {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	return len(c.queues.byName)
}

// TakeLate is a call for one unit that found nothing in the batch of its key, and goes on only now.
func TakeLate(c *Client, key string, limit Limit) (Result, error) {
	req := Request{Keys: []string{key}, Limits: []Limit{limit}}
	return c.takeShared(context.Background(), req, single{key: key, limit: limit, cost: 1})
}

// ShareAbove is how many calls go by themselves before others share round trips.
const ShareAbove = shareAbove

// SharedWaiting is how many calls of c for the only server wait for a round trip that they share, and how many such are under way.
func SharedWaiting(c *Client) (calls, underWay int) {
	r := &c.breakers.first.trips
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.waiting {
		calls += len(t.cmds)
	}
	return calls, r.underWay
}

// TakeAfterWaiting is a take of a caller that has waited for another's request until the client's timeout was over.
func TakeAfterWaiting(ctx context.Context, c *Client, req Request) (Result, error) {
	limited := c.bounded(ctx)
	defer limited.release()
	<-limited.wait()
	_, err := c.decide(limited, "take", req)
	return c.withoutDecision(ctx, req, err)
}
