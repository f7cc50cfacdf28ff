// Package protocol has the steps of deployments, and checks that a trace of them follows the rules
// in ../PROTOCOL.md. Tests use it; see loader.WithSteps.
package protocol

import "github.com/ratelimit-functions/ratelimit/loader/text"

// Op is the kind of a step.
type Op string

const (
	Lease   Op = "lease"   // the call took the lease of the node
	Check   Op = "check"   // the call still has the lease
	Read    Op = "read"    // the call read the node: Text, Highest
	Number  Op = "number"  // the call chose its number: Number, ClockMS, Text (the new text), Mine, Role
	Write   Op = "write"   // the call is about to write Text with Name
	Wrote   Op = "wrote"   // the node confirmed the write with Name
	Fence   Op = "fence"   // the node has a fence against Name, or has its write already
	Undo    Op = "undo"    // the call begins to undo: Text
	Release Op = "release" // the call deleted its lease
	End     Op = "end"     // the call ended: Outcome
)

// Outcomes of a call.
const (
	Succeeded = "succeeded" // all nodes have the new text
	Undone    = "undone"    // all nodes have the old value
	Unknown   = "unknown"   // anything else, after the first write
	Nothing   = "nothing"   // the call wrote nothing
)

// Step is a step of a call.
type Step struct {
	Call    string               `json:"call"` // token of the call
	Op      Op                   `json:"op"`
	Addr    string               `json:"addr,omitempty"`
	Name    string               `json:"name,omitempty"`
	Text    map[string]text.Part `json:"text,omitempty"`
	Highest int64                `json:"highest,omitempty"`
	Number  int64                `json:"number,omitempty"`
	ClockMS int64                `json:"clock,omitempty"`
	Mine    []string             `json:"mine,omitempty"` // namespaces whose parts the call changes
	Watch   bool                 `json:"watch,omitempty"`
	Nodes   []string             `json:"nodes,omitempty"` // of End: the addresses of all primaries
	Outcome string               `json:"outcome,omitempty"`
}
