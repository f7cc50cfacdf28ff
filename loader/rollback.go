package loader

import (
	"context"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Rollback restores the build that the last deployment replaced. It deploys that build to every
// primary, as [Loader.Deploy] would. The servers keep that text, so Rollback works from any
// machine. The build that it replaces is kept in turn: a second Rollback undoes the first. It
// removes policies that the restored build does not have; the Report lists them in Changes.
//
// Rollback fails with [ErrNothingKept] if the last deployment replaced nothing, and with
// [ErrSeveralKept] if it replaced different builds on different nodes; [To] selects one of them.
func (l *Loader) Rollback(ctx context.Context, opts ...RollbackOption) (Report, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return Report{}, err
	}
	o.downgrade, o.removePolicies, o.replaceForeign = true, true, true
	s := l.session()
	defer s.close()
	f := s.look(ctx, artifact{})
	if err := f.err(opRollback); err != nil {
		return f.report, err
	}
	want, err := f.kept(o.to)
	if err != nil {
		return f.report, err
	}
	f.want, f.report.Wanted = want, want.Library
	for _, m := range f.members {
		m.show(m.held, want)
	}
	return f.deploy(ctx, opRollback, o)
}

// kept returns the text to restore. If id is not empty, it selects the text.
func (f *fleet) kept(id string) (artifact, error) {
	last := f.last()
	var found []artifact
	var names []string
	add := func(code string) {
		a := artifact{text: code, Library: describe(code)}
		wanted := code != "" && (id == "" || a.BuildID == id || strings.HasPrefix(a.Digest, id))
		if wanted && !slices.Contains(found, a) {
			found = append(found, a)
			names = append(names, a.String())
		}
	}
	for _, m := range f.members {
		switch {
		case id != "":
			add(m.record.replaced)
			add(m.text)
		case last.deployment == 0 || m.record.deployed == last.deployed:
			add(m.record.replaced)
		}
	}
	problem, class, remedy := "", ErrNothingKept, "call Deploy with the build that you want, or Delete"
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		problem = "the last deployment replaced " + strings.Join(names, " and ") + " on different nodes"
		class, remedy = ErrSeveralKept, "choose one with the option To"
	case id != "":
		problem = "no node has or keeps build " + id
	case f.deployments() == 0:
		problem = "the servers keep no record of a deployment"
	default:
		problem = "the last deployment found no library to replace"
	}
	return artifact{}, &Error{Class: class, Problem: "nothing to go back to: " + problem, Remedy: remedy}
}

// Delete deletes the library, and what is kept for [Loader.Rollback], from every primary. Calls
// then return "ERR Function not found". The keys stay until they expire. An unrelated library of
// the same name is left alone, unless [ReplaceForeign] is given.
//
// A failure on one node does not stop the others; calling Delete again does the rest.
func (l *Loader) Delete(ctx context.Context, opts ...DeleteOption) (Report, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	f := s.look(ctx, artifact{})
	for _, m := range f.members {
		switch {
		case m.node.Err != nil:
		case m.node.Role == Replica:
			m.node.Err = readOnly(m.conn, m.primaryOf(ctx), nil)
		case m.node.State == Different && !m.node.Running.ours() && !o.replaceForeign:
			m.node.Err = otherLibrary(m.conn)
		}
	}
	if err := f.err(opDelete); err != nil {
		return f.report, err
	}
	leader := f.leader()
	lease := s.holder(leader.conn)
	if err := lease.take(ctx, o.wait); err != nil {
		leader.node.Err = err
		return f.report, f.err(opDelete)
	}
	each(f.members, func(m *member) {
		had := m.text != ""
		m.node.Err = m.restore(ctx, functions.Name, "")
		if m.node.Err == nil {
			m.node.Err = m.restore(ctx, recordName, "")
		}
		if err := m.lookAgain(ctx, f.want); m.node.Err == nil {
			m.node.Err = err
		}
		m.node.Changed = had && m.node.State == Absent
	})
	f.report.Notes = append(f.report.Notes, lease.release(ctx)...)
	return f.report, f.err(opDelete)
}
