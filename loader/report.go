package loader

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// State compares what a node runs with the requested build.
type State string

const (
	// Same means that the node runs exactly this build.
	Same State = "same"

	// Different means that the node has a library of the same name with different source code.
	Different State = "different"

	// Absent means that the node does not have the library.
	Absent State = "absent"

	// Unreachable means that the node did not reply.
	Unreachable State = "unreachable"

	// Unknown means that the node replies, but its library could not be read; Node.Err says why.
	Unknown State = "unknown"
)

// Taken is the name of one of the ratelimit library's functions that another library on the node
// has registered. The ratelimit library cannot be loaded while the name is taken.
type Taken struct {
	Function string `json:"function"`
	Library  string `json:"library"` // library that registers it
}

// Node reports what was found and done on one node.
type Node struct {
	Addr          string `json:"addr"`           // host:port of the connection
	Role          string `json:"role"`           // "primary" or "replica"; empty if the node did not report it
	Engine        string `json:"engine"`         // "redis", "valkey", or the server's own name; empty if the node did not report it
	ServerVersion string `json:"server_version"` // such as "7.0.15"

	// State and Running describe the node after the call.
	State   State        `json:"state"`
	Running text.Library `json:"running"`

	// Before is what the node ran when this call inspected it. Changes lists how the wanted build
	// differs from Before. Changes is set only by a plan or by a call that deploys, and only for
	// a node that does not run the build.
	Before  text.Library `json:"before"`
	Changes []Change     `json:"changes,omitempty"`

	// Diff is the change to the library's source code, as `diff -u` shows it. It is set only by a plan,
	// for a node that runs a different library.
	Diff string `json:"diff,omitempty"`

	// Previous is the library that the last deployment replaced and [Loader.Rollback] would
	// restore.
	Previous text.Library `json:"previous"`

	// Policies lists the names of the policies on the node when this call inspected it, sorted, or
	// those of the library that the node lost, if it still has the record. Those of namespaces begin
	// with the namespace and a slash. A watch leaves Policies empty.
	Policies []string `json:"policies,omitempty"`

	// Changed reports whether this call changed what the node runs. A node that already ran the
	// build is left alone.
	Changed bool `json:"changed"`

	// PutBack reports whether this call loaded the build and then restored what the node had
	// before, because another node failed.
	PutBack bool `json:"put_back"`

	// Replicas is how many replicas followed the node when the library was loaded, or -1 if the
	// node did not report it. Acked is how many of them confirmed that they have it, or -1 if the
	// user may not call WAIT. Both are 0 if nothing was loaded.
	Replicas int `json:"replicas"`
	Acked    int `json:"acked"`

	// Taken lists the library's function names that other libraries on the node register.
	Taken []Taken `json:"taken,omitempty"`

	// Err says why the node could not be inspected or changed. It is nil, an [*nodes.Error], or, if there
	// are several reasons not to change the node, an error that wraps an [*nodes.Error] for each.
	Err error `json:"-"`
}

// described returns the entry of a report for a server that said a of itself.
func described(addr string, a nodes.About) Node {
	n := Node{Addr: addr, Engine: a.Engine, ServerVersion: a.Version}
	switch {
	case a.Replica:
		n.Role = "replica"
	case a.Engine != "":
		n.Role = "primary"
	}
	return n
}

// fail sets the error of a node that cannot be read.
func (n *Node) fail(err error) {
	n.State, n.Err = Unknown, err
	if errors.Is(err, nodes.ErrUnreachable) {
		n.State = Unreachable
	}
}

// MarshalJSON writes a Node with its error, if any, as text in the field "error".
func (n Node) MarshalJSON() ([]byte, error) {
	type plain Node
	out := struct {
		plain
		Error string `json:"error,omitempty"`
	}{plain: plain(n)}
	if n.Err != nil {
		out.Error = n.Err.Error()
	}
	return json.Marshal(out)
}

// Report is the outcome of [Loader.Deploy], [Loader.Plan], [Loader.Status], [Loader.Rollback] or
// [Loader.Delete]. It is not modified after it is returned.
type Report struct {
	Topology string       `json:"topology"` // "standalone", "cluster" or "ring"
	Wanted   text.Library `json:"wanted"`   // the requested build
	Nodes    []Node       `json:"nodes"`    // every primary, by address

	// Notes are remarks and harmless failures, such as a lease that could not be released and will
	// expire.
	Notes []*nodes.Error `json:"notes,omitempty"`
}

// InStep reports whether every node runs exactly the wanted build. A Report without nodes is not in
// step.
func (r Report) InStep() bool {
	return len(r.Nodes) > 0 && !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.State != Same })
}

// Changed returns the number of nodes that the call changed.
func (r Report) Changed() int {
	n := 0
	for _, node := range r.Nodes {
		if node.Changed {
			n++
		}
	}
	return n
}

func failed(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Err == nil })
}
