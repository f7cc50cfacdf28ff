package loader

import (
	"encoding/json"
	"slices"
	"strings"
)

// State is how what a node runs compares with the build that was asked about.
type State string

const (
	// Same: the node runs exactly this build.
	Same State = "same"

	// Different: the node runs another text under the library's name.
	Different State = "different"

	// Absent: the node does not hold the library.
	Absent State = "absent"

	// Unreachable: the node did not reply.
	Unreachable State = "unreachable"

	// Unknown: the node replies, but does not tell what it runs; Node.Err says why.
	Unknown State = "unknown"
)

// Role is what a node is to its data.
type Role string

const (
	// Primary takes writes, and so libraries.
	Primary Role = "primary"

	// Replica receives both from its primary.
	Replica Role = "replica"
)

// Taken is a name of ours that another library registers: with it there, ours cannot be loaded.
type Taken struct {
	Function string `json:"function"`
	Library  string `json:"library"` // which registers it
}

// Node is what was found, and done, on one node.
type Node struct {
	Addr          string `json:"addr"`           // host:port, as it was connected to
	Role          Role   `json:"role"`           // empty if it did not say
	Engine        string `json:"engine"`         // "redis", "valkey", or as the server calls itself; empty if it did not say
	ServerVersion string `json:"server_version"` // such as "7.0.15"

	// State and Running are as after the call.
	State   State   `json:"state"`
	Running Library `json:"running"`

	// Before is what the node ran when this call looked at it, and Changes how the wanted build differs from that, where it
	// was to be loaded; of a Plan, where it would be.
	Before  Library  `json:"before"`
	Changes []Change `json:"changes,omitempty"`

	// Previous is what the last deployment replaced, and [Loader.Rollback] puts back.
	Previous Library `json:"previous"`

	// Changed tells whether the node runs something else than before this call. One that ran the build already is left alone.
	Changed bool `json:"changed"`

	// PutBack tells that this call loaded the build and then, since another node failed, what the node had before.
	PutBack bool `json:"put_back"`

	// Replicas is how many replicas followed the node when the library was loaded, -1 if it did not say, and Acked how
	// many of them confirmed that they have it, -1 if the user may not ask (WAIT). Both are 0 where nothing was loaded.
	Replicas int `json:"replicas"`
	Acked    int `json:"acked"`

	// Taken lists our function names that other libraries of the node register.
	Taken []Taken `json:"taken,omitempty"`

	// Err is why the node could not be looked at or deployed to, a [*NodeError], or nil.
	Err error `json:"-"`
}

// MarshalJSON writes a Node with its error as text, in the field "error", if there is one.
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

// Report is the outcome of [Loader.Deploy], [Loader.Status], [Loader.Rollback] or [Loader.Delete]. It is a plain value that nothing changes later.
type Report struct {
	Topology Topology `json:"topology"`
	Wanted   Library  `json:"wanted"` // the build that was asked about
	Nodes    []Node   `json:"nodes"`  // every primary, by address

	// Notes are sentences about what did not go as it should and did no harm, such as a lease that lapses by itself.
	Notes []string `json:"notes,omitempty"`
}

// InStep tells whether every node runs exactly the wanted build. A Report without nodes is not in step.
func (r Report) InStep() bool {
	return len(r.Nodes) > 0 && !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.State != Same })
}

// Changed counts the nodes onto which the library was loaded.
func (r Report) Changed() int {
	n := 0
	for _, node := range r.Nodes {
		if node.Changed {
			n++
		}
	}
	return n
}

// failed lists the nodes that have an error.
func failed(nodes []Node) []Node {
	var list []Node
	for _, n := range nodes {
		if n.Err != nil {
			list = append(list, n)
		}
	}
	return list
}

func sortNodes(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int { return compareAddrs(a.Addr, b.Addr) })
}

// compareAddrs orders by host and then by port as a number.
func compareAddrs(a, b string) int {
	if d := len(a) - len(b); d != 0 && strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return d
	}
	return strings.Compare(a, b)
}
