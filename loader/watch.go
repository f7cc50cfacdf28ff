package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
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
	Time time.Time
	Kind EventKind
	Node Node   // the node after the event
	Text string // a sentence that describes the event
	Err  error  // why the node was left unchanged, or what failed: an [*Error], or nil
}

// MarshalJSON encodes e. The node contains the error; see [Node.MarshalJSON].
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Time time.Time `json:"time"`
		Kind EventKind `json:"event"`
		Text string    `json:"text"`
		Node Node      `json:"node"`
	}{e.Time, e.Kind, e.Text, e.Node})
}

// Watch inspects every primary repeatedly (see [WithInterval]) until ctx is done. It loads build on
// primaries that lost it or never had it, for example after FUNCTION FLUSH, after a restart without
// persistence, or on a shard that joined. It rediscovers the primaries each time. It calls report
// for each node at the beginning, and then for each change that it sees. It never calls report
// concurrently. It returns ctx.Err(), or an error if build is invalid.
//
// A watch repairs and does not deploy. In these cases it leaves a node as it is, and reports the
// reason: another build was deployed after this one; any node runs a newer version or a higher
// contract; the node itself runs an unrelated library; a deployment is under way. As long as it
// runs, a watch remembers the last deployment and the nodes that it left as they are. So a
// forgotten watch never restores an older build, even if all nodes have lost the newer one.
//
// The watch repairs each problem once. If the same problem comes back at once, because someone else
// keeps replacing the library, the watch waits longer each time, up to a minute. The same is true
// for loads that fail.
//
// The watch notices a missing library or a new deployment in the next round. If a library was
// loaded without a deployment, the watch may need about ten rounds to notice, because it does not
// read the source code in every round. A step takes at most a second, even if [WithTimeout] allows
// more, so that a node that hangs does not delay the repair of other nodes.
func (l *Loader) Watch(ctx context.Context, build Build, report func(Event)) error {
	want, err := l.readBuild(build)
	if err != nil {
		return err
	}
	if report == nil {
		return errors.New("loader.Watch: the function report is nil; pass one")
	}
	w := l.watch(want, report)
	defer w.s.close()
	for {
		w.round(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.clock.after(l.interval):
		}
	}
}

func (l *Loader) watch(want owned, report func(Event)) *watch {
	w := &watch{s: l.session(), want: want, report: report, seen: map[string]*sight{}}
	w.s.timeout = min(w.s.timeout, time.Second)
	w.s.reads, w.s.left = map[string]*lastRead{}, map[string]bool{}
	return w
}

type watch struct {
	s      *session
	want   owned
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

// round inspects all nodes once and repairs what may be repaired.
func (w *watch) round(ctx context.Context) {
	f := w.s.look(ctx, w.want)
	if ctx.Err() != nil {
		return
	}
	if len(f.members) == 0 { // no node replied at all
		for _, n := range f.report.Nodes {
			w.say(Event{Kind: Failed, Node: n, Err: n.Err})
		}
		return
	}
	var lost []*member
	f.remember()
	verdicts := f.judge(ctx, "")
	for _, m := range f.members {
		if m.node.Role == Replica || errors.Is(m.node.Err, ErrUnreachable) {
			w.s.drop(m.shard.addr) // a Sentinel client finds the new primary when it reconnects
		}
		if w.sees(m, verdicts[m], f.lacksRecord(m)) {
			lost = append(lost, m)
		}
	}
	if len(lost) == 0 {
		return
	}
	// The lease keeps others from deploying during the repair. If it cannot be taken for a reason
	// other than ErrLeased, others cannot take it either, so the repair continues without it.
	lease := w.s.holder(f.leader().conn)
	if err := lease.take(ctx, 0); err == nil {
		defer func() { _ = lease.release(ctx) }()
	} else if errors.Is(err, ErrLeased) {
		for _, m := range lost {
			w.say(Event{Kind: Left, Node: *m.node, Err: m.left(ErrLeased, "", err.Error())})
		}
		return
	}
	w.s.forget()
	f.reread(ctx)
	f.remember()
	verdicts = f.judge(ctx, lease.lease.name)
	lost = slices.DeleteFunc(lost, func(m *member) bool { return !w.sees(m, verdicts[m], f.lacksRecord(m)) })
	// f.last cannot be the record of a later build here: judge would have refused every repair.
	kept := f.last()
	each(lost, func(m *member) { m.replace(ctx, f.want, kept) })
	w.s.forget()
	for _, m := range lost {
		w.account(m, f.want)
	}
}

// sees reports whether a node should be repaired now. If the node needs no repair or must not be
// repaired, sees also calls say. verdict is the reason why the node must be left as it is, or nil.
func (w *watch) sees(m *member, verdict error, lacksRecord bool) bool {
	n, s, now := m.node, w.sight(m.node.Addr), w.s.l.clock.now()
	switch {
	case n.Err != nil:
		w.say(Event{Kind: Failed, Node: *n, Err: n.Err})
	case n.State == Same && !lacksRecord:
		if now.After(s.notUntil.Add(time.Minute)) {
			s.loads = 0
		}
		w.say(Event{Kind: InStep, Node: *n, Text: n.Addr + " runs build " + n.Running.BuildID})
	case verdict != nil:
		w.say(Event{Kind: Left, Node: *n, Err: verdict})
	default:
		return !now.Before(s.notUntil)
	}
	return false
}

// account reports a repair, and sets when the node may be repaired again.
func (w *watch) account(m *member, want artifact) {
	s, before := w.sight(m.node.Addr), m.node.Before
	if before.Digest != s.finding {
		s.loads = 0
	}
	s.finding = before.Digest
	s.loads++
	s.notUntil = w.s.l.clock.now()
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
		had = "had lost its record for a rollback"
	}
	s.said = ""
	w.say(Event{Kind: Repaired, Node: *m.node, Text: m.node.Addr + " " + had + ": loaded build " + want.BuildID})
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
	e.Time = w.s.l.clock.now()
	w.report(e)
}

