package loader

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Deploy makes every primary run build, or leaves all of them as they were.
//
// It first inspects all primaries. It writes nothing if one of them cannot accept the library:
// because of its engine, its version or its memory, because another library registers one of the
// function names, because the user lacks permissions, or because the node is a replica. It also
// writes nothing if a primary has a newer version or a higher contract ([ErrDowngrade]), a policy
// that build does not have ([ErrRemovesPolicies]), or an unrelated library of the same name. If all
// primaries already run the build, Deploy changes nothing.
//
// Deploy then takes a lease on every primary, so that two deployments cannot interleave
// ([ErrLeased]). It loads the build on one primary and then on the others, and reads it back from
// all. Loading is atomic on each node, and calls are served throughout: first by the old library,
// then by the new one. Each node keeps the replaced library for [Loader.Rollback]. If build was the
// last one deployed and some nodes lost it, Deploy repairs those nodes, and a rollback still goes
// back to the same build as before.
//
// If one primary fails, or ctx is done, Deploy restores the old library on all. The Report is
// complete even if there is an error. The error is then a [*PartialError] that says for each node
// what was done, what failed and what it runs now; to continue, call Deploy again. If a node died,
// or this program dies, some nodes may have the build and others not. The next deployment or watch
// then completes it. PROTOCOL.md has the rules.
func (l *Loader) Deploy(ctx context.Context, build Build, o Options) (Report, error) {
	return l.withBuild(ctx, build, o, func(f *fleet) (Report, error) { return f.deploy(ctx, opDeploy, o) })
}

// withBuild inspects every node, and calls then with what all of them should have: the build.
func (l *Loader) withBuild(ctx context.Context, build Build, o Options, then func(*fleet) (Report, error)) (Report, error) {
	g, err := l.readBuild(build)
	if err != nil {
		return Report{}, err
	}
	g.foreign = o.ReplaceForeign
	s := l.session()
	defer s.Close()
	return then(s.look(ctx, g))
}

// deploy makes every node run f.want. It has the rules 3 to 10 of PROTOCOL.md.
func (f *fleet) deploy(ctx context.Context, op string, o Options) (Report, error) {
	f.check(ctx, o, true)
	if err := f.err(op); err != nil || !slices.ContainsFunc(f.members, f.behind) {
		return f.report, err
	}
	outcome := protocol.Nothing
	patience := o.Wait
	if patience == 0 && f.s.l.config.Namespace != "" {
		patience = 4 * f.s.leaseLife()
	}
	if f.takeLeases(ctx, patience) {
		before := f.joined
		f.readAll(ctx)
		if f.nextNumber(ctx); f.err(op) == nil {
			f.compose(ctx)
			if f.checkAgain(ctx, op, o, before); f.err(op) == nil {
				outcome = f.change(ctx, o)
			}
		}
	}
	f.release(ctx, outcome)
	return f.report, f.err(op)
}

// change writes the new text and verifies it, or undoes it. It returns the outcome.
func (f *fleet) change(ctx context.Context, o Options) string {
	f.compare(f.members)
	if f.writeAll(ctx, o) && f.readBack(ctx) {
		return protocol.Succeeded
	}
	sent := func(m *member) bool { return m.wrote }
	if !slices.ContainsFunc(f.members, sent) {
		return protocol.Nothing
	}
	if f.restored = len(f.mine) > 0 && f.undo(context.WithoutCancel(ctx)); f.restored {
		return protocol.Undone
	}
	return protocol.Unknown
}

// takeLeases is rule 3: it takes the lease on every primary, the leader first. If one is held, it
// releases all, and tries again for up to patience.
func (f *fleet) takeLeases(ctx context.Context, patience time.Duration) bool {
	now := f.s.l.config.clock.now
	leader := f.leader()
	others := f.filter(func(m *member) bool { return m != leader })
	for deadline := now().Add(patience); ; {
		held := f.tryLeases(ctx, []*member{leader})
		if held == nil && leader.node.Err == nil {
			held = f.tryLeases(ctx, others)
		}
		if held == nil && len(failed(f.report.Nodes)) == 0 {
			return true
		}
		nodes.Each(f.members, func(m *member) { m.releaseLease(ctx) })
		if len(failed(f.report.Nodes)) > 0 {
			return false
		}
		left := deadline.Sub(now())
		pause := 200 * time.Millisecond
		if held.member != leader { // the other deployment may wait for this one's leases; do not wait in step with it
			pause += rand.N(pause)
		}
		if left > 0 {
			select {
			case <-ctx.Done():
			case <-f.s.l.config.clock.after(min(pause, left)):
				continue
			}
		}
		held.member.node.Err = leased(held.member.Conn, held.lease)
		return false
	}
}

// holding is a lease of another call on a node.
type holding struct {
	member *member
	lease  lease
}

