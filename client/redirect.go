package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A node of a cluster redirects a call (MOVED, ASK) if another node has its keys. The call was not
// executed, so it is safe to send it to the other node:
//
//   - A call that is sent alone is sent again by go-redis, which calls SetErr with each redirection.
//     SetErr stops it if the other node is left alone; through (breaker.go) then decides whether the
//     call may probe that node.
//   - A call in a shared round trip is sent alone after the redirection, because a pipeline to one
//     node does not follow it (elsewhere, called by send in shared.go).

// follow says how far a cluster client may follow the redirections (MOVED, ASK) of a command, and
// records them. It does not follow one to a node that is left alone, except to gate.
type follow struct {
	ctx      *bounded
	breakers *breakers               // nil: redirections are not recorded
	gate     *breaker                // this node's breaker let the command pass
	to       atomic.Pointer[breaker] // the node that the last redirection named; nil: there was none
	stopped  atomic.Bool             // whether the last redirection was not followed
}

// SetErr sets the error of the command. go-redis calls it with the reply of each node, and then
// follows a redirection.
func (c *command) SetErr(err error) {
	c.Cmd.SetErr(err)
	if err == nil || c.follow.breakers == nil {
		return
	}
	address, redirected := redis.IsMovedError(err)
	if !redirected {
		address, redirected = redis.IsAskError(err)
	}
	if !redirected {
		return
	}
	f := &c.follow
	to := f.breakers.redirected(address)
	f.to.Store(to)
	if to != f.gate && to.open.Load() && c.state.CompareAndSwap(left, abandoned) {
		f.stopped.Store(true)
		f.ctx.stop(true)
	}
}

// stop makes the context look canceled to go-redis, so that it does not follow a redirection.
func (b *bounded) stop(stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = stopped
}

// redirected returns the breaker of a node that another node's redirection has named.
func (b *breakers) redirected(address string) *breaker {
	if i := strings.LastIndexByte(address, ':'); i >= 0 { // as go-redis writes IPv6 addresses
		address = net.JoinHostPort(strings.Trim(address[:i], "[]"), address[i+1:])
	}
	one := b.at(address, "")
	one.named.Store(time.Now().UnixNano())
	return one
}

// elsewhere reports whether err means that a cluster node did not execute a call because another
// node has its keys. The cluster client finds that node if the call is sent separately.
func (s *server) elsewhere(err error) bool {
	if err == nil || s.breakers.node == nil {
		return false
	}
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrClosed)
}

// reload makes a cluster client rediscover its nodes, in the background and at most five times a
// second.
func (s *server) reload(ctx context.Context) {
	if cluster, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}
