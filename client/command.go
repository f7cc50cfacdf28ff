package client

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one call of a library function, as it is sent.
type call struct {
	verb string   // function name without "ratelimit_"
	keys []string // prefix included
	args []any
	mode mode

	// within is how long after the first attempt a repeatable call may be sent again; 0: as long as
	// its context lasts.
	within time.Duration
}

// mode says how often a call may be executed.
type mode int

const (
	once       mode = iota // it counts, and is sent once
	repeatable             // it counts, but is charged only once: if the reply is lost, it is sent again
	readOnly               // it writes nothing: go-redis may retry it, and replicas may reply
)

// noRetryCmd is an FCALL that is executed at most once. go-redis calls NoRetry wherever it would
// retry a command that may have reached a server: in Client, ClusterClient, Ring and pipelines.
type noRetryCmd struct {
	*redis.Cmd
	state atomic.Int32 // waiting, left or abandoned
	room  [8]any       // for the command's arguments, if they fit
}

// newNoRetryCmd makes the command of a call that counts. The first command of a call is stored in
// its context, which saves an allocation.
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
	left                   // written, or about to be written
	abandoned              // no caller waits for it any more
)

func (c *noRetryCmd) NoRetry() bool { return true }

// Args is what go-redis calls to write the command, so a command whose Args was never called was
// never sent. If other code calls Args too, a command that was not sent counts as possibly sent. An
// abandoned command is sent as a PING: go-redis cannot remove it from its queue, and its caller was
// told that nothing was counted.
func (c *noRetryCmd) Args() []any {
	if c.state.CompareAndSwap(waiting, left) || c.state.Load() == left {
		return c.Cmd.Args()
	}
	return []any{"ping"}
}

// written reports whether the command may have been sent.
func (c *noRetryCmd) written() bool { return c.state.Load() != waiting }

// abandon prevents the command from being written from now on, and reports whether it may already
// have been.
func (c *noRetryCmd) abandon() bool { return c.state.Swap(abandoned) == left }

// Clone is defined here because the embedded method would return a command that may be retried.
func (c *noRetryCmd) Clone() redis.Cmder {
	clone := &noRetryCmd{Cmd: c.Cmd.Clone().(*redis.Cmd)}
	clone.state.Store(c.state.Load())
	return clone
}

// fcall makes the FCALL command. It stores the arguments in line if they fit. Names and argument
// order are the wire contract.
func fcall(ctx context.Context, command any, call call, line []any) *redis.Cmd {
	line = append(line, command, function(call.verb), len(call.keys))
	for _, key := range call.keys {
		line = append(line, key)
	}
	cmd := redis.NewCmd(ctx, append(line, call.args...)...)
	if len(call.keys) > 0 {
		cmd.SetFirstKeyPos(3) // a cluster routes by the first key
	}
	cmd.SetStepCount(1) // otherwise a cluster client asks a server for it, for up to 5 s, ignoring the context
	return cmd
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
type panicked struct {
	value any
	stack string // for LogTo
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
