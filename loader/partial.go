package loader

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
)

const (
	opDeploy   = "deploy"
	opStatus   = "status"
	opPlan     = "plan"
	opRollback = protocol.Rollback
	opDelete   = protocol.Delete
)

// PartialError is the error that a call returns if at least one node has an error. It lists every
// node: what was done (Changed, PutBack), what failed (Err), and what it runs now (State, Running).
type PartialError struct {
	Op    string // "deploy", "status", "plan", "rollback" or "delete"
	Build string // the build ID that was requested
	Nodes []Node
	Notes []*nodes.Error

	sent     int  // the number of nodes to which the build was sent and that did not refuse it
	restored bool // whether all nodes are known to have what they had
}

// Error returns the node's message if there is only one node. Otherwise it returns a summary,
// followed by the messages of the failed nodes. A message that several nodes have in common appears
// once, with all their addresses.
func (e *PartialError) Error() string {
	bad := failed(e.Nodes)
	var parts []string
	addrs := map[string][]string{} // addresses by message
	for _, node := range bad {
		what := strings.TrimPrefix(node.Err.Error(), node.Addr+" ")
		addrs[what] = append(addrs[what], node.Addr)
	}
	for _, node := range bad {
		what := strings.TrimPrefix(node.Err.Error(), node.Addr+" ")
		switch same := addrs[what]; {
		case len(same) == 1:
			parts = append(parts, node.Err.Error())
		case same[0] == node.Addr:
			last := len(same) - 1
			parts = append(parts, "each of "+strings.Join(same[:last], ", ")+" and "+same[last]+" "+what)
		}
	}
	for _, note := range e.Notes {
		parts = append(parts, note.Error())
	}
	if len(e.Nodes) == 1 {
		return strings.Join(parts, "; ")
	}
	return e.head(len(bad)) + ": " + strings.Join(parts, "; ")
}

func (e *PartialError) head(bad int) string {
	var changed, back int
	for _, node := range e.Nodes {
		if node.Changed {
			changed++
		}
		if node.PutBack {
			back++
		}
	}
	all, sent := len(e.Nodes), max(e.sent, changed+back)
	switch {
	case e.Op == opStatus:
		return fmt.Sprintf("%d of %d nodes cannot be inspected", bad, all)
	case e.Op == opPlan:
		return fmt.Sprintf("%d of %d nodes cannot take build %s", bad, all, e.Build)
	case e.Op == opDelete && changed == 0:
		return fmt.Sprintf("nothing was deleted, because %d of %d nodes failed", bad, all)
	case e.Op == opDelete:
		return fmt.Sprintf("the library was deleted on %d of %d nodes, and %d failed", changed, all, bad)
	case sent == 0:
		return fmt.Sprintf("nothing was changed, because %d of %d nodes cannot take build %s", bad, all, e.Build)
	case e.restored:
		return fmt.Sprintf("build %s was loaded on %d of %d nodes, which then got back what they had, because %d failed", e.Build, sent, all, bad)
	}
	return fmt.Sprintf("build %s was sent to %d of %d nodes; %d of these got back what they had, and %d failed", e.Build, sent, all, back, bad)
}

// Unwrap returns the errors for the nodes that failed, for errors.Is and errors.As.
func (e *PartialError) Unwrap() []error {
	var all []error
	for _, node := range failed(e.Nodes) {
		all = append(all, node.Err)
	}
	return all
}
