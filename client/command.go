package client

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// noRetryCmd is an FCALL that is executed at most once. go-redis asks NoRetry wherever it would repeat a command that may
// have reached a server: in Client, ClusterClient, Ring and pipelines.
type noRetryCmd struct {
	*redis.Cmd
	state atomic.Int32 // waiting, left or abandoned
	room  [8]any       // for the command's words, in the usual case
}

// newNoRetryCmd makes the command of a call that counts. The first of a call lies in its context, which saves a piece of
// memory.
func newNoRetryCmd(ctx *bounded, call call) *noRetryCmd {
	c := &ctx.first
	if c.Cmd != nil {
		c = &noRetryCmd{}
	}
	c.Cmd = fcall(ctx, "fcall", call, c.room[:0])
	return c
}

const (
	waiting   int32 = iota // not written yet
	left                   // written, or about to be
	abandoned              // nobody waits for it any more
)

func (c *noRetryCmd) NoRetry() bool { return true }

// Args is what go-redis calls to write the command, so a command for which it was never called never left. (Others may
// call it too; then a command that did not leave counts as one that may have.) A command that nobody waits for any more
// leaves as a PING: go-redis has no way to take it out of its queue, and its caller was told that nothing was counted.
func (c *noRetryCmd) Args() []any {
	if c.state.CompareAndSwap(waiting, left) || c.state.Load() == left {
		return c.Cmd.Args()
	}
	return []any{"ping"}
}

// written tells whether the command may have left.
func (c *noRetryCmd) written() bool { return c.state.Load() != waiting }

// abandon keeps the command from being written from now on, and tells whether it may have been before.
func (c *noRetryCmd) abandon() bool { return c.state.Swap(abandoned) == left }

// Clone is written out because the embedded one would return a command that may be repeated.
func (c *noRetryCmd) Clone() redis.Cmder {
	clone := &noRetryCmd{Cmd: c.Cmd.Clone().(*redis.Cmd)}
	clone.state.Store(c.state.Load())
	return clone
}

// fcall makes the command, with its words in line if there is room. Names and argument order are the wire contract.
func fcall(ctx context.Context, command any, call call, line []any) *redis.Cmd {
	line = append(line, command, function(call.verb), len(call.keys))
	for _, key := range call.keys {
		line = append(line, key)
	}
	cmd := redis.NewCmd(ctx, append(line, call.args...)...)
	if len(call.keys) > 0 {
		cmd.SetFirstKeyPos(3) // a cluster routes by the first key
	}
	cmd.SetStepCount(1) // else a cluster client asks a server for it, for up to 5 s, whatever the context says
	return cmd
}

const prefixOfFunctions = "ratelimit_"

// function is the name of a verb's function. That of the usual one is a constant, which costs no memory at each call.
func function(verb string) any {
	if verb == "take" {
		return prefixOfFunctions + "take"
	}
	return prefixOfFunctions + verb
}
