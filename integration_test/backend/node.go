package backend

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Node is one server. Its methods are safe for concurrent use.
type Node struct {
	Name string // "cluster-3"
	Addr string // "127.0.0.1:41234"

	busPort  int // port of the cluster bus
	instance instance
	client   *redis.Client

	mu    sync.Mutex
	state state
}

type state int

const (
	running state = iota
	paused
	killed
	removed
)

// String returns the node's name and address.
func (n *Node) String() string { return fmt.Sprintf("%s (%s)", n.Name, n.Addr) }

// Client returns a client that connects only to this node, even in a cluster. The node owns the
// client, so callers must not close it.
func (n *Node) Client() *redis.Client { return n.client }

func newNodeClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Kill kills the server, like kill -9: it cannot save its data or tell other nodes.
func (n *Node) Kill(ctx context.Context) error {
	return n.change(killed, func() error { return n.instance.kill(ctx) })
}

// Pause suspends the server, like SIGSTOP. Its connections stay open, and it does not reply.
func (n *Node) Pause(ctx context.Context) error {
	return n.change(paused, func() error { return n.instance.pause(ctx) })
}

// Resume lets a paused server continue.
func (n *Node) Resume(ctx context.Context) error {
	return n.change(running, func() error { return n.instance.resume(ctx) })
}

// Restart restarts a server that was killed or has exited, at the same address and with the same
// files, and waits until it replies.
func (n *Node) Restart(ctx context.Context) error {
	return n.change(running, func() error {
		if err := n.instance.restart(ctx); err != nil {
			return err
		}
		return Until(ctx, n.String()+" to answer", func() error { return n.Client().Ping(ctx).Err() })
	})
}

func (n *Node) change(to state, act func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := act(); err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	n.state = to
	return nil
}

// Ended reports whether the server has exited without being killed. If so, it also returns what the
// server printed.
func (n *Node) Ended(ctx context.Context) (bool, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != running || !n.instance.exited(ctx) {
		return false, ""
	}
	return true, n.instance.log()
}

// revive makes the server run again if a test has paused or killed it or if it has exited.
func (n *Node) revive(ctx context.Context) error {
	ended, _ := n.Ended(ctx)
	n.mu.Lock()
	state := n.state
	n.mu.Unlock()
	switch {
	case state == paused:
		return n.Resume(ctx)
	case state == killed, ended:
		return n.Restart(ctx)
	}
	return nil
}

// remove stops the server for good and deletes its files. A second call does nothing.
func (n *Node) remove() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == removed {
		return nil
	}
	n.state = removed
	return errors.Join(n.client.Close(), n.instance.remove())
}

// role returns "master" or "slave".
func (n *Node) role(ctx context.Context) (string, error) {
	info, err := n.Client().InfoMap(ctx, "replication").Result()
	if err != nil {
		return "", fmt.Errorf("%s: asking for its role: %w", n, err)
	}
	return info["Replication"]["role"], nil
}
