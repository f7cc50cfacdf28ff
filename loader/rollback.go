package loader

import (
	"context"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Rollback restores the build that the last deployment replaced. It deploys that build to every
// primary as [Loader.Deploy] would, and fails for the same reasons, except that an older version
// may replace a newer one of the same contract, and that it may remove the policies that the last
// deployment added. The servers keep the library to restore, so
// Rollback works from any machine. They then keep the build that Rollback replaced, so a second
// Rollback undoes the first.
//
// In a namespace, Rollback restores only the policies that the namespace's last deployment
// replaced. Without a namespace, it keeps the policies of all namespaces.
//
// Rollback fails with [ErrNothingKept] if the last deployment replaced nothing, and with
// [ErrSeveralKept] if it replaced different builds on different nodes; [To] selects one of them.
func (l *Loader) Rollback(ctx context.Context, opts ...RollbackOption) (Report, error) {
	s := l.session()
	defer s.close()
	f, o, err := s.lookBack(ctx, opts)
	if err != nil {
		return f.report, err
	}
	return f.deploy(ctx, opRollback, o)
}

// PlanRollback returns what [Loader.Rollback] would change, as [Loader.Plan] does for a deployment.
// Plan.Wanted is the build that Rollback would restore.
func (l *Loader) PlanRollback(ctx context.Context, opts ...RollbackOption) (Plan, error) {
	s := l.session()
	defer s.close()
	f, o, err := s.lookBack(ctx, opts)
	if err != nil {
		return f.planned(), err
	}
	return f.plan(ctx, o)
}

// lookBack inspects every node, and determines what a rollback restores.
func (s *session) lookBack(ctx context.Context, opts []RollbackOption) (*fleet, options, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return &fleet{}, o, err
	}
	o.back = true
	f := s.look(ctx, owned{})
	if err := f.err(opRollback); err != nil {
		return f, o, err
	}
	if s.l.namespace == "" {
		f.own, err = f.kept(o.to)
	} else {
		f.own, err = f.keptOf(s.l.namespace, o.to)
	}
	if err == nil {
		f.compose()
		err = f.err(opRollback)
	}
	if f.last().namespaceRecords()[s.l.namespace].Back {
		f.report.Notes = append(f.report.Notes, &Error{Problem: "the last deployment was a rollback, which this one undoes"})
	}
	return f, o, err
}

// keptOf returns the library to restore for a namespace: the library on the nodes, with the
// policies that the namespace had before its last deployment. id is the argument of the option To,
// and must be "" for a namespace.
func (f *fleet) keptOf(namespace, id string) (owned, error) {
	nothing := func(problem, remedy string) (owned, error) {
		return owned{}, &Error{Class: ErrNothingKept, Problem: "nothing to go back to: " + problem, Remedy: remedy}
	}
	of, found := f.last().namespaceRecords()[namespace]
	m := slices.IndexFunc(f.members, func(m *member) bool { return m.node.Running.ours() })
	switch {
	case id != "":
		return nothing("the namespace "+namespace+" keeps one set of policies, which is in no build of its own", "leave out the option To")
	case !found:
		return nothing("the servers keep no record of a deployment of the namespace "+namespace, "call Deploy with the policies that you want")
	case len(of.Replaced) == 0:
		return nothing("the last deployment of the namespace "+namespace+" replaced no policy, or it is not known which", "call Deploy with the policies that you want")
	case m < 0:
		return nothing("no node has the library", "call Deploy with the policies that you want")
	}
	text, err := functions.Rebuild(f.members[m].text, of.Replaced)
	if err != nil {
		return owned{}, uncomposed(f.members[m].conn, err)
	}
	return owned{artifact{text: text, Library: describe(text)}, of.Replaced}, nil
}

