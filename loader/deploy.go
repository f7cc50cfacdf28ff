package loader

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
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
// Deploy then takes a lease, so that two deployments cannot interleave ([ErrLeased]). It loads the
// build on one primary and then on the others, with FUNCTION LOAD REPLACE. It skips primaries that
// already run the build. It reads the library back from each node, compares it with the build, and
// waits for replicas. Loading is atomic on each node, and calls are served throughout: first by the
// old library, then by the new one. Each node keeps the replaced library for [Loader.Rollback]. If
// build was the last one deployed and some nodes lost it, Deploy repairs those nodes, and a
// rollback still goes back to the same build as before.
//
// If one primary fails, or ctx is done, Deploy restores the old library on the primaries that it
// has changed. The Report is complete even if there is an error. The error is then a
// [*PartialError] that says for each node what was done, what failed and what it runs now; to
// continue, call Deploy again. The state of a node that died is unknown until it is back, and the
// state of a replica that takes over from it is unknown, too.
func (l *Loader) Deploy(ctx context.Context, build Build, opts ...DeployOption) (Report, error) {
	want, err := l.readBuild(build)
	if err != nil {
		return Report{}, err
	}
	o, err := optionsOf(opts)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	return s.look(ctx, want).deploy(ctx, opDeploy, o)
}

// deploy makes every node run f.want.
func (f *fleet) deploy(ctx context.Context, op string, o options) (Report, error) {
	f.check(ctx, o, true)
	if err := f.err(op); err != nil || f.report.InStep() && len(f.filter(f.lacksRecord)) == 0 {
		return f.report, err
	}
	leader := f.leader()
	lease := f.s.holder(leader.conn)
	if f.s.l.namespace != "" && !o.waits {
		o.wait = 4 * lease.ttl
	}
	if err := lease.take(ctx, o.wait); err != nil {
		leader.node.Err = err
		return f.report, f.err(op)
	}
	seen := f.deploymentsOf(f.s.l.namespace)
	f.reread(ctx) // another deployment may have finished before the lease was taken
	if f.check(ctx, o, false); op == opRollback && f.deploymentsOf(f.s.l.namespace) != seen && !f.report.InStep() && f.err(op) == nil {
		leader.node.Err = cameBetween(leader.conn)
	}
	if f.err(op) == nil {
		f.loadAll(ctx, lease, o)
	}
	f.report.Notes = append(f.report.Notes, lease.release(ctx)...)
	return f.report, f.err(op)
}

// loadAll loads the build on every node, and restores all nodes if one fails.
func (f *fleet) loadAll(ctx context.Context, lease *holder, o options) {
	recordOf := f.records(lease.lease.fromMS, o.back)
	load := func(members []*member) {
		f.compare(members)
		each(members, func(m *member) {
			if m.node.Err = lease.keep(ctx); m.node.Err == nil {
				m.replace(ctx, f.want, recordOf(m))
			}
		})
	}
	behind := f.filter(func(m *member) bool { return m.node.State != Same || f.lacksRecord(m) })
	// Load one node first, so that an error in the library affects only that node.
	alone := min(1, len(behind))
	load(behind[:alone])
	if f.err(opDeploy) == nil {
		load(behind[alone:])
	}
	// Primaries may have appeared meanwhile, after a failover or as new nodes. Loading the build on
	// them takes time too, so look for new primaries up to three times.
	for range 3 {
		if f.err(opDeploy) != nil {
			break
		}
		more := f.newcomers(ctx)
		if len(more) == 0 {
			break
		}
		// No probe is needed here, unlike in check, because the load follows immediately.
		for _, m := range more {
			if m.node.Err == nil {
				m.node.Err = together(f.refusals(ctx, m, o))
			}
		}
		if f.err(opDeploy) == nil {
			load(slices.DeleteFunc(more, func(m *member) bool { return m.node.State == Same }))
		}
	}
	if f.err(opDeploy) != nil {
		f.undo(ctx, lease)
	}
}

// newcomers rediscovers the primaries of a cluster, adds the new ones to the fleet, and returns
// them.
func (f *fleet) newcomers(ctx context.Context) []*member {
	if f.report.Topology != Cluster {
		return nil
	}
	_, shards, failed := f.s.find(ctx)
	if len(failed) > 0 {
		return nil
	}
	known := func(addr string) bool {
		return slices.ContainsFunc(f.members, func(m *member) bool { return m.node.Addr == addr })
	}
	shards = slices.DeleteFunc(shards, func(at shard) bool { return known(at.addr) })
	more := f.s.replaceReplicas(ctx, f.want, f.s.inspectAll(ctx, f.want, shards))
	more = slices.DeleteFunc(more, func(m *member) bool { return known(m.node.Addr) })
	if len(more) > 0 {
		f.set(append(f.members, more...))
	}
	return more
}

