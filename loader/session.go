package loader

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// session is one call to a method of a Loader, or one watch, with its open connections.
type session struct {
	*nodes.Pool
	l     *Loader
	who   string
	token string // unique to the call, or to a round of a watch

	mu    sync.Mutex
	lists map[string]*listed // a watch's last read of each node, by address; nil if this is not a watch

	effects map[[2]string]map[string]functions.Effect // effects by the digests of the old and the new library, and by policy
}

// listed is what a watch has read on a node. Because a source code is several hundred kilobytes long,
// the watch reuses it as long as the list of libraries stays the same. The list shows the digest of a
// text with a header. Another text is read again after usesPerRead rounds.
type listed struct {
	list string // the reply to FUNCTION LIST without source code
	uses int
	reading
}

const usesPerRead = 10

func (l *Loader) session() *session {
	s := &session{Pool: l.from.Pool(l.config.Timeout, l.config.Trace), l: l, who: whoAmI()}
	s.begin()
	return s
}

// forget closes the connection to a node, and forgets what was read there.
func (s *session) forget(addr string) {
	s.Drop(addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, addr)
}

// begin draws a new token, for a call or for a round of a watch.
func (s *session) begin() {
	s.token, s.effects = strings.ToLower(rand.Text()), map[[2]string]map[string]functions.Effect{}
}

func (s *session) tell(step protocol.Step) {
	if s.l.config.Steps != nil {
		step.Call = s.token
		s.l.config.Steps(step)
	}
}

// parts returns the parts of a text for a step, or nil if nobody wants to see the steps: it computes
// several digests of whole texts.
func (s *session) parts(t text.Text) map[string]protocol.Part {
	if s.l.config.Steps == nil {
		return nil
	}
	return protocol.Of(t)
}

// known returns what a watch has read on a node when the list of libraries was the same, or nil.
func (s *session) known(addr, list string) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.lists[addr]
	if known == nil || known.list != list || !strings.Contains(list, " "+text.By) && known.uses >= usesPerRead {
		return nil
	}
	known.uses++
	return &known.reading
}

func (s *session) remember(addr, list string, found reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[addr] = &listed{list: list, reading: found}
}

// fleet is all primaries, sorted by address, and what a call makes of them.
type fleet struct {
	s       *session
	goal    goal
	members []*member // one for each of report.Nodes, or none if the nodes could not be found
	report  Report

	number, atMS int64 // of the deployment, and when it began by the leader's clock; 0 before it, and for a watch

	joined text.Text // the join of the members' texts
	next   text.Text // the same with the parts of the call
	undone text.Text // the text that an undo writes
	mine   []string  // the namespaces whose parts differ between the two
	want   artifact  // the body of next

	restored bool // whether all nodes are known to have undone
}

// goal is what a call wants to change.
type goal struct {
	own     artifact                          // the build to deploy, if there is one
	values  func(text.Text) map[string]string // the new values by namespace, for the join of all texts; nil for none
	fill    func(text.Text) text.Text         // completes the join, in a watch; or nil
	foreign bool                              // whether an unrelated library takes part in the join
	back    bool                              // whether the call is a rollback
	erase   bool                              // whether the replaced values are not kept
}

// look inspects every node, and determines what all of them should run. It writes nothing.
func (s *session) look(ctx context.Context, g goal) *fleet {
	f := &fleet{s: s, goal: g, want: g.own, report: Report{Wanted: g.own.Library}}
	var shards []nodes.Shard
	var lost []nodes.Failed
	f.report.Topology, shards, lost = s.Find(ctx)
	if len(lost) > 0 {
		for _, at := range lost {
			n := described(at.Addr, at.About)
			n.fail(at.Err)
			f.report.Nodes = append(f.report.Nodes, n)
		}
		slices.SortFunc(f.report.Nodes, func(a, b Node) int { return nodes.CompareAddrs(a.Addr, b.Addr) })
		return f
	}
	members := s.inspectAll(ctx, shards)
	if f.report.Topology == nodes.Cluster {
		members = s.replaceReplicas(ctx, members)
	}
	f.set(members)
	f.compose(ctx)
	return f
}

