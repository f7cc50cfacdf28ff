package client

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// changes reports the state changes of a breaker to the observers, in order. It calls them without
// holding a lock, so an observer may take as long as it wants, and delays only one call.
type changes struct {
	of *breaker

	mu      sync.Mutex
	shown   gobreaker.State // the state that the observers know, or will know
	ended   bool            // the breaker is out of use, and nothing changes any more
	queue   []breakerChange
	telling bool

	waiting atomic.Bool // whether queue has changes
}

type breakerChange struct{ node, from, to string }

// init gives b its first gate.
func (c *changes) init(b *breaker) {
	c.of = b
	b.gate.Store(c.newGate())
}

// newGate returns a closed circuit breaker of gobreaker.
func (c *changes) newGate() *gobreaker.CircuitBreaker[any] {
	var gate *gobreaker.CircuitBreaker[any]
	gate = gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      openFor,
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful: replied,
		IsExcluded:   func(err error) bool { return errors.Is(err, errSaysNothing) },
		// gobreaker holds its lock here.
		OnStateChange: func(_ string, _, to gobreaker.State) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.of.gate.Load() == gate && !c.ended {
				c.set(to)
			}
		},
	})
	return gate
}

// set notes a change. The caller holds c.mu.
func (c *changes) set(to gobreaker.State) {
	if to == c.shown {
		return
	}
	b := c.of
	if len(b.all.onChange) > 0 {
		c.queue = append(c.queue, breakerChange{b.node, c.shown.String(), to.String()})
		c.waiting.Store(true)
	}
	c.shown = to
	b.open.Store(to != gobreaker.StateClosed)
	switch to {
	case gobreaker.StateOpen:
		b.all.sweepSoon()
	case gobreaker.StateHalfOpen:
		b.probed.Store(time.Now().UnixNano())
	}
}

// shut closes the breaker, although a probe that gate let pass still waits for its reply.
func (c *changes) shut(gate *gobreaker.CircuitBreaker[any]) {
	func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.ended && c.of.gate.CompareAndSwap(gate, c.newGate()) {
			c.set(gobreaker.StateClosed)
		}
	}()
	c.tell()
}

// end reports the breaker as closed, because nothing uses it any more.
func (c *changes) end() {
	c.mu.Lock()
	c.set(gobreaker.StateClosed)
	c.ended = true
	c.mu.Unlock()
	c.tell()
}

// tell calls the observers, unless another goroutine is calling them; that goroutine then reports
// the new changes too.
func (c *changes) tell() {
	for c.waiting.Load() && c.tellOne() {
	}
}

func (c *changes) tellOne() bool {
	c.mu.Lock()
	if c.telling || len(c.queue) == 0 {
		c.mu.Unlock()
		return false
	}
	change := c.queue[0]
	c.queue = c.queue[1:]
	c.waiting.Store(len(c.queue) > 0)
	c.telling = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.telling = false
		c.mu.Unlock()
	}()
	for _, f := range c.of.all.onChange {
		f(change.node, change.from, change.to)
	}
	return true
}
