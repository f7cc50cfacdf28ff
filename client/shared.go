package client

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// bench/README.md has the figures that these are from. go-redis's own AutoPipeliner does not do: it takes no
// heed of contexts, it asks for a command's words when it queues it, so that nobody knows what has left, and in a cluster
// it sends calls for several nodes together, which then all wait for one that hangs.
const (
	shareAbove   = 8   // calls under way for a node; up to these, a connection for each is as fast
	mostUnderWay = 2   // round trips of a node at once: as fast as one, and if a connection hangs, half of the calls go on
	mostTogether = 500 // calls in one round trip: some milliseconds of a server
)

// sharing is whether calls share round trips, as the options say.
type sharing int

const (
	whereItCan sharing = iota // if the Redis client ends calls at their deadlines
	always
	never
)

// WithSharedRoundTrips makes [New] fail if calls cannot share round trips: with an rdb that was made without
// ContextTimeoutEnabled, or with ReadOnly. Calls of any other rdb, and of [Open], share them without this option.
//
// Calls for the same server share round trips while many of them are under way: those that come while others are on their
// way are sent together, in a pipeline. So many goroutines get several times as many decisions of a server. A few calls at a
// time go each by itself.
//
// What holds for a call by itself holds: its bound, and that it is executed once at most. A call whose context ends before
// it is sent is not sent. If a connection breaks, all calls that shared the round trip have lost their replies
// ([ErrOutcomeUnknown]); that counts as one call to which the server did not reply. Calls that write nothing
// (Peek, Usage, Info) are not shared.
func WithSharedRoundTrips() Option { return withSharing(always) }

// WithoutSharedRoundTrips sends each call by itself, over a connection of its own; see [WithSharedRoundTrips].
func WithoutSharedRoundTrips() Option { return withSharing(never) }

func withSharing(s sharing) Option {
	return func(c *Client) error {
		if c.sharing != whereItCan && c.sharing != s {
			return errors.New("both WithSharedRoundTrips and WithoutSharedRoundTrips are given; give one")
		}
		c.sharing = s
		return nil
	}
}

// roundTrips are those that the calls for one node share.
type roundTrips struct {
	calls atomic.Int64 // under way, shared or not

	mu       sync.Mutex
	waiting  []*roundTrip // not begun; calls join the last
	underWay int
}

// roundTrip is one pipeline.
type roundTrip struct {
	cmds     []*noRetryCmd
	deadline time.Time     // the latest of its calls
	done     chan struct{} // closed when every command has its reply or its error
	err      error         // of the commands that have neither
	told     atomic.Bool   // the breaker knows that it failed
}

// sharesWith tells whether a call for a node may share a round trip. Calls that find out whether a node is back do not, nor those
// whose node is not known yet: what shares a round trip waits for all of it, and one dead node would hold calls for the others.
func (c *Client) sharesWith(node *breaker) bool {
	return c.share && node != nil && !node.open.Load() && (c.breakers.node == nil || node != c.breakers.first)
}

// elsewhere reports whether err says that a node of a cluster did not execute a call because another one has its keys.
// The cluster client finds that one, for a call by itself.
func (c *Client) elsewhere(err error) bool {
	if err == nil || c.breakers.node == nil {
		return false
	}
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrClosed)
}

// sendShared is send in a round trip with others.
func (c *Client) sendShared(ctx *bounded, node *breaker, cmd *noRetryCmd) (reply any, written bool, err error) {
	t, ok := node.join(c, cmd, ctx.deadline)
	if !ok {
		return nil, false, errClosed
	}
	select {
	case <-t.done:
		if reply, err = cmd.Result(); reply == nil && err == nil {
			err = t.err
		}
		written = cmd.written()
	case <-ctx.wait():
		err = ended(ctx)
		written = cmd.abandon()
	}
	ctx.quiet = err != nil && !ctx.saysNothing(err) && t.told.Swap(true)
	return reply, written, err
}

// join adds a command to the round trip that begins next; false if the client is closed.
func (b *breaker) join(c *Client, cmd *noRetryCmd, deadline time.Time) (*roundTrip, bool) {
	r := &b.trips
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay < mostUnderWay {
		if !c.life.run(func() { b.run(c) }) {
			return nil, false
		}
		r.underWay++
	}
	n := len(r.waiting)
	if n == 0 || len(r.waiting[n-1].cmds) == mostTogether {
		r.waiting = append(r.waiting, &roundTrip{done: make(chan struct{})})
		n++
	}
	t := r.waiting[n-1]
	t.cmds = append(t.cmds, cmd)
	if deadline.After(t.deadline) {
		t.deadline = deadline
	}
	return t, true
}

// run makes one round trip after the other, until none waits.
func (b *breaker) run(c *Client) {
	for t := b.trips.next(); t != nil; t = b.trips.next() {
		t.err = t.send(c, b.client.Load())
		close(t.done)
	}
}

// next is the round trip to begin with; after nil the caller is to end.
func (r *roundTrips) next() *roundTrip {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.waiting = nil
		r.underWay--
		return nil
	}
	t := r.waiting[0]
	r.waiting = r.waiting[1:]
	return t
}

// send sends the commands that somebody still waits for. Each has an error of its own, unless go-redis panicked. A node of
// a cluster is asked directly: the pipeline of a cluster client would send in a goroutine of its own, in which a panic
// could not be recovered.
func (t *roundTrip) send(c *Client, node *redis.Client) (err error) {
	defer recovered(&err)
	ctx := &bounded{Context: c.life.ctx, deadline: t.deadline, timeout: c.timeout}
	defer ctx.release()
	cmds := make([]redis.Cmder, 0, len(t.cmds))
	for _, cmd := range t.cmds {
		if cmd.state.Load() == waiting {
			cmds = append(cmds, cmd)
		}
	}
	pipe := c.rdb.Pipeline()
	if node != nil {
		pipe = node.Pipeline()
	}
	_ = pipe.BatchProcess(ctx, cmds...)
	_, _ = pipe.Exec(ctx)
	return nil
}
