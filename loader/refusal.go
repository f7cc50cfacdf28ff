package loader

import (
	"context"
	"fmt"
	"slices"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// check determines whether every node can load the build, and sets Err on each node that cannot, with
// all reasons. It writes nothing. If probe is true, it also tests the user's permission to load
// libraries and the node's memory.
func (f *fleet) check(ctx context.Context, o options, probe bool) {
	f.tryChanges()
	// During another deployment, a node may have the new record but not yet the new library. So do
	// not report lost policies now. The caller checks again when it has the lease.
	inDeployment := probe && slices.ContainsFunc(f.members, func(m *member) bool { return len(m.leases) > 0 })
	each(f.members, func(m *member) {
		if m.node.Err != nil {
			return
		}
		reasons := f.refusals(ctx, m, o)
		if m.node.Role != Replica {
			reasons = append(reasons, f.refusedEffect(m, o))
			if lost := f.missed(m, f.lostPolicies(m), o); len(lost) > 0 && !inDeployment {
				reasons = append(reasons, removesPolicies(m.conn, "lost the library, which had", lost, f.want.Library, o))
			}
		}
		if m.node.Err = together(reasons); m.node.Err == nil && probe && m.node.State != Same {
			m.node.Err = m.probe(ctx)
		}
	})
}

// together returns one error for all reasons that are not nil, or nil if there are none.
func together(reasons []error) error {
	var all error
	for _, reason := range reasons {
		switch {
		case reason == nil:
		case all == nil:
			all = reason
		default:
			all = fmt.Errorf("%w; and %w", all, reason)
		}
	}
	return all
}

// refusals returns the reasons why the build must not replace what the node runs.
func (f *fleet) refusals(ctx context.Context, m *member, o options) (reasons []error) {
	want, running := f.want, m.node.Running
	switch {
	case m.node.Role == Replica:
		return []error{readOnly(m.conn, m.primaryOf(ctx), nil)}
	case m.node.State == Same:
		return nil
	}
	if len(m.node.Taken) > 0 {
		reasons = append(reasons, nameTaken(m.conn, m.node.Taken[0].Function, m.node.Taken[0].Library, nil))
	}
	if m.node.State == Different && !running.ours() && !o.replaceForeign {
		reasons = append(reasons, otherLibrary(m.conn))
	}
	if want.ours() && !o.downgrade && (running.Contract > want.Contract || !o.back && newer(running.Version, want.Version)) {
		reasons = append(reasons, downgrade(m.conn, running, want.Library))
	}
	if names := f.missed(m, f.removes(m), o); m.node.State == Different && len(names) > 0 {
		reasons = append(reasons, removesPolicies(m.conn, "runs", names, want.Library, o))
	}
	return reasons
}

// missed returns those of names, policies that the node would lose, for which the call needs the
// option RemovePolicies. A rollback needs none for a policy that the deployment that it undoes
// added, unless that deployment was a rollback, too, which brought back policies from before.
func (f *fleet) missed(m *member, names []string, o options) []string {
	if o.removePolicies {
		return nil
	}
	namespace := f.s.l.namespace
	undoes := o.back && o.to == "" && !f.last().namespaceRecords()[namespace].Back && m.record.deployment > 0 && (m.text == "" || m.record.deployed == m.node.Running.Digest)
	if namespace == "" {
		undoes = undoes && withoutNamespaces(m.record.replaced).text == f.own.text
	} else {
		undoes = undoes && m.record.deploymentOf(namespace) == f.last().deploymentOf(namespace)
	}
	if !undoes {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return functions.Policy{Name: name}.Namespace() == namespace })
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
