package loader

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// session is one call to a method of a Loader, or one watch, with its open connections.
type session struct {
	l       *Loader
	timeout time.Duration

	mu    sync.Mutex
	conns map[string]*conn
	seeds []string // the node that replied last, and the primaries that it listed; tried before the caller's addresses

	reads map[string]*lastRead // a watch's last read of each node, by address; nil if this is not a watch
	last  record               // the last deployment that a watch has seen, even if no node still has its record
	left  map[string]bool      // addresses of nodes that a watch left unchanged; it may change them only after its build is deployed
	base  string               // source code of the library that a watch last used as fleet.base

	effects map[[2]string]map[string]functions.Effect // effects by the digests of the old and the new library, and by policy

	// The last call to the method over: its arguments and its result.
	overOwn, overBase string
	overWant          artifact
}

// lastRead holds the source code that a watch has read on a node. Because the source code is
// several hundred kilobytes long, the watch reuses it for up to usesPerRead rounds, as long as
// settled is true and the list of libraries stays the same.
type lastRead struct {
	list string // the reply to FUNCTION LIST without source code
	held held
	uses int // number of rounds that have reused held

	// settled reports whether the record matches the library, or there is no record. Otherwise a
	// deployment is incomplete, and its next step may leave list unchanged.
	settled bool
}

const usesPerRead = 10

func (l *Loader) session() *session {
	return &session{l: l, timeout: l.timeout, conns: map[string]*conn{}, effects: map[[2]string]map[string]functions.Effect{}}
}

func (s *session) conn(addr string) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[addr]
	if c == nil {
		c = s.l.open(addr, s.timeout)
		s.conns[addr] = c
	}
	return c
}

// drop closes the connection to a node, so that the next call dials again.
func (s *session) drop(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[addr]; c != nil {
		c.close()
		delete(s.conns, addr)
	}
}

func (s *session) read(ctx context.Context, c *conn, addr string) (held, error) {
	if s.reads == nil {
		return c.readHeld(ctx)
	}
	reply, err := c.do(ctx, "FUNCTION", "LIST", "LIBRARYNAME", functions.Name+"*")
	if err != nil {
		return held{}, failure(c, "FUNCTION LIST", err)
	}
	list := fmt.Sprint(reply)
	s.mu.Lock()
	known := s.reads[addr]
	if known != nil && known.list == list && known.uses < usesPerRead && known.settled {
		known.uses++
		s.mu.Unlock()
		return known.held, nil
	}
	s.mu.Unlock()
	found, err := c.readHeld(ctx)
	if err == nil {
		s.mu.Lock()
		s.reads[addr] = &lastRead{list: list, held: found, settled: found.record.deployment == 0 || found.record.deployed == functions.Digest(found.text)}
		s.mu.Unlock()
	}
	return found, err
}

// forget makes the next reads fetch the source code again.
func (s *session) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.reads)
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.close()
	}
	clear(s.conns)
}

// member is a node in a session, with the libraries found on it.
type member struct {
	*conn
	shard
	held
	s    *session
	node *Node // entry in the fleet's report

	wrote bool // whether a command was sent that changes the node's libraries
}

// held is the result of reading a node: its library, its record and its leases.
type held struct {
	text       string // source code of the library, "" if there is none
	record     record
	recordText string // source code of the record's library, "" if there is none
	leases     []lease
}

// fleet is all nodes that were inspected, sorted by address.
type fleet struct {
	s   *session
	own owned // the build to deploy or to restore; empty for Delete
	// base is the source code of the nodes' library. Policies of other namespaces, which own does not
	// contain, are copied from base to want. base is "" if no node has a library, or if the nodes have
	// several libraries and the newest is unknown.
	base    string
	want    artifact // what each node should run
	report  Report
	members []*member // one for each of report.Nodes, or none if the nodes could not be found
}

// look inspects every node, and determines the build that all of them should run. It writes
// nothing.
func (s *session) look(ctx context.Context, own owned) *fleet {
	f := s.inspectFleet(ctx, own)
	if len(f.members) > 0 {
		f.compose()
	}
	return f
}

