package loader

import (
	"context"
	"slices"
	"sync"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// most is how many nodes are worked on at a time.
const most = 16

// Status looks at every primary and compares what it runs with build. It changes nothing. (Pointed at a single server
// that is a replica, it looks at that replica.)
//
// The Report is complete also when there is an error. The error is nil when every node answered, whatever it runs: see
// [Report.InStep]. Else it is a [*PartialError].
func (l *Loader) Status(ctx context.Context, build functions.Build) (Report, error) {
	report, conns := l.look(ctx, build)
	closeAll(conns)
	return report, newPartialError(opStatus, report)
}

// look inspects every node. The connections are those of report.Nodes, in the same order, or none if the nodes could
// not be found out.
func (l *Loader) look(ctx context.Context, build functions.Build) (Report, []*conn) {
	report := Report{Wanted: Library{Version: build.Version(), BuildID: build.ID(), Digest: build.Digest()}}
	var found []string
	report.Topology, found, report.Nodes = l.find(ctx)
	if len(report.Nodes) > 0 {
		sortNodes(report.Nodes)
		return report, nil
	}
	conns, nodes := l.inspectAll(ctx, build, found)
	if report.Topology == Cluster {
		conns, nodes = l.replaceReplicas(ctx, build, conns, nodes)
	}
	report.Nodes = nodes
	return report, conns
}

func (l *Loader) inspectAll(ctx context.Context, build functions.Build, addrs []string) ([]*conn, []Node) {
	conns, nodes := make([]*conn, len(addrs)), make([]Node, len(addrs))
	for i, addr := range addrs {
		conns[i] = l.open(addr)
	}
	each(conns, func(i int, c *conn) { nodes[i] = c.inspect(ctx, build) })
	return conns, nodes
}

// replaceReplicas puts the primary in the place of a node that a cluster listed as one and that says of itself that it is
// a replica: the list was older than a failover, or than the node's joining. A replica that does not name its primary stays.
func (l *Loader) replaceReplicas(ctx context.Context, build functions.Build, conns []*conn, nodes []Node) ([]*conn, []Node) {
	var missing []string
	listed := func(addr string) bool {
		return slices.Contains(missing, addr) || slices.ContainsFunc(nodes, func(n Node) bool { return n.Addr == addr })
	}
	var keptConns []*conn
	var keptNodes []Node
	for i, node := range nodes {
		primary := ""
		if node.Err == nil && node.Role == Replica {
			primary = conns[i].primaryOf(ctx)
		}
		if primary == "" {
			keptConns, keptNodes = append(keptConns, conns[i]), append(keptNodes, node)
			continue
		}
		conns[i].close()
		if !listed(primary) {
			missing = append(missing, primary)
		}
	}
	moreConns, moreNodes := l.inspectAll(ctx, build, missing)
	return append(keptConns, moreConns...), append(keptNodes, moreNodes...)
}

// each runs f for every connection, several at a time, and waits for all.
func each(conns []*conn, f func(i int, c *conn)) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, most)
	for i, c := range conns {
		turn <- struct{}{}
		wg.Go(func() {
			f(i, c)
			<-turn
		})
	}
	wg.Wait()
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
