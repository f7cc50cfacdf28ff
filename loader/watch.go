package loader

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// EventKind is the kind of an [Event].
type EventKind string

const (
	// InStep: the node runs the build. The watch sends this event when it first sees the
	// node in this state, and when the node returns to it without a repair.
	InStep EventKind = "in step"

	// Repaired: the node did not run the build, and the build was loaded.
	Repaired EventKind = "repaired"

	// Left: the node does not run the build and is left as it is; Event.Err says why.
	Left EventKind = "left"

	// Failed: the node could not be inspected, or the load failed; Event.Err says why. The watch tries
	// again.
	Failed EventKind = "failed"
)

// Event is a change that a watch has seen on one node.
type Event struct {
	Time time.Time `json:"time"`
	Kind EventKind `json:"event"`
	Text string    `json:"text"` // a sentence that describes the event
	Node Node      `json:"node"` // the node after the event
	Err  error     `json:"-"`    // why the node was left unchanged, or what failed: a [*nodes.Error], or nil
}

// Watch inspects every primary repeatedly (see Config.Interval) until ctx is done. It loads what was
// deployed last on primaries that lost it or never had it, for example after FUNCTION FLUSH, after
// a restart without persistence, or on a shard that joined. It rediscovers the primaries each time.
// It calls report for each node at the beginning, and then for each change that it sees. It never
// calls report concurrently. It returns ctx.Err(), or an error if build is invalid.
//
// A watch gives no build a new number: it copies the latest deployment that any node has, of each
// namespace. It therefore completes a deployment whose program died, and never restores an older
// build. If all nodes have lost everything, it loads the last deployment that it has seen, and
// otherwise build. It leaves a node as it is, and reports the reason, if the node runs an unrelated
// library, or if a deployment is under way.
//
// The watch repairs each problem once. If the same problem comes back at once, because someone else
// keeps replacing the library, the watch waits longer each time, up to a minute. The same is true
// for loads that fail.
//
// The watch notices a missing library or a new deployment in the next round. If a library was
// loaded without a deployment, the watch may need about ten rounds to notice, because it does not
// read the source code in every round. A step takes at most a second, even if Config.Timeout allows
// more, so that a node that hangs does not delay the repair of other nodes.
func (l *Loader) Watch(ctx context.Context, build Build, report func(Event)) error {
	file, err := l.readBuild(build)
	if err != nil {
		return err
	}
	if report == nil {
		return errors.New("loader.Watch: the function report is nil; pass one")
	}
	w := l.watch(file, report)
	defer w.s.Close()
	for {
		w.round(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.config.clock.after(l.config.Interval):
		}
	}
}