// inspectFleet inspects every node, and compares the node's library with the one in own.
func (s *session) inspectFleet(ctx context.Context, own owned) *fleet {
	want := own.artifact
	f := &fleet{s: s, own: own, want: want, report: Report{Wanted: want.Library}}
	var shards []shard
	f.report.Topology, shards, f.report.Nodes = s.find(ctx)
	if len(f.report.Nodes) > 0 {
		slices.SortFunc(f.report.Nodes, func(a, b Node) int { return compareAddrs(a.Addr, b.Addr) })
		return f
	}
	members := s.inspectAll(ctx, want, shards)
	if f.report.Topology == Cluster {
		members = s.replaceReplicas(ctx, want, members)
	}
	f.set(members)
	return f
}

func (f *fleet) set(members []*member) {
	slices.SortFunc(members, func(a, b *member) int { return compareAddrs(a.node.Addr, b.node.Addr) })
	nodes := make([]Node, len(members))
	for i, m := range members {
		nodes[i] = *m.node
		m.node = &nodes[i]
	}
	f.members, f.report.Nodes = members, nodes
}

func (s *session) inspectAll(ctx context.Context, want artifact, shards []shard) []*member {
	members := make([]*member, len(shards))
	for i, at := range shards {
		members[i] = &member{conn: s.conn(at.addr), shard: at, s: s, node: &Node{}}
	}
	each(members, func(m *member) { m.inspect(ctx, want) })
	return members
}

// replaceReplicas replaces each node that reports that it is a replica by its primary. Such a node
// is in the cluster's list of primaries if the list is outdated, for example after a failover. A
// replica stays if its primary is unknown, or is listed and also reports that it is a replica. The
// report then shows that the keys have no primary.
func (s *session) replaceReplicas(ctx context.Context, want artifact, members []*member) []*member {
	var missing []shard
	listed := func(addr string) bool {
		return slices.ContainsFunc(missing, func(m shard) bool { return m.addr == addr }) ||
			slices.ContainsFunc(members, func(m *member) bool { return m.node.Addr == addr })
	}
	isReplica := func(m *member) bool { return m.node.Err == nil && m.node.Role == Replica }
	var kept []*member
	for _, m := range members {
		primary := ""
		if isReplica(m) {
			primary = m.primaryOf(ctx)
		}
		if primary == "" || slices.ContainsFunc(members, func(m *member) bool { return m.node.Addr == primary && isReplica(m) }) {
			kept = append(kept, m)
			continue
		}
		if !listed(primary) {
			missing = append(missing, shard{addr: primary, slots: m.slots})
		}
	}
	return append(kept, s.inspectAll(ctx, want, missing)...)
}

// err returns a [*PartialError] if any node has an error, or nil.
func (f *fleet) err(op string) error {
	if len(failed(f.report.Nodes)) == 0 {
		return nil
	}
	return &PartialError{Op: op, Build: f.report.Wanted.BuildID, Nodes: f.report.Nodes, Notes: f.report.Notes}
}

// leader returns the node on which a deployment takes its lease. All deployments must choose the
// same node. It is the primary of the lowest slot, because in a failover its replica takes over
// both the slot and the lease. Without slots it is the first node by address.
func (f *fleet) leader() *member {
	return slices.MinFunc(f.members, func(a, b *member) int {
		if d := a.lowest() - b.lowest(); d != 0 {
			return d
		}
		return compareAddrs(a.node.Addr, b.node.Addr)
	})
}

// reread reads the nodes again after the lease was taken, and determines again what they should
// run.
func (f *fleet) reread(ctx context.Context) {
	each(f.members, func(m *member) {
		if err := m.read(ctx, f.want); err != nil {
			m.node.State, m.node.Err = stateAfter(err), err
		}
	})
	f.compose()
}

// deployments returns the number of the latest deployment found in the records.
func (f *fleet) deployments() int64 {
	most := int64(0)
	for _, m := range f.members {
		most = max(most, m.record.deployment)
	}
	return most
}

// deploymentsOf returns the number of the latest deployment of a namespace found in the records.
func (f *fleet) deploymentsOf(namespace string) int64 {
	most := int64(0)
	for _, m := range f.members {
		most = max(most, m.record.deploymentOf(namespace))
	}
	return most
}

func (f *fleet) filter(keep func(*member) bool) []*member {
	return slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return !keep(m) })
}

// most is the maximum number of nodes that are processed at the same time.
const most = 16

// each calls f for every item, several at a time, and waits until all calls have returned.
func each[T any](items []T, f func(T)) {
	var wg sync.WaitGroup
	turn := make(chan struct{}, most)
	for _, item := range items {
		turn <- struct{}{}
		wg.Go(func() {
			f(item)
			<-turn
		})
	}
	wg.Wait()
}
