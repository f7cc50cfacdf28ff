package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	healFor     = 30 * time.Second // the longest time that a healer may take
	healPause   = time.Second      // minimum time from a failure to the next attempt on the same node
	notFoundAny = "ERR Function not found"
)

// WithHealer restores the library on servers that lost it. If a server replies that it does not
// have the library, the client calls heal with a client for that server, and then sends the call
// again. loader.Healer returns a suitable function. If the application's Redis user may not load
// functions, leave WithHealer out; errors then say which command to run.
//
// heal is called once each time a server loses the library, even if many calls find it missing.
// After a failure, it is called again for the same server no earlier than one second later. It may
// take up to 30 s, longer than the calls that wait for it. Its context also ends when the Client is
// closed.
func WithHealer(heal func(ctx context.Context, server redis.UniversalClient) error) Option {
	return option("WithHealer", "a function", func(c *config) error {
		if heal == nil {
			return errors.New("the healer is nil; leave WithHealer out")
		}
		c.healer = heal
		return nil
	})
}

// healing is one call to the function given to WithHealer.
type healing struct {
	done  chan struct{} // closed when the call has returned
	ended time.Time
	err   error
}

// heal restores the library on node, which did not have it when a call was sent at the time sent.
// heal returns nil if the call should be sent again.
func (s *server) heal(ctx *bounded, node *breaker, sent time.Time) error {
	h := s.healingOf(node, sent)
	if h == nil {
		return errClosed
	}
	select {
	case <-h.done:
		if h.err != nil && s.lifetime.ctx.Err() != nil { // the client was closed during the healing
			return errClosed
		}
		return h.err
	case <-ctx.wait():
		return fmt.Errorf("it is still at it: %w", ended(ctx))
	}
}

// healingOf returns the healing of node that a call has to wait for, starting one if necessary.
// sent is when the call was sent. healingOf returns nil if the client is closed.
func (s *server) healingOf(node *breaker, sent time.Time) *healing {
	node.mu.Lock()
	defer node.mu.Unlock()
	if last := node.healing; last != nil {
		underWay := last.ended.IsZero()
		if underWay || sent.Before(last.ended) || last.err != nil && time.Since(last.ended) < healPause {
			return last
		}
	}
	next := &healing{done: make(chan struct{})}
	if !s.lifetime.run(func() { s.runHealer(node, next) }) {
		return nil
	}
	node.healing = next
	return next
}

func (s *server) runHealer(node *breaker, h *healing) {
	ctx, cancel := context.WithTimeout(s.lifetime.ctx, healFor)
	defer cancel()
	err := s.callHealer(ctx, node)
	node.mu.Lock()
	defer node.mu.Unlock()
	h.ended, h.err = time.Now(), err
	close(h.done)
}

func (s *server) callHealer(ctx context.Context, node *breaker) (err error) {
	defer recovered(&err)
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok || node == s.breakers.first || node.client.Load() != nil {
		return s.healer(ctx, s.clientOf(node))
	}
	// A redirection has named the node. go-redis may not list it, because it has no slots yet.
	var own, other atomic.Pointer[redis.Client]
	err = cluster.ForEachShard(ctx, func(_ context.Context, one *redis.Client) error {
		other.Store(one)
		if one.Options().Addr == node.node {
			own.Store(one)
		}
		return nil
	})
	if found := own.Load(); found != nil {
		return s.healer(ctx, found)
	}
	if other.Load() == nil {
		return err
	}
	o := *other.Load().Options()
	o.Addr = node.node
	made := cluster.Options().NewClient(&o)
	defer func() { _ = made.Close() }()
	return s.healer(ctx, made)
}

// notFound reports whether err means that the server does not have the library.
func notFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.kind == typeNotDeployed && e.Err != nil && e.Err.Error() == notFoundAny
}

// unhealed adds why, the healer's error, to err, the error from a server without the library.
func unhealed(err, why error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	copied := *e
	copied.Err = fmt.Errorf("%w; the healer: %w", e.Err, why)
	copied.sentence = fmt.Sprintf("the server does not have the library, and the healer failed (%v) (%v)", why, e.Err)
	return &copied
}