// tryLeases takes the leases of the members. It returns the first one that another call holds, or
// nil. Other failures are errors of the nodes.
func (f *fleet) tryLeases(ctx context.Context, members []*member) *holding {
	found := nodes.Results(members, func(m *member) *holding {
		other, err := m.takeLease(ctx)
		if m.node.Err = err; other == nil {
			return nil
		}
		return &holding{m, *other}
	})
	for _, held := range found {
		if held != nil {
			return held
		}
	}
	return nil
}

// readAll is rule 4: it reads all texts under their leases.
func (f *fleet) readAll(ctx context.Context) {
	nodes.Each(f.members, func(m *member) {
		if err := m.read(ctx); err != nil {
			m.node.fail(err)
		}
	})
}

// nextNumber is rule 5: it sets the number of the deployment, and its time by the leader's clock.
func (f *fleet) nextNumber(ctx context.Context) {
	leader := f.leader()
	clockMS, err := leader.TimeMS(ctx)
	if err != nil && leader.node.Err == nil {
		leader.node.Err = err
	}
	if len(failed(f.report.Nodes)) > 0 {
		return
	}
	latest := slices.MaxFunc(f.members, func(a, b *member) int { return cmp.Compare(a.text.Highest, b.text.Highest) })
	number := max(latest.text.Highest+1, clockMS)
	if number >= text.MaxNumber { // an undo needs another number
		m, what, remedy := leader, "clock", "set the clock of the server, then try again"
		if clockMS < text.MaxNumber {
			m, what, remedy = latest, "library", deleteIt
		}
		m.node.Err = m.Fail("TIME", nodes.ErrBadReply, nil, remedy, "has a %s of the year %d, which cannot be right", what, time.UnixMilli(max(clockMS, latest.text.Highest)).UTC().Year())
	}
	f.number, f.atMS = number, clockMS
}

// checkAgain checks whether every node can load the new text, because another deployment may have
// finished before the leases were taken. before is the join from before.
func (f *fleet) checkAgain(ctx context.Context, op string, o Options, before text.Text) {
	leader, mine := f.leader(), f.s.l.config.Namespace
	nodes.Each(f.members, func(m *member) { m.tidy(ctx, f.atMS) })
	f.s.tell(protocol.Step{Op: protocol.Number, Number: f.number, ClockMS: f.atMS, What: op, Mine: f.mine, Nodes: f.addrs(), Text: f.s.parts(f.next)})
	changed := op == opRollback && text.Compare(before.Parts[mine], f.joined.Parts[mine]) != 0 || op == opDelete && !text.Equal(before, f.joined)
	if f.check(ctx, o, false); changed && f.err(op) == nil && slices.ContainsFunc(f.members, f.behind) {
		leader.node.Err = leader.Fail("FUNCTION LIST", ErrOvertaken, nil, lookAtStatus, "got another deployment while this call waited for the lease")
	}
}

// fits reports whether a node with the text has nothing that this call did not read or write.
func (f *fleet) fits(t text.Text) bool {
	return text.Within(t, f.joined) || text.Equal(t, f.next) || text.Equal(t, f.undone)
}

// writeAll is rule 7: it writes one primary, so that an error in the library affects only that one,
// and then the others.
func (f *fleet) writeAll(ctx context.Context, o Options) bool {
	write := func(members []*member) bool {
		nodes.Each(members, func(m *member) { m.node.Err = f.writeOne(ctx, m, f.next, f.s.token) })
		return len(failed(f.report.Nodes)) == 0
	}
	behind := f.filter(f.behind)
	alone := min(1, len(behind))
	if !write(behind[:alone]) || !write(behind[alone:]) {
		return false
	}
	// Primaries may have appeared meanwhile, after a failover or as new nodes. Writing takes time
	// too, so look for new primaries up to three times.
	for range 3 {
		more := f.newcomers(ctx)
		if len(more) == 0 {
			break
		}
		for _, m := range more {
			if m.node.Err == nil {
				m.node.Err = together(f.refusals(ctx, m, o))
				m.refused = m.node.Err != nil
			}
		}
		f.compare(more)
		if len(failed(f.report.Nodes)) > 0 || !write(more) {
			return false
		}
	}
	return true
}

// writeOne checks the lease of a node and writes a text there, unless the node has it already.
func (f *fleet) writeOne(ctx context.Context, m *member, next text.Text, name string) error {
	if err := m.keepLease(ctx, f.fits); err != nil {
		return err
	}
	if text.Equal(m.text, next) {
		return nil
	}
	err := m.write(ctx, next, name)
	if err == nil || !m.unknown[name] {
		return err
	}
	// Perhaps only the reply was lost.
	if m.read(context.WithoutCancel(ctx)) == nil && m.text.Name == name {
		delete(m.unknown, name)
		m.tell(protocol.Step{Op: protocol.Wrote, Name: name})
		return nil
	}
	return err
}

