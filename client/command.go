package client

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// onceCmd is an FCALL that is executed at most once. go-redis asks NoRetry wherever it would repeat a command that may
// have reached a server: in Client, ClusterClient, Ring and pipelines.
type onceCmd struct {
	*redis.Cmd
	written atomic.Bool
}

func (c *onceCmd) NoRetry() bool { return true }

// Args is what go-redis calls to write the command, so a command for which it was never called never left. (Others may
// call it too; then a command that did not leave counts as one that may have.)
func (c *onceCmd) Args() []any {
	c.written.Store(true)
	return c.Cmd.Args()
}

// Clone is written out because the embedded one would return a command that may be repeated.
func (c *onceCmd) Clone() redis.Cmder {
	clone := &onceCmd{Cmd: c.Cmd.Clone().(*redis.Cmd)}
	clone.written.Store(c.written.Load())
	return clone
}

func fcall(ctx context.Context, command, function string, keys []string, args []any) *redis.Cmd {
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, command, function, len(keys))
	for _, key := range keys {
		line = append(line, key)
	}
	cmd := redis.NewCmd(ctx, append(line, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3) // a cluster routes by the first key
	}
	return cmd
}

// callOnce is for functions that write.
func (c *Client) callOnce(ctx context.Context, op, function string, keys []string, args []any) (any, error) {
	cmd := &onceCmd{Cmd: fcall(ctx, "fcall", function, keys, args)}
	err := c.rdb.Process(ctx, cmd)
	if err == nil {
		var reply any
		if reply, err = cmd.Result(); err == nil {
			return reply, nil
		}
	}
	return nil, c.fail(ctx, op, keys, err, cmd.written.Load())
}

// callReadOnly is for functions that write nothing: repeating them is harmless, and replicas may answer.
func (c *Client) callReadOnly(ctx context.Context, op, function string, keys []string, args []any) (any, error) {
	cmd := fcall(ctx, "fcall_ro", function, keys, args)
	err := c.rdb.Process(ctx, cmd)
	if err == nil {
		var reply any
		if reply, err = cmd.Result(); err == nil {
			return reply, nil
		}
	}
	return nil, c.fail(ctx, op, keys, err, false)
}

// fail makes the error. It also has a cluster client look for the new primaries after a failed connection: it does so
// itself only for commands that it repeats, and else waits for its next periodic reload.
func (c *Client) fail(ctx context.Context, op string, keys []string, err error, written bool) error {
	e := newError(ctx, op, keys, err, written)
	if e.Code == "" {
		if cluster, ok := c.rdb.(interface{ ReloadState(context.Context) }); ok {
			cluster.ReloadState(ctx)
		}
	}
	return e
}
