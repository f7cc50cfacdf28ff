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

// A node that has not replied to so many calls in a row is left alone for a while; then one call at a time finds out
// whether it is back. These make a node that is back be noticed within a second.
const (
	failuresToOpen = 5
	openFor        = 250 * time.Millisecond
	probeFor       = 500 * time.Millisecond // at most, for the call that finds out
)

// shortest is the least time that a call must have had for its silence to say something about the node.
const shortest = 10 * time.Millisecond

// breakers has one circuit breaker for each node, so that a node that is gone does not keep calls from the others.
type breakers struct {
	node  func(ctx context.Context, key string) (*redis.Client, error) // that holds key; nil: there is but one
	ready atomic.Bool                                                  // node knows the nodes, and asks none for them
	first *breaker                                                     // of the only node, or of all before the first reply
	nodes sync.Map                                                     // *breaker by address
	tell  []func(BreakerChange)                                        // of changes
}

type breaker struct {
	*gobreaker.CircuitBreaker[any]
	node string                // its address
	open atomic.Bool           // or half open
	last atomic.Pointer[Error] // the last failure

	client atomic.Pointer[redis.Client] // of a node of a cluster or a ring
	trips  roundTrips
}

func newBreakers(rdb redis.UniversalClient, tell []func(BreakerChange)) *breakers {
	b := &breakers{tell: tell}
	address := ""
	switch rdb := rdb.(type) {
	case *redis.Client:
		address = rdb.Options().Addr
	case *redis.ClusterClient:
		b.node = rdb.MasterForKey
	case *redis.Ring:
		b.node = func(_ context.Context, key string) (*redis.Client, error) { return rdb.GetShardClientForKey(key) }
	}
	b.first = newBreaker(address, tell)
	return b
}

// of is the breaker of the node that holds the keys; nil of a call without one, which go-redis sends where it likes.
// Before a first reply go-redis may not know the nodes yet: then they share one.
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
		found, _ = b.nodes.LoadOrStore(address, newBreaker(address, b.tell))
	}
	one := found.(*breaker)
	if one.client.Load() != node { // go-redis makes another one if a node comes back
		one.client.Store(node)
	}
	return one
}

func newBreaker(address string, tell []func(BreakerChange)) *breaker {
	b := &breaker{node: address}
	b.CircuitBreaker = gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      openFor,
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful: replied,
		IsExcluded:   func(err error) bool { return errors.Is(err, errSaysNothing) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.open.Store(to != gobreaker.StateClosed)
			for _, tell := range tell {
				tell(BreakerChange{Node: address, From: from.String(), To: to.String()})
			}
		},
	})
	return b
}

// close tells of those that are open that they are closed, since the client leaves no node alone any more: a gauge of open
// breakers would show them as long as the process runs.
func (b *breakers) close() {
	end := func(one *breaker) {
		from := one.State().String()
		if one.open.Swap(false) {
			for _, tell := range b.tell {
				tell(BreakerChange{Node: one.node, From: from, To: gobreaker.StateClosed.String()})
			}
		}
	}
	end(b.first)
	b.nodes.Range(func(_, one any) bool {
		end(one.(*breaker))
		return true
	})
}

// tell returns what the breaker is to know of how a call ended, and keeps what it does not.
func (c *Client) tell(ctx *bounded, b *breaker, err error) error {
	switch {
	case replied(err):
		if !c.breakers.ready.Load() {
			c.breakers.ready.Store(true)
		}
	case ctx.saysNothing(err):
		return errSaysNothing
	default:
		var e *Error
		if errors.As(err, &e) {
			b.last.Store(e)
		}
	}
	return err
}

// errSaysNothing stands for an error that does not tell whether the node is there.
var errSaysNothing = errors.New("says nothing about the node")

// replied tells whether a call ended in a reply, whichever.
func replied(err error) bool {
	if err == nil {
		return true
	}
	var e *Error // of an error only: it costs memory
	return errors.As(err, &e) && e.Code != ""
}

// saysNothing tells whether a call that began with ctx failed for a reason of its own: nobody waited, or not long enough,
// or the Redis client had no connection to give, as too many of its own callers have them; or another call of the same
// round trip has told already.
func (b *bounded) saysNothing(err error) bool {
	return b.quiet || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, errClosed) || errors.Is(b.Context.Err(), context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) && b.deadline.Sub(b.began) < shortest
}

// leftAlone is the error of a call that is not sent.
func (b *breaker) leftAlone(call call) *Error {
	e := &Error{Op: call.verb, Keys: call.keys, Err: gobreaker.ErrOpenState, class: ErrUnavailable}
	last := "no reply"
	if failure := b.last.Load(); failure != nil {
		last = failure.Err.Error()
		var timeout timedOut
		if errors.As(failure.Err, &timeout) || !errors.Is(failure.Err, context.DeadlineExceeded) { // else the context was another caller's
			e.Err = fmt.Errorf("%w: %w", gobreaker.ErrOpenState, failure.Err)
		}
	}
	e.sentence = fmt.Sprintf("not sent, since the server did not reply to the last %d calls; it is asked again within %v (%s)", failuresToOpen, openFor+probeFor, last)
	return e
}
