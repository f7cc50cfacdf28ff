package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Concurrent calls to the same server share round trips: calls that arrive while others are in
// progress are sent together, in a pipeline. This multiplies the number of decisions per second for
// many goroutines. Each call keeps the guarantees of a single call. If a connection breaks, all calls
// that share the round trip lose their replies; the circuit breaker counts this as one call without
// a reply.
//
// bench/README.md has the measurements behind these values. go-redis's own AutoPipeliner is not
// suitable. It ignores contexts. It reads a command's arguments when it queues the command, so the
// client could not tell which commands were sent. In a cluster, it sends calls for several nodes
// together, so all of them wait for one node that hangs.
const (
	shareAbove      = 8   // above this number of calls in progress for a node, calls share round trips; below, sharing saves no time
	mostConcurrent  = 2   // round trips per node; with only 1, a hanging connection would stop all calls
	mostInRoundTrip = 500 // calls per round trip: a few milliseconds of server time
)

type roundTrips struct {
	calls atomic.Int64 // calls in progress, shared or not

	mu      sync.Mutex
	waiting []*roundTrip // not started; calls join the last one
	running int
}

// roundTrip is one pipeline.
type roundTrip struct {
	cmds     []*command
	deadline time.Time     // the latest deadline of its calls
	done     chan struct{} // closed when every command has a reply or an error
	err      error         // the error for commands that have neither a reply nor their own error
	reported atomic.Bool   // whether its failure was reported to the breaker
}

// sent is the outcome of an attempt.
type sent struct {
	reply   any
	err     error
	at      *breaker // the node that executed the call, or failed to
	stopped bool     // the call was redirected to that node, but the node is left alone
}

// send sends a call once, alone or with others, and stores the outcome in ctx.sent. If node is nil,
// the call is sent alone. If node redirects the call, send stores the other node in ctx.sent. If the
// call fails without a reply, send makes a cluster client look for new primaries. The cluster client
// does this itself only for commands that it retries; for others it waits for its next periodic
// reload.
func (s *server) send(ctx *bounded, gate, node *breaker, call *call) {
	ctx.quiet, ctx.sent = false, sent{at: node}
	cmd := newCommand(ctx, call)
	var reply any
	var err error
	var written, done bool // written: a command that is not read-only may have been sent
	if call.mode != readOnly && gate == node && s.sharesWith(node) {
		defer node.trips.calls.Add(-1)
		t := call.with.join(node, cmd, ctx.deadline)
		if node.trips.calls.Add(1) > s.shareAbove && t == nil {
			if t = node.join(s, cmd, ctx.deadline); t == nil {
				err, done = errClosed, true
			}
		}
		if t != nil {
			reply, written, err = t.await(ctx, cmd)
			if done = !s.elsewhere(err); !done {
				cmd = newCommand(ctx, call)
				ctx.quiet = false
			}
		}
	}
	if !done {
		f := &cmd.follow
		if s.breakers.redirects && node != nil {
			f.ctx, f.breakers, f.gate = ctx, s.breakers, gate
		}
		reply, err = cmd.send(ctx, s.rdb)
		written = cmd.written()
		if to := f.to.Load(); to != nil {
			ctx.sent.at, ctx.sent.stopped = to, f.stopped.Load()
			ctx.stop(false)
		}
	}
	if ctx.sent.stopped {
		return
	}
	ctx.sent.reply = reply
	if err != nil {
		e := newError(ctx, call.verb, call.keys, err, written)
		if e.Code == "" {
			s.reload(ctx)
		}
		ctx.sent.reply, ctx.sent.err = nil, e
	}
}

// sharesWith reports whether a call to node may share a round trip with other calls. A call that
// probes a node whose breaker is open is sent alone. So are calls whose node is not known yet: if
// they shared a round trip, one unreachable node would delay the calls to other nodes.
func (s *server) sharesWith(node *breaker) bool {
	return node != nil && !node.open.Load() && (s.breakers.node == nil || node != s.breakers.first)
}

// await waits for the reply to cmd, which is in t.
func (t *roundTrip) await(ctx *bounded, cmd *command) (reply any, written bool, err error) {
	select {
	case <-t.done:
		if reply, err = cmd.Result(); reply == nil && err == nil {
			err = t.err
		}
		if errors.Is(err, context.Canceled) { // only closing the client cancels a round trip
			err = errClosed
		}
		written = cmd.written()
	case <-ctx.wait():
		err = ended(ctx)
		written = cmd.abandon()
	}
	ctx.quiet = err != nil && !ctx.saysNothing(err) && t.reported.Swap(true)
	return reply, written, err
}

// join adds a command to the next round trip. It returns nil if the client is closed.
func (b *breaker) join(s *server, cmd *command, deadline time.Time) *roundTrip {
	r := &b.trips
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running < mostConcurrent {
		if !s.lifetime.run(func() { b.run(s) }) {
			return nil
		}
		r.running++
	}
	n := len(r.waiting)
	if n == 0 || len(r.waiting[n-1].cmds) == mostInRoundTrip {
		r.waiting = append(r.waiting, &roundTrip{done: make(chan struct{})})
		n++
	}
	t := r.waiting[n-1]
	t.add(cmd, deadline)
	return t
}

// add adds a command with the deadline of its call.
func (t *roundTrip) add(cmd *command, deadline time.Time) {
	t.cmds = append(t.cmds, cmd)
	if deadline.After(t.deadline) {
		t.deadline = deadline
	}
}

// run sends the waiting round trips, one after another.
func (b *breaker) run(s *server) {
	for t := b.trips.next(); t != nil; t = b.trips.next() {
		t.err = t.send(s, s.clientOf(b))
		close(t.done)
	}
}

// next returns the next round trip to send. If none is waiting, it returns nil, and the caller must
// stop, because r.running no longer counts it.
func (r *roundTrips) next() *roundTrip {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.waiting = nil
		r.running--
		return nil
	}
	t := r.waiting[0]
	r.waiting = r.waiting[1:]
	return t
}

// send sends the commands whose callers are still waiting. Afterwards, each of these commands has a
// reply or its own error, unless go-redis panicked. send uses the client of the cluster node
// directly: the pipeline of a cluster client sends in its own goroutine, where a panic could not be
// recovered.
func (t *roundTrip) send(s *server, node redis.UniversalClient) (err error) {
	defer recovered(&err)
	ctx := &bounded{Context: s.lifetime.ctx, deadline: t.deadline, timeout: s.timeout}
	defer ctx.release()
	cmds := make([]redis.Cmder, 0, len(t.cmds))
	for _, cmd := range t.cmds {
		if cmd.state.Load() == waiting {
			cmds = append(cmds, cmd)
		}
	}
	pipe := node.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, _ = pipe.Exec(ctx)
	return nil
}
