package loader

import (
	"context"
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
	conns := make([]*conn, len(found))
	report.Nodes = make([]Node, len(found))
	for i, addr := range found {
		conns[i] = l.open(addr)
	}
	each(conns, func(i int, c *conn) { report.Nodes[i] = c.inspect(ctx, build) })
	return report, conns
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
