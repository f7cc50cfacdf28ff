package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// After failuresToOpen calls in a row without a reply, the client stops calling a node for openFor.
// Then it sends one call as a probe, and another whenever the last probe has waited for probeFor.
// With these values the client notices within a second that a node is back. A probe may wait as long
// as any other call, so that a client with a long timeout also finds a node that is slow.
const (
	failuresToOpen = 5
	openFor        = 250 * time.Millisecond
	probeFor       = 500 * time.Millisecond
)

// shortest is the shortest time in which a call can expect a reply. If a call has less time, a
// missing reply does not count against the node.
const shortest = 10 * time.Millisecond

// breakers holds a circuit breaker for each node, so that an unreachable node does not block calls
// to the others.
type breakers struct {
	// node returns the node that holds key. The function is nil if there is only one node.
	node func(ctx context.Context, key string) (*redis.Client, error)

	redirects bool        // whether nodes redirect calls to other nodes, as those of a cluster do
	ready     atomic.Bool // whether go-redis knows the nodes; the function node then needs no round trip
	first     *breaker    // for the only node, or while go-redis does not know the nodes
	nodes     sync.Map    // *breaker by address
	onChange  []func(node, from, to string)
	sweeping  atomic.Bool // whether a sweep is due
}

type breaker struct {
	node string // address of the node
	key  string // a key that the node held when the breaker was made; "" if unknown
	all  *breakers

	gate   atomic.Pointer[gobreaker.CircuitBreaker[any]]
	open   atomic.Bool           // open or half-open
	probed atomic.Int64          // when the last probe was sent, in Unix nanoseconds
	named  atomic.Int64          // when a redirection last named the node, in Unix nanoseconds
	last   atomic.Pointer[Error] // the last failure

	client atomic.Pointer[redis.Client] // set for nodes of a cluster or a ring
	trips  roundTrips

	changes changes

	mu      sync.Mutex // guards the field healing
	healing *healing   // the last healing, or the one in progress
}

// clientOf returns a client for the node of b, or the client for all nodes if the node is not
// known.
func (s *server) clientOf(b *breaker) redis.UniversalClient {
	if node := b.client.Load(); node != nil {
		return node
	}
	return s.rdb
}

func newBreakers(rdb redis.UniversalClient, onChange []func(node, from, to string)) *breakers {
	b := &breakers{onChange: onChange}
	address := ""
	switch rdb := rdb.(type) {
	case *redis.Client:
		address = rdb.Options().Addr
	case *redis.ClusterClient:
		b.node = rdb.MasterForKey
		b.redirects = true
	case *redis.Ring:
		b.node = func(_ context.Context, key string) (*redis.Client, error) { return rdb.GetShardClientForKey(key) }
	}
	b.first = b.newBreaker(address, "")
	return b
}

// of returns the breaker of the node that holds keys, or nil for a call without keys, which
// go-redis sends to any node. Until the first reply, go-redis may not know the nodes; all nodes
// then share one breaker.
func (b *breakers) of(ctx context.Context, keys []string) *breaker {
	if len(keys) == 0 {
		return nil
	}
	if b.node == nil || !b.ready.Load() {
		return b.first
	}
	node, err := b.node(ctx, keys[0])
	if err != nil {
		return b.first
	}
	one := b.at(node.Options().Addr, keys[0])
	if one.client.Load() != node { // go-redis makes a new client when a node comes back
		one.client.Store(node)
	}
	return one
}

func (b *breakers) at(address, key string) *breaker {
	found, ok := b.nodes.Load(address)
	if !ok {
		found, ok = b.nodes.LoadOrStore(address, b.newBreaker(address, key))
		if !ok {
			b.sweepSoon() // a new node may replace one that left
		}
	}
	return found.(*breaker)
}

func (b *breakers) newBreaker(address, key string) *breaker {
	made := &breaker{node: address, key: key, all: b}
	made.changes.init(made)
	return made
}

// through sends a call, unless the breaker of its node is open, and reports the outcome to the
// breaker. A call without keys has no known node and no breaker. A node of a cluster may redirect the
// call to another node, whose breaker then counts. If that one is open, the call can probe it.
func (s *server) through(ctx *bounded, call *call) (any, error) {
	node := s.breakers.of(ctx, call.keys)
	if node == nil {
		s.send(ctx, nil, nil, call)
		return ctx.sent.reply, ctx.sent.err
	}
	for gate := node; ; gate = ctx.sent.at {
		passed := gate.execute(func() (any, error) {
			s.send(ctx, gate, node, call)
			switch {
			case ctx.sent.at == gate:
				return nil, s.breakerError(ctx, gate, ctx.sent.err)
			case gate == node: // it replied with the redirection
				return nil, s.breakerError(ctx, gate, nil)
			}
			return nil, errSaysNothing
		})
		at := ctx.sent.at
		switch {
		case !passed:
			s.reload(ctx) // the keys may be on another node by now
			ctx.sent.at = gate
			return nil, gate.openError(call)
		case !ctx.sent.stopped:
			if at != gate {
				at.execute(func() (any, error) { return nil, s.breakerError(ctx, at, ctx.sent.err) })
			}
			return ctx.sent.reply, ctx.sent.err
		case gate != node:
			return nil, at.openError(call)
		}
	}
}

