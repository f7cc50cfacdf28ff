package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// noRetryCmd is an FCALL that is executed at most once. go-redis asks NoRetry wherever it would repeat a command that may
// have reached a server: in Client, ClusterClient, Ring and pipelines.
type noRetryCmd struct {
	*redis.Cmd
	written atomic.Bool
}

func (c *noRetryCmd) NoRetry() bool { return true }

// Args is what go-redis calls to write the command, so a command for which it was never called never left. (Others may
// call it too; then a command that did not leave counts as one that may have.)
func (c *noRetryCmd) Args() []any {
	c.written.Store(true)
	return c.Cmd.Args()
}

// Clone is written out because the embedded one would return a command that may be repeated.
func (c *noRetryCmd) Clone() redis.Cmder {
	clone := &noRetryCmd{Cmd: c.Cmd.Clone().(*redis.Cmd)}
	clone.written.Store(c.written.Load())
	return clone
}

// fcall makes the command. Names and argument order are the wire contract: verb is what follows "ratelimit_".
func fcall(ctx context.Context, command, verb string, keys []string, args []any) *redis.Cmd {
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, command, prefixOfFunctions+verb, len(keys))
	for _, key := range keys {
		line = append(line, key)
	}
	cmd := redis.NewCmd(ctx, append(line, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3) // a cluster routes by the first key
	}
	return cmd
}

const prefixOfFunctions = "ratelimit_"

// ready is the error of a call that is not to be sent, or nil.
func (c *Client) ready(ctx context.Context, verb string, keys []string) error {
	if err := c.unnamed(keys); err != nil {
		return refused(verb, keys, err)
	}
	if cause := ended(ctx); cause != nil { // some clients would send it all the same
		return notSent(verb, keys, cause)
	}
	return nil
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

// callOnce is for functions that write.
func (c *Client) callOnce(ctx context.Context, verb string, keys []string, args []any) (any, error) {
	if err := c.ready(ctx, verb, keys); err != nil {
		return nil, err
	}
	cmd := &noRetryCmd{Cmd: fcall(ctx, "fcall", verb, keys, args)}
	err := c.rdb.Process(ctx, cmd)
	if err == nil {
		var reply any
		if reply, err = cmd.Result(); err == nil {
			return reply, nil
		}
	}
	return nil, c.fail(ctx, verb, keys, err, cmd.written.Load())
}

// callReadOnly is for functions that write nothing: repeating them is harmless, and replicas may reply.
func (c *Client) callReadOnly(ctx context.Context, verb string, keys []string, args []any) (any, error) {
	if err := c.ready(ctx, verb, keys); err != nil {
		return nil, err
	}
	cmd := fcall(ctx, "fcall_ro", verb, keys, args)
	err := c.rdb.Process(ctx, cmd)
	if err == nil {
		var reply any
		if reply, err = cmd.Result(); err == nil {
			return reply, nil
		}
	}
	return nil, c.fail(ctx, verb, keys, err, false)
}

// pauses are the waits before a call whose reply was lost is asked again: long enough for a cluster client to find
// another node. Each is shortened by up to a half at random, so that callers who lost a server together return apart.
var pauses = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond}

// callAgain is for functions that write, but where a repetition takes nothing more: it asks again where the reply was
// lost, as long as ctx lasts and, if within is above 0, no longer than that after the first call. It leaves to the
// caller what was not sent at all. Once a reply has been lost, only a reply can tell the outcome: no later error does.
func (c *Client) callAgain(ctx context.Context, verb string, keys []string, args []any, within time.Duration) (any, error) {
	began := time.Now()
	reply, err := c.callOnce(ctx, verb, keys, args)
	first, last, n := err, err, 0
	if !lost(first) {
		return reply, err
	}
	for _, pause := range pauses {
		pause -= rand.N(pause / 2)
		if within > 0 && time.Since(began)+pause > within || !sleep(ctx, pause) {
			break
		}
		n++
		if reply, last = c.callOnce(ctx, verb, keys, args); last == nil {
			return reply, nil
		}
		if !errors.Is(last, ErrUnavailable) {
			break
		}
	}
	return nil, lostAgain(ctx, first, last, n)
}

// sleep waits for d, or returns false because ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ended(ctx) == nil
	}
}

// fail makes the error. It also has a cluster client look for the new primaries after a failed connection: it does so
// itself only for commands that it repeats, and else waits for its next periodic reload.
func (c *Client) fail(ctx context.Context, verb string, keys []string, err error, written bool) error {
	e := newError(ctx, verb, keys, err, written)
	if e.Code == "" {
		if cluster, ok := c.rdb.(interface{ ReloadState(context.Context) }); ok {
			cluster.ReloadState(ctx)
		}
	}
	return e
}