func (f *fleet) set(members []*member) {
	slices.SortFunc(members, func(a, b *member) int { return nodes.CompareAddrs(a.node.Addr, b.node.Addr) })
	list := make([]Node, len(members))
	for i, m := range members {
		list[i] = *m.node
		m.node = &list[i]
	}
	f.members, f.report.Nodes = members, list
}

func (s *session) inspectAll(ctx context.Context, shards []nodes.Shard) []*member {
	members := make([]*member, len(shards))
	for i, at := range shards {
		members[i] = &member{Conn: s.Conn(at.Addr), Shard: at, s: s, node: &Node{}, unknown: map[string]bool{}}
	}
	nodes.Each(members, func(m *member) { m.inspect(ctx) })
	return members
}

// replaceReplicas replaces each node that reports that it is a replica by its primary. Such a node
// is in the cluster's list of primaries if the list is outdated, for example after a failover. A
// replica stays if its primary is unknown, or is listed and also reports that it is a replica. The
// report then shows that the keys have no primary.
func (s *session) replaceReplicas(ctx context.Context, members []*member) []*member {
	var missing []nodes.Shard
	listed := func(addr string) bool {
		return slices.ContainsFunc(missing, func(m nodes.Shard) bool { return m.Addr == addr }) ||
			slices.ContainsFunc(members, func(m *member) bool { return m.node.Addr == addr })
	}
	isReplica := func(m *member) bool { return m.node.Err == nil && m.node.Role == "replica" }
	var kept []*member
	for _, m := range members {
		primary := ""
		if isReplica(m) {
			primary = m.PrimaryOf(ctx)
		}
		if primary == "" || slices.ContainsFunc(members, func(m *member) bool { return m.node.Addr == primary && isReplica(m) }) {
			kept = append(kept, m)
			continue
		}
		if !listed(primary) {
			missing = append(missing, nodes.Shard{Addr: primary, Slots: m.Slots})
		}
	}
	return append(kept, s.inspectAll(ctx, missing)...)
}

// newcomers rediscovers the primaries of a cluster, adds the new ones to the fleet, and returns
// them.
func (f *fleet) newcomers(ctx context.Context) []*member {
	if f.report.Topology != nodes.Cluster {
		return nil
	}
	_, shards, failed := f.s.Find(ctx)
	if len(failed) > 0 {
		return nil
	}
	known := func(addr string) bool {
		return slices.ContainsFunc(f.members, func(m *member) bool { return m.node.Addr == addr })
	}
	shards = slices.DeleteFunc(shards, func(at nodes.Shard) bool { return known(at.Addr) })
	more := f.s.replaceReplicas(ctx, f.s.inspectAll(ctx, shards))
	more = slices.DeleteFunc(more, func(m *member) bool { return known(m.node.Addr) })
	if len(more) > 0 {
		f.set(append(f.members, more...))
		f.show(more)
		f.checkNames(ctx, more)
	}
	return more
}

// err returns a [*PartialError] if any node has an error, or nil.
func (f *fleet) err(op string) error {
	if len(failed(f.report.Nodes)) == 0 {
		return nil
	}
	sent := len(f.filter(func(m *member) bool { return m.wrote }))
	return &PartialError{Op: op, Build: f.report.Wanted.BuildID, Nodes: f.report.Nodes, Notes: f.report.Notes, sent: sent, restored: f.restored}
}

// leader returns the node on which a deployment takes its first lease. It is the primary of the
// lowest slot, because in a failover its replica takes over both the slot and the lease. Without
// slots it is the first node by address. If two deployments choose different leaders, they still
// exclude each other, because each takes the leases of all nodes.
func (f *fleet) leader() *member {
	return slices.MinFunc(f.members, func(a, b *member) int {
		if d := a.Lowest() - b.Lowest(); d != 0 {
			return d
		}
		return nodes.CompareAddrs(a.node.Addr, b.node.Addr)
	})
}

func (f *fleet) filter(keep func(*member) bool) []*member {
	return slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return !keep(m) })
}