// replace loads a record, kept, and then a build, want, on one node, and reads both back. If kept
// is the zero record, replace loads only the build.
func (m *member) replace(ctx context.Context, want artifact, kept record) {
	m.wrote = true
	if kept.deployment > 0 {
		if _, err := m.do(ctx, "FUNCTION", "LOAD", "REPLACE", kept.text()); err != nil {
			m.node.Err = m.loadFailure(ctx, err)
			m.lookAgain(ctx, want)
			return
		}
	}
	err := m.loadAndWait(ctx, want.text)
	// Read the library back after an error, too. If only the reply was lost, the node runs the
	// build. Otherwise the report must say what the node runs.
	if readErr := m.lookAgain(ctx, want); readErr != nil {
		m.node.Err = readErr
		if err != nil {
			m.node.Err = err
		}
		return
	}
	var refused *Error
	switch {
	case m.node.State == Same && (err == nil || !errors.As(err, &refused) || refused.Code == ""):
		m.node.Changed = true
	case err == nil:
		m.node.Err = overwritten(m.conn)
	default:
		m.node.Err = err
	}
}

// loadAndWait loads a library and waits for the replicas, if there are any.
func (m *member) loadAndWait(ctx context.Context, code string) error {
	m.node.Replicas, m.node.Acked = m.replicas(ctx), 0
	var err error
	if m.node.Replicas > 0 {
		var wait error
		m.node.Acked, err, wait = m.doAndWait(ctx, m.node.Replicas, "FUNCTION", "LOAD", "REPLACE", code)
		switch {
		case wait == nil:
		case replyText(wait) != "": // the user has no permission for WAIT
			m.node.Acked = -1
		case err == nil:
			err = wait
		}
	} else {
		_, err = m.do(ctx, "FUNCTION", "LOAD", "REPLACE", code)
	}
	if err != nil {
		return m.loadFailure(ctx, err)
	}
	return nil
}

// lookAgain reads the node's library again and updates the report. m.held, the library before the
// deployment, stays as it was.
func (m *member) lookAgain(ctx context.Context, want artifact) error {
	found, err := m.readHeld(context.WithoutCancel(ctx))
	if err != nil {
		m.node.State, m.node.Running, m.node.Previous = stateAfter(err), Library{}, Library{}
		return err
	}
	m.show(found, want)
	return nil
}

// loadFailure explains why a load was refused. If necessary, it asks the server for details.
func (c *conn) loadFailure(ctx context.Context, err error) error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return err
	case codeOf(err) == "READONLY":
		return readOnly(c, c.primaryOf(ctx), err)
	case isReply(err, "ERR Function ") && strings.HasSuffix(replyText(err), " already exists"):
		function := strings.TrimSuffix(strings.TrimPrefix(replyText(err), "ERR Function "), " already exists")
		return nameTaken(c, function, c.holderOf(ctx, function), err)
	case isReply(err, "ERR ") && strings.Contains(replyText(err), "FUNCTION LOAD timeout"):
		return c.fail("FUNCTION LOAD", ErrRefused, err, "", "did not load the library within the half second that a server allows (%s); deploy fewer policies, or try when the server is less busy", replyText(err))
	case isReply(err, "ERR Error "):
		return c.fail("FUNCTION LOAD", ErrRefused, err, "check that the text is complete", "refuses the library (%s)", replyText(err))
	}
	return failure(c, "FUNCTION LOAD", err)
}

func (c *conn) holderOf(ctx context.Context, function string) string {
	if found, err := c.taken(ctx, []string{function}); err == nil && len(found) > 0 {
		return found[0].Library
	}
	return ""
}

// undo restores the nodes that were written to, even if ctx is done.
func (f *fleet) undo(ctx context.Context, lease *holder) {
	ctx = context.WithoutCancel(ctx)
	if err := lease.keep(ctx); errors.Is(err, ErrLeased) {
		note := &Error{Class: ErrOvertaken, Problem: "no node was restored, because another deployment has begun", Remedy: lookAtStatus, Err: err}
		f.report.Notes = append(f.report.Notes, note)
		return
	}
	// A replica that became a primary meanwhile may have received the build from its former
	// primary.
	before, known := f.common("")
	for _, m := range f.newcomers(ctx) {
		if m.node.Err == nil && m.node.State == Same && known {
			m.wrote, m.held = true, before
		}
	}
	each(f.filter(func(m *member) bool { return m.wrote }), func(m *member) { m.revert(ctx, f.want) })
}

func (m *member) revert(ctx context.Context, want artifact) {
	err := m.restore(ctx, functions.Name, m.text)
	if err == nil {
		err = m.restore(ctx, recordName, m.recordText)
	}
	readErr := m.lookAgain(ctx, want)
	switch {
	case readErr == nil && m.node.Running.Digest == describe(m.text).Digest:
		m.node.PutBack, m.node.Changed = m.node.Changed, false
		return
	case err == nil:
		err = readErr
	}
	if m.node.Err != nil {
		return // the first failure is more informative
	}
	if err == nil {
		err = overwritten(m.conn)
	}
	runs := "runs " + m.node.Running.String()
	if readErr != nil {
		runs = "may run any build"
	}
	m.node.Err = m.fail("FUNCTION LOAD", nil, err, lookAtStatus, "could not be restored to %s and now %s (%v)", describe(m.text), runs, err)
}

// restore loads code as the library called name, or deletes that library if code is empty.
func (c *conn) restore(ctx context.Context, name, code string) error {
	if code == "" {
		_, err := c.do(ctx, "FUNCTION", "DELETE", name)
		if err != nil && !isReply(err, "ERR Library not found") {
			return failure(c, "FUNCTION DELETE", err)
		}
		return nil
	}
	if _, err := c.do(ctx, "FUNCTION", "LOAD", "REPLACE", code); err != nil {
		return c.loadFailure(ctx, err)
	}
	return nil
}
