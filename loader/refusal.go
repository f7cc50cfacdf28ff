package loader

import (
	"context"
	"fmt"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// check determines whether every node can load the build, and sets Err on each node that cannot, with
// all reasons. It writes nothing. If probe is true, it also tests the user's permission to load
// libraries and the node's memory.
func (f *fleet) check(ctx context.Context, o Options, probe bool) {
	f.tryChanges()
	nodes.Each(f.members, func(m *member) {
		if m.node.Err != nil {
			return
		}
		reasons := f.refusals(ctx, m, o)
		if m.node.Role != "replica" {
			reasons = append(reasons, f.refusedEffect(m, o))
		}
		if m.node.Err = together(reasons); m.node.Err == nil && probe && f.behind(m) {
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
func (f *fleet) refusals(ctx context.Context, m *member, o Options) (reasons []error) {
	want, running := f.want, m.node.Running
	switch {
	case m.node.Role == "replica":
		return []error{m.ReadOnly(m.PrimaryOf(ctx), nil)}
	case m.node.State == Same:
		return nil
	}
	if len(m.node.Taken) > 0 {
		reasons = append(reasons, nameTaken(m.Conn, m.node.Taken[0].Function, m.node.Taken[0].Library, nil))
	}
	if m.node.State == Different && !running.IsOurs() && !o.ReplaceForeign {
		reasons = append(reasons, m.Foreign())
	}
	if want.IsOurs() && !o.AllowDowngrade && (running.Contract > want.Contract || !f.goal.back && newer(running.Version, want.Version)) {
		reasons = append(reasons, downgrade(m.Conn, running, want.Library))
	}
	if names := f.removes(m); !o.RemovePolicies && m.node.State == Different && len(names) > 0 {
		reasons = append(reasons, removesPolicies(m.Conn, names, want.Library, f.goal.back))
	}
	return reasons
}

// removes returns the names of the node's policies that the build does not have, and for which the call
// needs the option RemovePolicies. It omits policies of other namespaces if another deployment has
// removed them. A rollback needs no option for a policy that the deployment that it undoes added,
// unless that deployment was a rollback, too, which brought back policies from before.
func (f *fleet) removes(m *member) []string {
	mine := f.s.l.config.Namespace
	part := f.joined.Parts[mine]
	undoes := f.goal.back && (len(part.Log) == 0 || !part.Log[0].Back) && text.Compare(m.text.Parts[mine], part) == 0
	var names []string
	for _, c := range differences("policy", policiesOf(text.Body(m.source)), policiesOf(f.want.text)) {
		namespace := functions.Policy{Name: c.Name}.Namespace()
		if c.What == "removed" && !f.explained(namespace) && !(undoes && namespace == mine) {
			names = append(names, c.Name)
		}
	}
	return names
}

// explained reports whether a recorded deployment of another namespace is the reason that a node has
// other policies of that namespace than all nodes should have.
func (f *fleet) explained(namespace string) bool {
	return namespace != f.s.l.config.Namespace && f.joined.Parts[namespace].Number > 0
}

// probe attempts a load that cannot succeed, because the text "?" is not a library. The server
// checks permission, memory and role before it parses the text.
func (m *member) probe(ctx context.Context) error {
	_, err := m.Do(ctx, "FUNCTION", "LOAD", "?")
	if err == nil || nodes.CodeOf(err) == "ERR" {
		return nil
	}
	return loadFailure(ctx, m.Conn, err)
}
