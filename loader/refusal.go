package loader

import (
	"context"
	"slices"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// check determines whether every node can load the build, and sets Err on each node that cannot. It
// writes nothing. If probe is true, it also tests the user's permission to load libraries and the
// node's memory.
func (f *fleet) check(ctx context.Context, o options, probe bool) {
	f.tryChanges()
	// During another deployment, a node may have the new record but not yet the new library. So do
	// not report lost policies now. The caller checks again when it has the lease.
	inDeployment := probe && slices.ContainsFunc(f.members, func(m *member) bool { return len(m.leases) > 0 })
	each(f.members, func(m *member) {
		if m.node.Err == nil {
			m.node.Err = f.refusal(ctx, m, o)
		}
		if m.node.Err == nil {
			m.node.Err = f.refusedEffect(m, o)
		}
		if lost := f.lostPolicies(m); m.node.Err == nil && len(lost) > 0 && !o.removePolicies && !inDeployment {
			m.node.Err = removesPolicies(m.conn, "lost the library, which had", lost, f.want.Library, o)
		}
		if m.node.Err == nil && probe && m.node.State != Same {
			m.node.Err = m.probe(ctx)
		}
	})
}

func (f *fleet) refusal(ctx context.Context, m *member, o options) error {
	want, running := f.want, m.node.Running
	switch {
	case m.node.Role == Replica:
		return readOnly(m.conn, m.primaryOf(ctx), nil)
	case m.node.State == Same:
		return nil
	case len(m.node.Taken) > 0:
		return nameTaken(m.conn, m.node.Taken[0].Function, m.node.Taken[0].Library, nil)
	case m.node.State == Different && !running.ours() && !o.replaceForeign:
		return otherLibrary(m.conn)
	case want.ours() && !o.downgrade && (running.Contract > want.Contract || !o.back && newer(running.Version, want.Version)):
		return downgrade(m.conn, running, want.Library)
	case m.node.State == Different && !o.removePolicies:
		if names := f.removes(m); len(names) > 0 {
			return removesPolicies(m.conn, "runs", names, want.Library, o)
		}
	}
	return nil
}

// removes returns the names of the node's policies that the build does not have. It omits policies
// of other namespaces if another deployment has removed them.
func (f *fleet) removes(m *member) []string {
	var names []string
	for _, c := range differences("policy", policiesOf(m.text), policiesOf(f.want.text)) {
		if c.What == "removed" {
			names = append(names, c.Name)
		}
	}
	if len(names) > 0 && f.explained(m) {
		names = slices.DeleteFunc(names, func(name string) bool { return functions.Policy{Name: name}.Namespace() != f.s.l.namespace })
	}
	return names
}

// probe attempts a load that cannot succeed, because the text "?" is not a library. The server
// checks permission, memory and role before it parses the text.
func (m *member) probe(ctx context.Context) error {
	_, err := m.do(ctx, "FUNCTION", "LOAD", "?")
	if err == nil || codeOf(err) == "ERR" {
		return nil
	}
	return m.loadFailure(ctx, err)
}
