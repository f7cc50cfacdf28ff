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

	// Unreachable: the node did not answer.
	Unreachable State = "unreachable"

	// Unknown: the node answers, but not to the question of what it runs; Node.Err says why.
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

// Library describes a library text. Its fields are empty where there is no library, and Version and BuildID also where
// the text does not name them, as one that is not ours.
type Library struct {
	Version string `json:"version"`
	BuildID string `json:"build_id"`
	Digest  string `json:"digest"` // SHA-256 of the text, 64 hexadecimal digits
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

	// Changed tells whether this call loaded the library. A node that ran the build already is left alone.
	Changed bool `json:"changed"`

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

// Report is the outcome of [Loader.Deploy] or [Loader.Status]. It is a plain value that nothing changes later.
type Report struct {
	Topology Topology `json:"topology"`
	Wanted   Library  `json:"wanted"` // the build that was asked about
	Nodes    []Node   `json:"nodes"`  // every primary, by address
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
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Addr, b.Addr) })
}
