package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one call of a library function, as it is sent.
type call struct {
	verb string   // function name without "ratelimit_"
	keys []string // prefix included
	args []any
	way  way

	// within is how long after the first attempt a call may be sent again if way is again; 0: as
	// long as its context lasts.
	within time.Duration
}

// way says how often a call may be executed.
type way int

const (
	once     way = iota // it counts, and is sent once
	again               // it counts, but is charged only once: if the reply is lost, it is sent again
	readOnly            // it writes nothing: go-redis may retry it, and replicas may reply
)

// ask sends a call to a server, and returns within the client's timeout.
func (c *Client) ask(ctx context.Context, call call) (any, error) {
	if err := c.ready(ctx, call); err != nil {
		return nil, err
	}
	limited := c.bounded(ctx)
	defer limited.release()
	if call.way == again {
		return c.repeat(limited, call)
	}
	return c.attempt(limited, call)
}

// ready returns the error of a call that cannot be sent, or nil.
func (c *Client) ready(ctx context.Context, call call) error {
	if err := c.unnamed(call.keys); err != nil {
		return refused(call.verb, call.keys, err)
	}
	if c.life.closed.Load() {
		return afterClose(call.verb, call.keys)
	}
	return notSent(call, ended(ctx)) // some Redis clients would send it anyway
}

// unnamed returns an error if a key was given empty, or nil. The server would accept it, and all
// clients whose name is missing by mistake would then share one limit.
func (c *Client) unnamed(keys []string) error {
	prefix := ""
	if c.prefix != nil {
		prefix = *c.prefix
	}
	for i, key := range keys {
		if key == prefix {
			return fmt.Errorf("BADKEYS key %d is empty; give what is to be limited a key of its own, such as user:42", i+1)
		}
	}
	return nil
}

// attempt executes a call at most once. If the library was missing and the healer installed it, the
// call is sent again.
func (c *Client) attempt(ctx *bounded, call call) (any, error) {
	if c.healer == nil || len(call.keys) == 0 {
		return c.try(ctx, call)
	}
	sent := time.Now()
	reply, err := c.try(ctx, call)
	if !notFound(err) {
		return reply, err
	}
	if why := c.heal(ctx, call, sent); why != nil {
		return nil, unhealed(err, why)
	}
	return c.try(ctx, call)
}

// try sends a call once, unless the breaker of its node is open. A call without keys has no known
// node and no breaker.
func (c *Client) try(ctx *bounded, call call) (reply any, err error) {
	node := c.breakers.of(ctx, call.keys)
	if node == nil {
		return c.sendOnce(ctx, nil, call)
	}
	sent := false
	_, _ = node.Execute(func() (any, error) { // the results are for the breaker
		sent = true
		if node.open.Load() {
			ctx.shorten(probeFor)
		}
		reply, err = c.sendOnce(ctx, node, call)
		return nil, c.tell(ctx, node, err)
	})
	if !sent {
		c.reload(ctx) // the keys may be on another node by now
		return nil, node.leftAlone(call)
	}
	return reply, err
}

func (c *Client) sendOnce(ctx *bounded, node *breaker, call call) (any, error) {
	reply, written, err := c.send(ctx, node, call)
	if err != nil {
		return nil, c.fail(ctx, call, err, written)
	}
	return reply, nil
}

// send passes the call to go-redis, and returns its reply. written reports whether a call that
// counts may have been sent.
func (c *Client) send(ctx *bounded, node *breaker, call call) (reply any, written bool, err error) {
	ctx.quiet = false
	if !c.punctual {
		return c.sendAside(ctx, c.rdb, call)
	}
	if call.way == readOnly {
		cmd := fcall(ctx, "fcall_ro", call, nil)
		reply, err = process(ctx, c.rdb, cmd, cmd)
		return reply, false, err
	}
	cmd := newNoRetryCmd(ctx, call)
	if c.sharesWith(node) {
		defer node.trips.calls.Add(-1)
		if node.trips.calls.Add(1) > shareAbove {
			reply, written, err = c.sendShared(ctx, node, cmd)
			if !c.elsewhere(err) {
				return reply, written, err
			}
			cmd = newNoRetryCmd(ctx, call)
			ctx.quiet = false
		}
	}
	reply, err = process(ctx, c.rdb, cmd, cmd.Cmd)
	return reply, cmd.written(), err
}

// process sends cmd, which stores its reply in inner.
func process(ctx context.Context, rdb redis.UniversalClient, cmd redis.Cmder, inner *redis.Cmd) (reply any, err error) {
	defer recovered(&err)
	if err := rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return inner.Result()
}

// panicked is the cause of an error if go-redis or a hook of the Redis client panicked. go-redis
// panics if a reply announces more elements than fit in memory.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprintf("the Redis client panicked: %v", p.value) }

// recovered turns a panic into an error. It must be deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = panicked{value}
	}
}

// pauses are the waits before retries of a call whose reply was lost. They are long enough for a
// cluster client to find another node. Each is shortened by up to half at random, so that callers
// of one failed server do not all return at once.
var pauses = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond}

// repeat retries a call whose reply was lost, while ctx lasts and within call.within. It does not
// retry a call that was not sent. Once a reply is lost, only a later reply tells the outcome; a
// later error does not.
func (c *Client) repeat(ctx *bounded, call call) (any, error) {
	began := time.Now()
	reply, err := c.attempt(ctx, call)
	first, last, n := err, err, 0
	if !lost(first) {
		return reply, err
	}
	if call.within > 0 { // a retry that is executed later could be charged again
		ctx.shorten(2*call.within - time.Since(began))
	}
	for _, pause := range pauses {
		pause -= rand.N(pause / 2)
		if call.within > 0 && time.Since(began)+pause > call.within || !sleep(ctx, pause) {
			break
		}
		n++
		if reply, last = c.attempt(ctx, call); last == nil {
			return reply, nil
		}
		if !errors.Is(last, ErrUnavailable) {
			break
		}
	}
	return nil, lostAgain(ctx, first, last, n)
}

// sleep waits for d. It returns false if ctx has ended.
func sleep(ctx *bounded, d time.Duration) bool {
	timer := time.NewTimer(min(d, time.Until(ctx.deadline)))
	defer timer.Stop()
	select {
	case <-ctx.Context.Done():
		return false
	case <-timer.C:
		return ended(ctx) == nil
	}
}

// fail makes the error of a call. After a failed connection it also makes a cluster client look for
// new primaries. The cluster client does this itself only for commands that it retries; for others
// it waits for its next periodic reload.
func (c *Client) fail(ctx context.Context, call call, err error, written bool) error {
	e := newError(ctx, call.verb, call.keys, err, written)
	if e.Code == "" {
		c.reload(ctx)
	}
	return e
}

// reload makes a cluster client rediscover its nodes, in the background and at most five times a
// second.
func (c *Client) reload(ctx context.Context) {
	if cluster, ok := c.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}
