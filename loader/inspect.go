package loader

import (
	"context"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// described returns what a server says of itself.
func described(addr string, a nodes.About) Node {
	n := Node{Addr: addr, Role: "primary", Engine: a.Engine, ServerVersion: a.Version}
	if a.Replica {
		n.Role = "replica"
	}
	return n
}

// inspect reads everything about the library on one node. It writes nothing.
func (m *member) inspect(ctx context.Context) {
	a, err := m.Identify(ctx)
	if err != nil {
		*m.node = failedNode(nodes.Failed{Addr: m.Address(), Err: err})
		return
	}
	*m.node = described(m.Address(), a)
	if err = m.CheckEngine(ctx, a); err == nil {
		err = m.read(ctx)
	}
	if err != nil {
		m.node.State, m.node.Err = stateAfter(err), err
		return
	}
	body := text.Body(m.source)
	if m.node.Before = text.Describe(body); m.s.lists == nil {
		m.node.Policies = namesIn(body)
	}
}

// taken returns the functions in names that other libraries on the node have registered.
func taken(ctx context.Context, c *nodes.Conn, names []string) ([]Taken, error) {
	libraries, err := c.Libraries(ctx)
	var found []Taken
	for _, l := range libraries {
		for _, function := range l.Functions {
			if l.Name != functions.Name && slices.ContainsFunc(names, func(ours string) bool { return strings.EqualFold(ours, function) }) {
				found = append(found, Taken{Function: strings.ToLower(function), Library: l.Name})
			}
		}
	}
	slices.SortFunc(found, func(a, b Taken) int { return strings.Compare(a.Function, b.Function) })
	return found, err
}