// left returns the reason why a watch leaves a node as it is.
func (m *member) left(class error, remedy, because string) *Error {
	what := "has no library"
	if m.node.State == Different {
		what = "runs " + m.node.Running.String()
	}
	return m.fail("FUNCTION LIST", class, nil, remedy, "%s and is left as it is, because %s", what, because)
}

// judge returns for each member the reason why a watch must leave it as it is, or nil if the watch
// may load the build. lease is the name of the watch's own lease.
func (f *fleet) judge(ctx context.Context, lease string) map[*member]error {
	const deploy = "call Deploy to load this build"
	why := map[*member]error{}
	later, underWay := f.laterBuild(), f.underWay(ctx, lease)
	for _, m := range f.members {
		n := m.node
		if n.State == Same {
			delete(f.s.left, n.Addr)
		}
		if n.Err != nil || n.State == Same {
			continue
		}
		// f.check would also look for lost policies and probe the node. A watch needs neither:
		// laterBuild reports a later build that the node has lost, and a load fails for the same
		// reasons as a probe.
		refusal := together(f.refusals(ctx, m, options{}))
		switch {
		case refusal != nil:
			why[m] = refusal
		case later != "":
			why[m] = m.left(ErrLaterBuild, "", later)
		case underWay != "":
			why[m] = m.left(ErrLeased, "", underWay)
			continue
		case f.adds(m):
			continue
		case n.State == Different && !f.isDeployed() && !newer(f.want.Version, n.Running.Version):
			why[m] = m.left(ErrUnknownOrder, deploy, "it is not known which of the two builds is the later one")
		case f.s.left[n.Addr] && !f.isDeployed():
			why[m] = m.left(ErrUnknownOrder, deploy, "this build may not replace what it ran before")
		}
		if why[m] != nil && n.Role == Primary && len(n.Taken) == 0 {
			f.s.left[n.Addr] = true
		}
	}
	return why
}

// adds reports whether the build only adds policies to the node's library. It does if no record is
// known, and the library has no policies in the watch's namespace: all servers lost everything, and
// the watch of another namespace repaired them first.
func (f *fleet) adds(m *member) bool {
	namespace := f.s.l.namespace
	return namespace != "" && m.node.State == Different && f.deployments() == 0 && f.s.last.deployment == 0 && len(policiesIn(m.text, namespace)) == 0
}

// remember keeps the last deployment found on the nodes. A deployment that was undone is forgotten
// once all nodes run the watch's build again.
func (f *fleet) remember() {
	before := f.s.last
	f.s.last = record{}
	if seen := f.last(); seen.deployment > 0 && (f.report.InStep() || seen.atMS >= before.atMS) {
		before = seen
	}
	f.s.last = before
}

// laterBuild describes a newer version on any node, or a later deployment of another build. It
// returns "" if there is neither.
func (f *fleet) laterBuild() string {
	for _, m := range f.members {
		switch r := m.node.Running; {
		case r.Contract > f.want.Contract:
			return fmt.Sprintf("%s runs version %s with contract %d", m.node.Addr, r.Version, r.Contract)
		case newer(r.Version, f.want.Version):
			return m.node.Addr + " runs the newer version " + r.Version
		}
	}
	last := f.last()
	if last.deployment == 0 || last.deployed == f.want.Digest {
		return ""
	}
	for _, m := range f.members {
		if m.node.Running.Digest == last.deployed {
			return m.node.Running.String() + " was deployed after this one"
		}
	}
	return "another build was deployed after this one"
}

// isDeployed reports whether a record says that this build was deployed.
func (f *fleet) isDeployed() bool {
	return f.s.last.deployed == f.want.Digest ||
		slices.ContainsFunc(f.members, func(m *member) bool { return m.record.deployed == f.want.Digest })
}

// underWay describes a deployment that holds a lease. It returns "" if there is none. except is the
// name of a lease to ignore.
func (f *fleet) underWay(ctx context.Context, except string) string {
	for _, m := range f.members {
		for _, l := range m.leases {
			if l.name == except {
				continue
			}
			if now, err := m.timeMS(ctx); err == nil && !l.isOver(now) {
				return "a deployment is under way, by " + l.who
			}
		}
	}
	return ""
}