// readBack is rule 8: it reads all primaries again, and reports whether all have the new text.
func (f *fleet) readBack(ctx context.Context) bool {
	f.readAgain(ctx)
	for _, m := range f.members {
		if m.node.Err == nil && !f.has(m, f.next) {
			m.node.Err = overwritten(m.Conn)
		}
		m.node.Changed = m.wrote && m.node.Err == nil
	}
	return len(failed(f.report.Nodes)) == 0
}

// has reports whether the node has the parts of the call as they are in t, or the whole text if the
// call changes no part.
func (f *fleet) has(m *member, t text.Text) bool {
	if len(f.mine) == 0 {
		return text.Equal(m.text, t)
	}
	return !slices.ContainsFunc(f.mine, func(namespace string) bool {
		return text.Compare(m.text.Parts[namespace], t.Parts[namespace]) != 0
	})
}

// readAgain reads all nodes, and updates the report. The first failure of a node is the more
// informative one.
func (f *fleet) readAgain(ctx context.Context) (failures map[*member]error) {
	failures = map[*member]error{}
	found := nodes.Results(f.members, func(m *member) error { return m.read(ctx) })
	for i, m := range f.members {
		m.node.State = Different
		if err := found[i]; err != nil {
			failures[m] = err
			before := m.node.Err
			m.node.fail(err)
			m.node.Err, m.node.Running, m.node.Previous = cmp.Or(before, err), text.Library{}, text.Library{}
		}
	}
	f.show(f.members)
	return failures
}

// undo is rule 9: it writes what the nodes had, with a higher number, on every primary, and reports
// whether all of them have it.
func (f *fleet) undo(ctx context.Context) bool {
	if slices.ContainsFunc(f.members, func(m *member) bool { return errors.Is(m.node.Err, ErrOvertaken) }) {
		f.note(ErrOvertaken, "no node was restored, because another deployment has begun", lookAtStatus)
		for _, m := range f.members {
			m.node.Changed = m.wrote && m.node.Err == nil
		}
		f.readAgain(ctx)
		return false
	}
	parts := map[string]text.Part{}
	for _, namespace := range f.mine {
		old := f.joined.Parts[namespace]
		parts[namespace] = text.Part{Number: f.next.Parts[namespace].Number + 1, Value: text.Sorted(old.Value), Replaced: old.Replaced, Log: old.Log}
	}
	f.undone = f.joined.With(parts)
	f.s.tell(protocol.Step{Op: protocol.Undo, Text: f.s.parts(f.undone)})
	f.newcomers(ctx) // a replica that became a primary meanwhile may have the build
	sent := f.filter(func(m *member) bool { return m.wrote })
	found := nodes.Results(f.members, func(m *member) error {
		if m.refused {
			return nil
		}
		if err := m.fence(ctx, f.s.token); err != nil {
			return err
		}
		return f.writeOne(ctx, m, f.undone, f.s.token+protocol.UndoSuffix)
	})
	failures := f.readAgain(ctx)
	all := true
	for i, m := range f.members {
		if m.refused {
			continue
		}
		if failures[m] == nil && f.has(m, f.undone) {
			m.node.Changed, m.node.PutBack = false, slices.Contains(sent, m)
			continue
		}
		all = false
		err := found[i]
		if err == nil {
			err = failures[m]
		}
		if err == nil {
			err = overwritten(m.Conn)
		}
		runs := "runs " + m.node.Running.String()
		if failures[m] != nil {
			runs = "may run any build"
		}
		if m.node.Err == nil || m.node.Err == failures[m] && m.wrote {
			m.node.Err = m.Fail("FUNCTION LOAD", nil, err, lookAtStatus, "could not be restored to %s and now %s (%v)", m.node.Before, runs, err)
		}
	}
	if !all {
		f.note(nil, "not all nodes are known to have what they had", "call Deploy again, or Status to see what the nodes run; the next deployment or watch makes all nodes equal")
	}
	return all
}

func (f *fleet) note(class error, problem, remedy string) {
	f.report.Notes = append(f.report.Notes, &nodes.Error{Class: class, Problem: problem, Remedy: remedy})
}

// release releases the leases, as rule 10 says, and tells the trace how the call ended.
func (f *fleet) release(ctx context.Context, outcome string) {
	notes := nodes.Results(f.members, func(m *member) []*nodes.Error { return m.releaseLease(ctx) })
	f.report.Notes = append(f.report.Notes, slices.Concat(notes...)...)
	f.s.tell(protocol.Step{Op: protocol.End, Outcome: outcome, Nodes: f.addrs()})
}

func (f *fleet) addrs() (addrs []string) {
	for _, m := range f.members {
		addrs = append(addrs, m.node.Addr)
	}
	return addrs
}
