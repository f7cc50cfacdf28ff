package client

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

type call struct {
	verb string   // function name without "ratelimit_"
	keys []string // prefix included
	args []any
	mode mode

	// within is the time after the first attempt during which a repeatable call may be retried. If it
	// is 0, the call may be retried until its context is done.
	within time.Duration

	with *seat // the call's place in a TakeAll, or nil
}

// mode says whether a call may be sent more than once.
type mode int

const (
	once       mode = iota // not read-only: sent once
	repeatable             // not read-only, but safe to repeat: sent again if the reply is lost
	readOnly               // writes no data: go-redis may retry it, and replicas may reply
)

// command is the FCALL of a call. A command that writes is executed at most once.
type command struct {
	*redis.Cmd
	readOnly bool
	state    atomic.Int32 // waiting, left or abandoned
	room     [8]any       // storage for the command's arguments, if they fit
	follow   follow
}

// newCommand makes the command of a call. The first command of a call is stored in its context,
// which saves an allocation.
func newCommand(ctx *bounded, call *call) *command {
	c := &ctx.first
	if c.Cmd != nil {
		c = &command{}
	}
	c.fill(ctx, call)
	return c
}

// fill sets c to the command for call. Names and argument order are part of the wire contract.
func (c *command) fill(ctx context.Context, call *call) {
	c.readOnly = call.mode == readOnly
	var name any = "fcall"
	if c.readOnly {
		name = "fcall_ro"
	}
	args := append(c.room[:0], name, function(call.verb), len(call.keys))
	for _, key := range call.keys {
		args = append(args, key)
	}
	c.Cmd = redis.NewCmd(ctx, append(args, call.args...)...)
	if len(call.keys) > 0 {
		c.SetFirstKeyPos(3) // a cluster routes by the first key
	}
	// Without a step count, a cluster client would fetch it from a server, which may take 5 s and
	// ignores the context.
	c.SetStepCount(1)
}

const (
	waiting   int32 = iota // not written yet
	left                   // written, or about to be written
	abandoned              // no caller waits for it any more
)

// NoRetry reports whether go-redis must not retry the command. Client, ClusterClient, Ring and
// pipelines call it before they retry a command that may have reached a server.
func (c *command) NoRetry() bool { return !c.readOnly }

// Args returns the arguments. go-redis calls it to write the command, so a command whose Args was
// never called was never sent. If other code calls Args too, a command that was not sent counts as
// possibly sent. An abandoned command must not be sent, because its caller was told that nothing
// was counted. go-redis cannot remove it from its queue, so Args replaces it with a PING.
func (c *command) Args() []any {
	if c.state.CompareAndSwap(waiting, left) || c.state.Load() == left {
		return c.Cmd.Args()
	}
	return []any{"ping"}
}

// written reports whether the command is not read-only and may have been sent.
func (c *command) written() bool { return !c.readOnly && c.state.Load() != waiting }

// abandon prevents the command from being sent, except as a PING; see Args. It reports whether the
// command is not read-only and may already have been sent.
func (c *command) abandon() bool { return c.state.Swap(abandoned) == left && !c.readOnly }

// Clone replaces the embedded method, which would return a command that go-redis may retry.
func (c *command) Clone() redis.Cmder {
	clone := &command{Cmd: c.Cmd.Clone().(*redis.Cmd), readOnly: c.readOnly}
	clone.state.Store(c.state.Load())
	return clone
}

func (c *command) send(ctx context.Context, rdb redis.UniversalClient) (reply any, err error) {
	defer recovered(&err)
	if err := rdb.Process(ctx, c); err != nil {
		return nil, err
	}
	return c.Result()
}

// panicked is the cause of an error if go-redis or a hook of the Redis client panicked. go-redis
// panics if a reply announces more elements than fit in memory.
type panicked struct {
	value any
	stack string // stack of the panic, for LogTo
}

func (p panicked) Error() string { return fmt.Sprintf("the Redis client panicked: %v", p.value) }

// recovered turns a panic into an error. It must be deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = panicked{value, string(debug.Stack())}
	}
}

const prefixOfFunctions = "ratelimit_"

// function returns the name of the library function for verb. For the most frequent verb it is a
// constant, which saves an allocation per call.
func function(verb string) any {
	if verb == "take" {
		return prefixOfFunctions + "take"
	}
	return prefixOfFunctions + verb
}
