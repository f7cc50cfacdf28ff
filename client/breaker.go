package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// After failuresToOpen calls in a row without a reply, the client stops calling a node for openFor.
// Then one call at a time probes the node. With these values the client notices within a second
// that a node is back.
const (
	failuresToOpen = 5
	openFor        = 250 * time.Millisecond
	probeFor       = 500 * time.Millisecond // maximum duration of a probe
)

// shortest is the shortest time in which a call can expect a reply. If a call has less time, a
// missing reply does not count against the node.
const shortest = 10 * time.Millisecond

// breakers holds a circuit breaker for each node, so that an unreachable node does not block calls
// to the others.
type breakers struct {
	// node returns the node that holds key. The function is nil if there is only one node.
	node func(ctx context.Context, key string) (*redis.Client, error)

	ready    atomic.Bool // whether go-redis knows the nodes; the function node then needs no round trip
	first    *breaker    // for the only node, or while go-redis does not know the nodes
	nodes    sync.Map    // *breaker by address
	onChange []func(BreakerChange)
}

type breaker struct {
	*gobreaker.CircuitBreaker[any]
	node string                // address of the node
	open atomic.Bool           // open or half-open
	last atomic.Pointer[Error] // the last failure

	client atomic.Pointer[redis.Client] // set for nodes of a cluster or a ring
	trips  roundTrips

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

func newBreakers(rdb redis.UniversalClient, onChange []func(BreakerChange)) *breakers {
	b := &breakers{onChange: onChange}
	address := ""
	switch rdb := rdb.(type) {
	case *redis.Client:
		address = rdb.Options().Addr
	case *redis.ClusterClient:
		b.node = rdb.MasterForKey
	case *redis.Ring:
		b.node = func(_ context.Context, key string) (*redis.Client, error) { return rdb.GetShardClientForKey(key) }
	}
	b.first = b.newBreaker(address)
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
	address := node.Options().Addr
	found, ok := b.nodes.Load(address)
	if !ok {
		found, _ = b.nodes.LoadOrStore(address, b.newBreaker(address))
	}
	one := found.(*breaker)
	if one.client.Load() != node { // go-redis makes a new client when a node comes back
		one.client.Store(node)
	}
	return one
}

func (b *breakers) newBreaker(address string) *breaker {
	made := &breaker{node: address}
	made.CircuitBreaker = gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      openFor,
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful: replied,
		IsExcluded:   func(err error) bool { return errors.Is(err, errSaysNothing) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			made.open.Store(to != gobreaker.StateClosed)
			b.report(address, from, to)
		},
	})
	return made
}

func (b *breakers) report(node string, from, to gobreaker.State) {
	for _, f := range b.onChange {
		f(BreakerChange{Node: node, From: from.String(), To: to.String()})
	}
}

// close reports every open breaker as closed, because the closed client no longer avoids any node.
// Otherwise a gauge of open breakers would show them until the process ends.
func (b *breakers) close() {
	end := func(one *breaker) {
		from := one.State()
		if one.open.Swap(false) {
			b.report(one.node, from, gobreaker.StateClosed)
		}
	}
	end(b.first)
	b.nodes.Range(func(_, one any) bool {
		end(one.(*breaker))
		return true
	})
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
	e := &Error{Op: call.verb, Keys: call.keys, Err: gobreaker.ErrOpenState, class: ErrUnavailable}
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