// Repair does one round of a [Loader.Watch]: it loads what was deployed last on servers that lost
// it, and build if no server has anything. It returns nil if every primary then has the same, and
// otherwise the errors for the primaries that do not.
func (l *Loader) Repair(ctx context.Context, build Build) error {
	file, err := l.readBuild(build)
	if err != nil {
		return err
	}
	var left []error
	w := l.watch(file, func(e Event) {
		if e.Kind == Left || e.Kind == Failed {
			left = append(left, e.Err)
		}
	})
	defer w.s.Close()
	w.round(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(left...)
}

// Healer returns a function for client.WithHealer. If a server has lost the library, the function
// repairs it as [Loader.Repair] does. An application with an old build therefore never replaces a
// newer one. The function succeeds if that server has the library afterwards, even if another server
// of the cluster is unreachable. It fails with [nodes.ErrNoLibrary] if [Loader.Delete] has deleted the library.
func Healer(build Build, c Config) func(context.Context, redis.UniversalClient) error {
	return func(ctx context.Context, server redis.UniversalClient) error {
		l, err := New(server, c)
		if err != nil {
			return err
		}
		err = l.Repair(ctx, build)
		if err != nil && !errors.Is(err, nodes.ErrUnreachable) {
			return err
		}
		found := server.FCallRO(ctx, "ratelimit_info", nil).Err()
		if err == nil && nodes.IsReply(found, "ERR Function not found") {
			return &nodes.Error{Class: nodes.ErrNoLibrary, Problem: "the library was deleted from the servers, and a healer does not bring it back", Remedy: "call Deploy"}
		}
		// Another server may be unreachable. The caller asks only for this one.
		if _, ok := server.(*redis.Client); ok && found == nil {
			return nil
		}
		return err
	}
}

// anyBuild are the options with which a watch loads what was deployed last, whatever it is.
var anyBuild = Options{RemovePolicies: true, AllowDowngrade: true}

type watch struct {
	s      *session
	file   goal
	known  text.Text // what all nodes had when the watch last saw them settled
	report func(Event)
	seen   map[string]*sight // what the watch remembers, by address
}

// sight holds what the watch remembers about a node.
type sight struct {
	finding  string // digest of the library that the last repair replaced
	said     string // what was last reported
	loads    int    // number of successive loads that replaced that library
	notUntil time.Time
}

func (l *Loader) watch(file goal, report func(Event)) *watch {
	w := &watch{s: l.session(), file: file, report: report, seen: map[string]*sight{}}
	w.s.Timeout = min(w.s.Timeout, time.Second)
	w.s.lists = map[string]*listed{}
	return w
}

// fill is the second half of rule 11: a part that no node has with a number is what the watch remembers
// of it. If it remembers nothing and no node has the part, it is that of its file, with number 0.
func (w *watch) fill(joined text.Text) text.Text {
	filled := text.Join(joined, text.Text{})
	isMissing := func(namespace string) bool { return text.Compare(filled.Parts[namespace], text.Part{}) == 0 }
	for namespace, part := range w.known.Parts {
		if filled.Parts[namespace].Number == 0 && part.Number > 0 || isMissing(namespace) {
			filled.Parts[namespace] = part
		}
	}
	for namespace, value := range w.file.values(filled) {
		if isMissing(namespace) && value != "" {
			filled.Parts[namespace] = text.Part{Value: value}
		}
	}
	return filled
}

// round is rule 11: it inspects all nodes once, and makes them equal.
func (w *watch) round(ctx context.Context) {
	w.s.begin()
	f := w.s.look(ctx, goal{own: w.file.own, fill: w.fill})
	if ctx.Err() != nil {
		return
	}
	if len(f.members) == 0 { // no node replied at all
		for _, n := range f.report.Nodes {
			w.say(Event{Kind: Failed, Node: n, Err: n.Err})
		}
		return
	}
	w.prune(f.members)
	var sound []*member // those that the watch can read and write
	for _, m := range f.members {
		if m.node.Role == "replica" || errors.Is(m.node.Err, nodes.ErrUnreachable) {
			w.s.forget(m.Shard.Addr) // a Sentinel client finds the new primary when it reconnects
		}
		if m.node.Err == nil && together(f.refusals(ctx, m, anyBuild)) == nil {
			sound = append(sound, m)
		}
	}
	if len(w.due(ctx, f)) == 0 {
		if !slices.ContainsFunc(f.members, func(m *member) bool { return m.hasLease() || f.behind(m) }) {
			w.known = f.next
		}
		return
	}
	g := w.lease(ctx, f, sound)
	if g == nil {
		return
	}
	nodes.Each(g.members, func(m *member) { m.node.Err = m.read(ctx) })
	g.compose(ctx)
	w.s.tell(protocol.Step{Op: protocol.Number, Nodes: g.addrs(), Text: w.s.parts(g.next)})
	lost := w.due(ctx, g)
	nodes.Each(lost, func(m *member) {
		m.node.Err = g.writeOne(ctx, m, g.next, w.s.token)
		if m.node.Err = cmp.Or(m.node.Err, m.read(ctx)); m.node.Err == nil && g.behind(m) {
			m.node.Err = overwritten(m.Conn)
		}
	})
	g.show(g.members)
	for _, m := range lost {
		m.node.Changed = m.node.Err == nil
		w.account(m, g.want)
	}
	if len(failed(g.report.Nodes)) == 0 {
		w.known = g.next
	}
	g.release(ctx, protocol.Unknown)
}

// lease takes the leases of the members, and returns a fleet of those whose lease it got. It returns
// nil if another call holds one of them, or if it got none. A node on which no lease can be taken,
// for example because it is out of memory, is reported, and does not keep the others from a repair.
func (w *watch) lease(ctx context.Context, f *fleet, members []*member) *fleet {
	for len(members) > 0 {
		g := &fleet{s: w.s, goal: f.goal}
		g.set(members)
		if g.takeLeases(ctx, 0) {
			return g
		}
		members = nil
		held := false
		for _, m := range g.members {
			switch {
			case errors.Is(m.node.Err, ErrLeased):
				held = true
				for _, lost := range g.filter(f.behind) {
					w.say(Event{Kind: Left, Node: *lost.node, Err: lost.left(m.node.Err)})
				}
			case m.node.Err != nil:
				w.account(m, f.want)
			default:
				members = append(members, m)
			}
		}
		if held {
			return nil
		}
	}
	return nil
}

// prune forgets the nodes that are gone: their connections, what was read there, and their sights.
func (w *watch) prune(members []*member) {
	reached, addrs := map[string]bool{}, map[string]bool{} // a Sentinel client has one address to reach, and several nodes behind it
	for _, m := range members {
		reached[m.Shard.Addr], addrs[m.node.Addr] = true, true
	}
	w.s.Prune(func(addr string) bool { return reached[addr] })
	maps.DeleteFunc(w.s.lists, func(addr string, _ *listed) bool { return !reached[addr] })
	maps.DeleteFunc(w.seen, func(addr string, _ *sight) bool { return !addrs[addr] })
}

// due returns the members that should be repaired now, and reports what it sees of the others.
func (w *watch) due(ctx context.Context, f *fleet) []*member {
	now := w.s.l.config.clock.now()
	f.tryChanges()
	return f.filter(func(m *member) bool {
		n, s := m.node, w.sight(m.node.Addr)
		kind, err := Left, n.Err
		if err == nil {
			err = together(append(f.refusals(ctx, m, anyBuild), f.misfit(m)))
		} else if !errors.Is(err, ErrUnreadable) {
			kind = Failed
		}
		if err != nil {
			w.say(Event{Kind: kind, Node: *n, Err: err})
			return false
		}
		if f.behind(m) {
			return !now.Before(s.notUntil)
		}
		if now.After(s.notUntil.Add(time.Minute)) {
			s.loads = 0
		}
		what := n.Addr + " runs build " + n.Running.BuildID
		if n.Running.Digest == "" {
			what = n.Addr + " has no library, because it was deleted"
		}
		for namespace, value := range w.file.values(f.joined) {
			if text.Digest(value) != text.Digest(f.next.Parts[namespace].Value) {
				what += ", which was deployed after the build of this watch"
				break
			}
		}
		w.say(Event{Kind: InStep, Node: *n, Text: what})
		return false
	})
}

// account reports a repair, and sets when the node may be repaired again.
func (w *watch) account(m *member, want artifact) {
	s, before := w.sight(m.node.Addr), m.node.Before
	if before.Digest != s.finding {
		s.loads = 0
	}
	s.finding = before.Digest
	s.loads++
	s.notUntil = w.s.l.config.clock.now()
	if s.loads > 2 || m.node.Err != nil {
		s.notUntil = s.notUntil.Add(min(time.Minute, 500*time.Millisecond<<min(s.loads, 10)))
	}
	if m.node.Err != nil {
		w.say(Event{Kind: Failed, Node: *m.node, Err: m.node.Err})
		return
	}
	had := "ran " + before.String()
	if before.Digest == "" {
		had = "had no library"
	} else if before.Digest == want.Digest {
		had = "had lost the record of its deployment"
	}
	did := "loaded build " + want.BuildID
	if want.Digest == "" {
		did = "deleted the library again"
	}
	s.said = ""
	w.say(Event{Kind: Repaired, Node: *m.node, Text: m.node.Addr + " " + had + ": " + did})
	s.said = string(InStep)
}

func (w *watch) sight(addr string) *sight {
	if w.seen[addr] == nil {
		w.seen[addr] = &sight{}
	}
	return w.seen[addr]
}

// say reports an event unless it is the same as the node's last one.
func (w *watch) say(e Event) {
	if e.Err != nil {
		e.Text = e.Err.Error()
	}
	s := w.sight(e.Node.Addr)
	said := string(e.Kind)
	if e.Kind != InStep {
		said += e.Text
	}
	if s.said == said {
		return
	}
	s.said = said
	e.Time = w.s.l.config.clock.now()
	w.report(e)
}

// left returns the error of a node that a watch leaves as it is, because of another call's lease.
func (m *member) left(because error) *nodes.Error {
	if e, ok := errors.AsType[*nodes.Error](because); ok {
		because = errors.New(e.Problem) // its remedy is not for a watch, which tries again by itself
	}
	what := "has no library"
	if m.node.Running.Digest != "" {
		what = "runs " + m.node.Running.String()
	}
	return m.Fail("FUNCTION LIST", ErrLeased, nil, "", "%s and is left as it is, because %s", what, because)
}
