package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
)

const (
	primaries = 3
	replicas  = 3
	slots     = 16384

	neverFailsMS = "3155760000000" // 100 years
)

// neverFails holds options that keep a cluster intact while its clock jumps by years. Without them,
// such a jump would exceed cluster-node-timeout, so nodes would count as failed, and repl-timeout,
// so replicas would disconnect. A test of failover sets a lower cluster-node-timeout, and runs in
// real time.
var neverFails = []string{
	"--cluster-enabled", "yes",
	"--cluster-node-timeout", neverFailsMS,
	"--cluster-replica-validity-factor", "0",
	"--repl-timeout", "2000000000", // 63 years, in seconds
	"--repl-diskless-sync-delay", "0", // copy at once, without waiting for more replicas
}

// startCluster starts three primaries with one replica each.
func startCluster(ctx context.Context, l launcher, b *Backend) error {
	b.Nodes = make([]*Node, primaries+replicas)
	errs := make([]error, len(b.Nodes))
	var wg sync.WaitGroup
	for i := range b.Nodes {
		wg.Go(func() {
			s := b.template
			s.name = fmt.Sprintf("%s-%d", b.Name, i+1)
			b.Nodes[i], errs[i] = start(ctx, l, s)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, n := range b.Nodes {
			if n != nil {
				err = errors.Join(err, n.remove())
			}
		}
		b.Nodes = nil
		return err
	}
	if err := form(ctx, b.Nodes); err != nil {
		return fmt.Errorf("forming the cluster: %w", err)
	}
	return b.waitForCluster(ctx)
}

// form makes a cluster of empty nodes. The first three nodes own the slots, and each other node
// replicates one of them.
func form(ctx context.Context, nodes []*Node) error {
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		c := n.Client()
		if i < primaries {
			first, last := i*slots/primaries, (i+1)*slots/primaries-1
			if err := c.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
				return fmt.Errorf("%s: %w", n, err)
			}
		}
		if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		id, err := c.ClusterMyID(ctx).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		ids[i] = id
	}
	// Introduce every node to every other, because discovery by gossip would take seconds.
	for i, n := range nodes {
		for _, other := range nodes[:i] {
			if err := n.Meet(ctx, other); err != nil {
				return err
			}
		}
	}
	for i, n := range nodes[primaries:] {
		err := Until(ctx, n.String()+" to follow its primary", func() error {
			return n.Client().ClusterReplicate(ctx, ids[i]).Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Meet introduces this node to another with CLUSTER MEET.
func (n *Node) Meet(ctx context.Context, other *Node) error {
	host, port, err := net.SplitHostPort(other.Addr)
	if err != nil {
		return err
	}
	if err := n.Client().Do(ctx, "CLUSTER", "MEET", host, port, other.busPort).Err(); err != nil {
		return fmt.Errorf("%s: meeting %s: %w", n, other, err)
	}
	return nil
}

// waitForCluster waits until every node reports a complete cluster and every replica has its
// primary's data.
func (b *Backend) waitForCluster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return Until(ctx, b.Name+" to be whole", func() error {
		following := 0
		for _, n := range b.Nodes {
			role, err := n.settled(ctx, len(b.Nodes))
			if err != nil {
				b.forgetStrangers(ctx, n)
				return err
			}
			if role == "slave" {
				following++
			}
		}
		if want := len(b.Nodes) - primaries; following != want {
			return fmt.Errorf("%d nodes are replicas, waiting for %d", following, want)
		}
		return nil
	})
}

// forgetStrangers makes a node forget the nodes of earlier tests. Another node may have told it of one again, because on a busy
// machine not all nodes forget it within a minute.
func (b *Backend) forgetStrangers(ctx context.Context, n *Node) {
	nodes, _ := n.Client().ClusterNodes(ctx).Result()
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		if !slices.ContainsFunc(b.Nodes, func(own *Node) bool { return own.Addr == addr }) {
			_ = n.Client().ClusterForget(ctx, fields[0]).Err() // tried again
		}
	}
}

// settled returns the node's role. It returns an error unless the node sees a complete cluster with
// the given number of nodes, all connected and none suspected to have failed.
func (n *Node) settled(ctx context.Context, known int) (string, error) {
	c := n.Client()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", n, err)
	}
	for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", known), fmt.Sprintf("cluster_size:%d", primaries)} {
		if !strings.Contains(info, want+"\r\n") {
			return "", fmt.Errorf("%s: its CLUSTER INFO does not say %s", n, want)
		}
	}
	nodes, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", n, err)
	}
	for _, doubt := range []string{"fail", "handshake", "noaddr", "disconnected"} {
		if strings.Contains(nodes, doubt) {
			return "", fmt.Errorf("%s: CLUSTER NODES says %s", n, doubt)
		}
	}
	repl, err := c.InfoMap(ctx, "replication").Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", n, err)
	}
	role := repl["Replication"]["role"]
	if role == "slave" && repl["Replication"]["master_link_status"] != "up" {
		return "", fmt.Errorf("%s: it has no link to its primary", n)
	}
	return role, nil
}