// execute calls send, unless the node is left alone. It reports whether it did. send returns the
// error to count; see breakerError.
func (b *breaker) execute(send func() (any, error)) bool {
	defer b.changes.tell()
	gate := b.gate.Load()
	switch _, err := gate.Execute(send); err {
	case gobreaker.ErrOpenState:
		return false
	case gobreaker.ErrTooManyRequests: // a probe waits for its reply
		last := b.probed.Load()
		now := time.Now().UnixNano()
		if now-last < int64(probeFor) || !b.probed.CompareAndSwap(last, now) {
			return false
		}
		if _, err := send(); replied(err) {
			b.changes.shut(gate)
		}
	}
	return true
}

const sweepEvery = time.Second

// sweepSoon makes breakers whose nodes have left go, a second from now. Then it looks again each
// second while any breaker is open.
func (b *breakers) sweepSoon() {
	if b.node != nil && b.sweeping.CompareAndSwap(false, true) {
		time.AfterFunc(sweepEvery, b.sweep)
	}
}

func (b *breakers) sweep() {
	b.sweeping.Store(false)
	again := false
	b.nodes.Range(func(address, found any) bool {
		one := found.(*breaker)
		if b.left(one) {
			b.nodes.CompareAndDelete(address, found)
			one.changes.end()
		}
		again = again || one.open.Load()
		return true
	})
	// When go-redis knows the nodes, nothing would close the breaker that they shared until then.
	if b.first.open.Load() && b.ready.Load() {
		again = true
		if _, err := b.node(context.Background(), ""); err == nil {
			b.first.changes.shut(b.first.gate.Load())
		}
	}
	if again {
		b.sweepSoon()
	}
}

// left reports whether the node of one has left: another node holds its key, and no redirection has
// named it for a while. The breaker of a node that only gave that key away is made again by the next
// call.
func (b *breakers) left(one *breaker) bool {
	const remember = time.Minute
	if time.Since(time.Unix(0, one.named.Load())) < remember {
		return false
	}
	node, err := b.node(context.Background(), one.key)
	return errors.Is(err, redis.ErrClosed) || err == nil && node.Options().Addr != one.node
}

// close reports every open breaker as closed, because the closed client no longer avoids any node.
// Otherwise a gauge of open breakers would show them until the process ends.
func (b *breakers) close() {
	b.first.changes.end()
	b.nodes.Range(func(_, one any) bool {
		one.(*breaker).changes.end()
		return true
	})
	b.nodes.Clear()
}

// breakerError returns the error to report to the breaker for a call that ended with err. If err is
// a failure of the node, breakerError stores it, and openError quotes it.
func (s *server) breakerError(ctx *bounded, b *breaker, err error) error {
	switch {
	case replied(err):
		if !s.breakers.ready.Load() {
			s.breakers.ready.Store(true)
		}
	case ctx.saysNothing(err):
		return errSaysNothing
	default:
		if e, ok := errors.AsType[*Error](err); ok {
			b.last.Store(e)
		}
	}
	return err
}

// errSaysNothing replaces an error that the breaker must not count, as reported by saysNothing.
var errSaysNothing = errors.New("says nothing about the node")

// replied reports whether a call got a reply, even an error reply.
func replied(err error) bool {
	if err == nil {
		return true
	}
	var e *Error // allocated on the heap, so it is declared only if needed
	return errors.As(err, &e) && e.Code != ""
}

// saysNothing reports whether err must not count as a failure of the node. b is the context of the
// call. An error does not count if the caller canceled or left too little time, if other users of
// the Redis client hold all of its connections, or if the client is closed. It also does not count
// if another call in the same round trip has already reported the failure.
func (b *bounded) saysNothing(err error) bool {
	return b.quiet || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, errClosed) || errors.Is(b.Context.Err(), context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) && b.deadline.Sub(b.began) < shortest
}

// openError returns the error for a call that is not sent because the breaker of its node is open.
func (b *breaker) openError(call *call) *Error {
	e := &Error{Op: call.verb, Keys: slices.Clone(call.keys), Err: gobreaker.ErrOpenState, kind: typeUnavailable}
	last := "no reply"
	if failure := b.last.Load(); failure != nil {
		last = failure.Err.Error()
		var timeout timedOut
		// If the last call failed because its own context's deadline passed, this call's error must
		// not match context.DeadlineExceeded.
		if errors.As(failure.Err, &timeout) || !errors.Is(failure.Err, context.DeadlineExceeded) {
			e.Err = fmt.Errorf("%w: %w", gobreaker.ErrOpenState, failure.Err)
		}
	}
	e.sentence = fmt.Sprintf("not sent, since the server did not reply to the last %d calls; it is asked again within %v (%s)", failuresToOpen, openFor+probeFor, last)
	return e
}
