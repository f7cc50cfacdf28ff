// Package backend provides the real servers that the integration tests run on: containers if a
// Docker engine is available, otherwise processes on this machine.
//
// All traffic stays on 127.0.0.1, including traffic of containers and between a cluster's nodes.
package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
)

// Backend is a server or a cluster that tests run on. Its methods are safe for concurrent use. But
// tests move its clock and kill its nodes, so only one test may use it at a time, and each test
// must call Restore first.
type Backend struct {
	Name    string // part of test names: "redis-7.0", "valkey-8.1", "cluster", "local-redis"
	Product string // "redis" or "valkey"
	Version string // as reported by the server: "7.0.15"
	Place   string // "container" or "process"; for display
	Cluster bool

	// Nodes holds the servers: one, or all nodes of a cluster. The roles of a cluster's nodes may
	// change, so call Primaries to find the nodes that take writes.
	Nodes []*Node

	// Clock is the wall clock that all nodes share, or nil if this server's time cannot be changed.
	Clock *clock.File

	// InUse is locked by the test that uses the backend.
	InUse sync.Mutex

	launcher launcher
	template spec
	extra    []*Node
}

// ErrNoClock means that a test tried to set the time of a server whose time cannot be changed.
var ErrNoClock = errors.New("this server's clock cannot be moved: it was started without the clock shim")

// About describes the backend in one line.
func (b *Backend) About() string {
	topology := "standalone"
	if b.Cluster {
		topology = fmt.Sprintf("cluster of %d nodes", len(b.Nodes))
	}
	return fmt.Sprintf("%s %s, %s, %s", b.Product, b.Version, topology, b.Place)
}

// Addrs returns the host:port of every node.
func (b *Backend) Addrs() []string {
	addrs := make([]string, len(b.Nodes))
	for i, n := range b.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// NewClient returns a client for the backend; for a cluster, a cluster client. Each modify function
// may first change the options. The caller must close the client.
func (b *Backend) NewClient(modify ...func(*redis.UniversalOptions)) redis.UniversalClient {
	opts := &redis.UniversalOptions{
		ContextTimeoutEnabled:    true,
		Addrs:                    b.Addrs(),
		IsClusterMode:            b.Cluster,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, m := range modify {
		m(opts)
	}
	return redis.NewUniversalClient(opts)
}

// SetTime stops the clock of every node at the given microseconds since the epoch. While the clock
// is stopped, server timeouts that use it, such as the timeouts of WAIT and BLPOP, never expire.
func (b *Backend) SetTime(us int64) error {
	if b.Clock == nil {
		return fmt.Errorf("%s: %w", b.Name, ErrNoClock)
	}
	return b.Clock.Set(us)
}

// RealTime sets the clock of every node to real time. It does nothing if the clock cannot be
// changed.
func (b *Backend) RealTime() {
	if b.Clock != nil {
		b.Clock.Real()
	}
}

// Primaries returns the nodes that accept writes. The other nodes are their replicas.
func (b *Backend) Primaries(ctx context.Context) ([]*Node, error) {
	var nodes []*Node
	for _, n := range b.Nodes {
		role, err := n.role(ctx)
		if err != nil {
			return nil, err
		}
		if role == "master" {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// FlushAll removes all keys. Function libraries stay.
func (b *Backend) FlushAll(ctx context.Context) error {
	return b.onPrimaries(ctx, func(c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// Restore puts the backend into the state that a test may expect: real time, every node running, a
// cluster without additional nodes, no keys, and no function libraries.
func (b *Backend) Restore(ctx context.Context) error {
	b.RealTime()
	for _, n := range b.Nodes {
		if err := n.revive(ctx); err != nil {
			return err
		}
	}
	if err := b.dismissSpares(ctx); err != nil {
		return err
	}
	if b.Cluster {
		for _, n := range b.Nodes {
			if err := n.Client().ConfigSet(ctx, "cluster-node-timeout", neverFailsMS).Err(); err != nil {
				return fmt.Errorf("%s: %w", n, err)
			}
		}
		if err := b.waitForCluster(ctx); err != nil {
			return err
		}
	}
	return b.onPrimaries(ctx, func(c *redis.Client) error {
		return errors.Join(c.FlushAll(ctx).Err(), c.FunctionFlush(ctx).Err())
	})
}

// onPrimaries calls f with a client for each primary.
func (b *Backend) onPrimaries(ctx context.Context, f func(*redis.Client) error) error {
	primaries, err := b.Primaries(ctx)
	if err != nil {
		return err
	}
	for _, n := range primaries {
		if err := f(n.Client()); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	return nil
}

// StartSpare starts another server of the same kind that does not belong to the backend's nodes,
// for example for CLUSTER MEET. The server shares the backend's clock. Restore removes it.
func (b *Backend) StartSpare(ctx context.Context) (*Node, error) {
	s := b.template
	s.name = fmt.Sprintf("%s-spare-%d", b.Name, len(b.extra)+1)
	n, err := start(ctx, b.launcher, s)
	if err != nil {
		return nil, err
	}
	b.extra = append(b.extra, n)
	return n, nil
}

// dismissSpares removes the servers that StartSpare started. If some have joined a cluster, it
// makes the cluster forget them.
func (b *Backend) dismissSpares(ctx context.Context) error {
	for _, spare := range b.extra {
		if err := spare.revive(ctx); err != nil {
			return err
		}
		id := ""
		if b.Cluster {
			var err error
			if id, err = spare.Client().ClusterMyID(ctx).Result(); err != nil {
				return fmt.Errorf("%s: %w", spare, err)
			}
		}
		if err := spare.remove(); err != nil {
			return err
		}
		if !b.Cluster {
			continue
		}
		for _, n := range b.Nodes {
			err := n.Client().ClusterForget(ctx, id).Err()
			if err != nil && !strings.Contains(err.Error(), "Unknown node") {
				return fmt.Errorf("%s: forgetting %s: %w", n, spare, err)
			}
		}
	}
	b.extra = nil
	return nil
}

func (b *Backend) stop() error {
	var errs []error
	for _, n := range slices.Concat(b.Nodes, b.extra) {
		errs = append(errs, n.remove())
	}
	if b.Clock != nil {
		errs = append(errs, b.Clock.Close())
	}
	return errors.Join(errs...)
}

// identify reads the server's product and version. It returns an error if the server is too old to
// have functions.
func (b *Backend) identify(ctx context.Context) error {
	n := b.Nodes[0]
	info, err := n.Client().InfoMap(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("%s: asking for its version: %w", n, err)
	}
	server := info["Server"]
	b.Product, b.Version = "redis", server["redis_version"]
	if v := server["valkey_version"]; v != "" {
		b.Product, b.Version = "valkey", v
	}
	var major int
	if _, err := fmt.Sscanf(b.Version, "%d.", &major); err != nil {
		return fmt.Errorf("%s: cannot read its version %q", n, b.Version)
	}
	if major < 7 {
		return fmt.Errorf("%s runs %s %s; functions need Redis 7.0 or later, or Valkey", n, b.Product, b.Version)
	}
	return nil
}

// Until calls f every few milliseconds until it returns nil. If ctx is done first, Until returns an
// error that wraps f's last error. condition describes the expected state in this error.
func Until(ctx context.Context, condition string, f func() error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last: %w", condition, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
