package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one call of a function of the library, as it is to be sent.
type call struct {
	verb string   // what follows "ratelimit_"
	keys []string // prefix included
	args []any
	way  way

	// within is how long after the first time an again call may be sent once more; 0: as long as its context lasts.
	within time.Duration
}

// way is how often a call may be executed.
type way int

const (
	once     way = iota // it counts, and is sent once
	again               // it counts, but a repetition takes nothing more: where the reply was lost, it is sent again
	readOnly            // it writes nothing: go-redis may repeat it, and replicas may reply
)

// ask is the one way to a server: every call of this package goes through it, and returns within the client's bound.
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

// ready is the error of a call that is not to be sent, or nil.
func (c *Client) ready(ctx context.Context, call call) error {
	if err := c.unnamed(call.keys); err != nil {
		return refused(call.verb, call.keys, err)
	}
	if c.life.closed.Load() {
		return afterClose(call.verb, call.keys)
	}
	return notSent(call, ended(ctx)) // some Redis clients would send it all the same
}

// unnamed is the error for a key that was given empty, or nil. The server would take it: everybody whose name got lost on
// the way would then share one limit.
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

// attempt has a call executed once at most. Where the library was not there, and a healer put it there, it is sent anew.
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

// try sends a call once, unless its node is to be left alone. A node that is not known has no breaker.
func (c *Client) try(ctx *bounded, call call) (reply any, err error) {
	node := c.breakers.of(ctx, call.keys)
	if node == nil {
		return c.sendOnce(ctx, nil, call)
	}
	sent := false
	_, _ = node.Execute(func() (any, error) { // what it returns is for the breaker
		sent = true
		if node.open.Load() {
			ctx.shorten(probeFor)
		}
		reply, err = c.sendOnce(ctx, node, call)
		return nil, c.tell(ctx, node, err)
	})
	if !sent {
		c.reload(ctx) // the keys may be elsewhere by now
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

// send gives the call to go-redis, and returns what came back. written tells whether a call that counts may have left.
func (c *Client) send(ctx *bounded, node *breaker, call call) (reply any, written bool, err error) {
	ctx.quiet = false
	if !c.punctual {
		return c.sendAside(ctx, call)
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

// process sends cmd, whose reply is then in inner.
func process(ctx context.Context, rdb redis.UniversalClient, cmd redis.Cmder, inner *redis.Cmd) (reply any, err error) {
	defer recovered(&err)
	if err := rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return inner.Result()
}

// panicked is the cause of an error if go-redis, or a hook of the Redis client, panicked. go-redis does so when a reply
// announces more elements than memory can hold.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprintf("the Redis client panicked: %v", p.value) }

// recovered turns a panic into an error. It is to be deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = panicked{value}
	}
}

// pauses are the waits before a call whose reply was lost is asked again: long enough for a cluster client to find
// another node. Each is shortened by up to a half at random, so that callers who lost a server together return apart.
var pauses = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond}

// repeat asks again where the reply was lost, as long as ctx lasts and within what the call says. It leaves to the
// caller what was not sent at all. Once a reply has been lost, only a reply can tell the outcome: no later error does.
func (c *Client) repeat(ctx *bounded, call call) (any, error) {
	began := time.Now()
	reply, err := c.attempt(ctx, call)
	first, last, n := err, err, 0
	if !lost(first) {
		return reply, err
	}
	if call.within > 0 { // a repetition that is executed later may be charged again
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

// sleep waits for d, or returns false because ctx has ended.
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

// fail makes the error. It also has a cluster client look for the new primaries after a failed connection: it does so
// itself only for commands that it repeats, and else waits for its next periodic reload.
func (c *Client) fail(ctx context.Context, call call, err error, written bool) error {
	e := newError(ctx, call.verb, call.keys, err, written)
	if e.Code == "" {
		c.reload(ctx)
	}
	return e
}

// reload has a cluster client look for its nodes anew, in the background and not more often than five times a second.
func (c *Client) reload(ctx context.Context) {
	if cluster, ok := c.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}