// kept returns the library to restore, without the policies of namespaces. id is the build ID of
// the library, or the beginning of its digest. If id is "", kept returns the library that the last
// deployment replaced.
func (f *fleet) kept(id string) (owned, error) {
	last := f.last()
	var found []owned
	var names []string
	add := func(code string, shown ...Library) {
		a := withoutNamespaces(code)
		shown = append(shown, describe(code), a.Library)
		wanted := code != "" && slices.ContainsFunc(shown, func(l Library) bool { return id == "" || l.BuildID == id || strings.HasPrefix(l.Digest, id) })
		if wanted && !slices.ContainsFunc(found, func(other owned) bool { return other.text == a.text }) {
			found = append(found, a)
			names = append(names, a.String())
		}
	}
	for _, m := range f.members {
		switch {
		case id != "":
			add(m.record.replaced, m.node.Previous)
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
	return owned{}, &Error{Class: class, Problem: "nothing to go back to: " + problem, Remedy: remedy}
}

// Delete deletes the library, and the record for [Loader.Rollback], from every primary. Calls then
// return "ERR Function not found". The keys stay until they expire. An unrelated library of the
// same name is left alone, unless [ReplaceForeign] is given. Delete also deletes the policies of all
// namespaces. No Rollback can restore what it deletes.
//
// With [WithNamespace], Delete removes the policies of the namespace and nothing else. It is then a
// deployment without policies, which Rollback can undo.
//
// If another deployment ends while Delete waits for the lease, Delete fails with [ErrOvertaken].
//
// If one node fails, Delete continues with the others; calling Delete again deletes the rest.
func (l *Loader) Delete(ctx context.Context, opts ...DeleteOption) (Report, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return Report{}, err
	}
	if l.namespace != "" {
		return l.deletePolicies(ctx, o)
	}
	s := l.session()
	defer s.close()
	f := s.look(ctx, owned{})
	check := func() error {
		for _, m := range f.members {
			switch {
			case m.node.Err != nil:
			case m.node.Role == Replica:
				m.node.Err = readOnly(m.conn, m.primaryOf(ctx), nil)
			case m.node.State == Different && !m.node.Running.ours() && !o.replaceForeign:
				m.node.Err = otherLibrary(m.conn)
			}
		}
		return f.err(opDelete)
	}
	if err := check(); err != nil {
		return f.report, err
	}
	leader := f.leader()
	lease := s.holder(leader.conn)
	if err := lease.take(ctx, o.wait); err != nil {
		leader.node.Err = err
		return f.report, f.err(opDelete)
	}
	seen := f.deployments()
	f.reread(ctx) // another deployment may have finished before the lease was taken
	if check() == nil && f.deployments() != seen {
		leader.node.Err = cameBetween(leader.conn)
	}
	if f.err(opDelete) == nil {
		each(f.members, func(m *member) {
			had := m.text != ""
			if m.node.Err = lease.keep(ctx); m.node.Err == nil {
				m.node.Err = m.restore(ctx, functions.Name, "")
			}
			if m.node.Err == nil {
				m.node.Err = m.restore(ctx, recordName, "")
			}
			if err := m.lookAgain(ctx, f.want); m.node.Err == nil {
				m.node.Err = err
			}
			m.node.Changed = had && m.node.State == Absent
		})
	}
	f.report.Notes = append(f.report.Notes, lease.release(ctx)...)
	return f.report, f.err(opDelete)
}

// deletePolicies deploys a build without policies to the Loader's namespace. It loads nothing on
// nodes without the library.
func (l *Loader) deletePolicies(ctx context.Context, o options) (Report, error) {
	empty, err := functions.New()
	if err != nil {
		return Report{}, err
	}
	want, err := l.readBuild(empty)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	f := s.look(ctx, want)
	o.removePolicies = true
	if err := f.err(opDelete); err != nil || !slices.ContainsFunc(f.members, func(m *member) bool { return m.text != "" }) {
		return f.report, err
	}
	return f.deploy(ctx, opDelete, o)
}
