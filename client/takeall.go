package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// TakeAll makes several decisions, each as [Client.Take] does, in one round trip to each server. They
// are independent: one that denies does not keep the others from being charged. For one decision on
// several keys, use one [Request].
//
// The results are in the order of reqs. If there is no decision on a request, its Result is a denial
// whose Err says why, and the error of TakeAll joins these errors. Batches and remembered denials
// decide none of the requests.
func (c *Client) TakeAll(ctx context.Context, reqs ...Request) ([]Result, error) {
	results, errs := make([]Result, len(reqs)), make([]error, len(reqs))
	all := &together{server: c.server, missing: len(reqs), trips: map[*breaker]*roundTrip{}}
	var calls sync.WaitGroup
	panics := make(chan any, len(reqs))
	for i, req := range reqs {
		req.with = &seat{of: all}
		calls.Go(func() {
			defer func() {
				if p := recover(); p != nil { // an observer has panicked: its caller does, who can recover
					panics <- fmt.Sprintf("%v\n\n%s", p, debug.Stack())
				}
			}()
			defer req.with.leave()
			if results[i], errs[i] = c.Take(ctx, req); errs[i] != nil {
				results[i].Err = errs[i]
			}
		})
	}
	calls.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	return results, errors.Join(errs...)
}

// together gathers the calls of a TakeAll in a round trip for each node. It sends them when no call is
// missing.
type together struct {
	server *server

	mu      sync.Mutex
	missing int // calls that are neither in a round trip nor decided
	trips   map[*breaker]*roundTrip
}

// seat is the place of one call in a together. The methods of a nil seat do nothing.
type seat struct {
	of   *together
	left bool // the call is not missing any more
}

// join adds the command of a call to the round trip to node. It returns nil if the call was in one
// before.
func (s *seat) join(node *breaker, cmd *command, deadline time.Time) *roundTrip {
	if s == nil || s.left {
		return nil
	}
	s.of.mu.Lock()
	t := s.of.trips[node]
	if t == nil {
		t = &roundTrip{done: make(chan struct{})}
		s.of.trips[node] = t
	}
	t.add(cmd, deadline)
	s.of.mu.Unlock()
	s.leave()
	return t
}

// leave says that the call is not missing any more.
func (s *seat) leave() {
	if s == nil || s.left {
		return
	}
	s.left = true
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.missing--; s.of.missing > 0 {
		return
	}
	for node, t := range s.of.trips {
		send := func() {
			t.err = t.send(s.of.server, s.of.server.clientOf(node))
			close(t.done)
		}
		if !s.of.server.lifetime.run(send) {
			t.err = errClosed
			close(t.done)
		}
	}
}
