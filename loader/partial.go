package loader

import (
	"fmt"
	"strings"
)

const (
	opDeploy = "deploy"
	opStatus = "status"
)

// PartialError is the error of [Loader.Deploy] and [Loader.Status] when something is wrong with at least one node. It
// lists every node: what was done (Changed), what failed (Err), and what each runs now (State, Running).
type PartialError struct {
	Op    string // "deploy" or "status"
	Build string // the build id that was asked about
	Nodes []Node
}

// newPartialError is nil, as an error, where no node has an error.
func newPartialError(op string, report Report) error {
	if len(failed(report.Nodes)) == 0 {
		return nil
	}
	return &PartialError{Op: op, Build: report.Wanted.BuildID, Nodes: report.Nodes}
}

// Error is the node's own sentence where there is one node, else one that says how far things got, followed by those of
// the nodes that failed.
func (e *PartialError) Error() string {
	bad := failed(e.Nodes)
	if len(e.Nodes) == 1 {
		return bad[0].Err.Error()
	}
	says := make([]string, len(bad))
	for i, node := range bad {
		says[i] = node.Err.Error()
	}
	var changed, same int
	for _, node := range e.Nodes {
		if node.Changed {
			changed++
		}
		if node.State == Same {
			same++
		}
	}
	var head string
	switch {
	case e.Op == opStatus:
		head = fmt.Sprintf("%d of %d nodes cannot be looked at", len(bad), len(e.Nodes))
	case changed == 0:
		head = fmt.Sprintf("nothing was changed, as %d of %d nodes cannot take build %s", len(bad), len(e.Nodes), e.Build)
	default:
		head = fmt.Sprintf("build %s runs on %d of %d nodes, and the others failed", e.Build, same, len(e.Nodes))
	}
	return head + ": " + strings.Join(says, "; ")
}

// Unwrap gives the errors of the nodes that failed, so that errors.Is and errors.As look into each.
func (e *PartialError) Unwrap() []error {
	var all []error
	for _, node := range failed(e.Nodes) {
		all = append(all, node.Err)
	}
	return all
}
