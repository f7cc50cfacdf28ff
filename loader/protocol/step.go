// Package protocol has the steps of deployments, and checks that a trace of them follows the rules
// in ../PROTOCOL.md. Tests use it; see loader.Config.
package protocol

import (
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Op is the kind of a step.
type Op string

const (
	Lease    Op = "lease"    // the call took the lease of the node
	TakeOver Op = "takeover" // the call deleted the expired lease of the call Name
	Checked  Op = "checked"  // the call still has the lease of the node
	Read     Op = "read"     // the call read the node: Text, Highest
	Number   Op = "number"   // the call made its text: Number, ClockMS, What, Mine, Nodes, Text
	Write    Op = "write"    // the call is about to write Text with Name
	Wrote    Op = "wrote"    // the node has taken the write with Name
	Refused  Op = "refused"  // the node has refused the write with Name
	Fence    Op = "fence"    // the node has a fence against Name, or has its write already
	Undo     Op = "undo"     // the call begins to undo: Text
	Release  Op = "release"  // the call is about to delete its lease
	End      Op = "end"      // the call ended: Outcome, Nodes
)

// Outcomes of a call.
const (
	Succeeded = "succeeded" // all nodes have the new text
	Undone    = "undone"    // all nodes have the old value
	Unknown   = "unknown"   // anything else, after a write
	Nothing   = "nothing"   // the call wrote nothing
)

// What a call wants, in the step Number. Another call deploys a build, or is a watch.
const (
	Rollback = "rollback"
	Delete   = "delete"
)

// UndoSuffix makes the name of an undo's writes from the token of its call.
const UndoSuffix = "_undo"

// Step is a step of a call.
type Step struct {
	Call    string          `json:"call"` // token of the call
	Op      Op              `json:"op"`
	Addr    string          `json:"addr,omitempty"`
	Name    string          `json:"name,omitempty"`
	Text    map[string]Part `json:"text,omitempty"`
	Highest int64           `json:"highest,omitempty"`
	Number  int64           `json:"number,omitempty"` // 0 for a watch
	ClockMS int64           `json:"clock,omitempty"`
	What    string          `json:"what,omitempty"`  // Rollback, Delete, or anything else
	Mine    []string        `json:"mine,omitempty"`  // namespaces whose parts the call changes
	Nodes   []string        `json:"nodes,omitempty"` // the addresses of all primaries, or of those that a watch reaches
	Outcome string          `json:"outcome,omitempty"`
}

// Part identifies a part of a text. Value and Replaced are digests of sorted values, or "".
type Part struct {
	Number   int64  `json:"number"`
	Value    string `json:"value,omitempty"`
	Replaced string `json:"replaced,omitempty"`
	ID       string `json:"id,omitempty"` // equal for equal parts
}

// Of returns the parts of a text.
func Of(t text.Text) map[string]Part {
	parts := map[string]Part{}
	for namespace, p := range t.Parts {
		parts[namespace] = Part{p.Number, text.Digest(text.Sorted(p.Value)), text.Digest(text.Sorted(p.Replaced)), functions.Digest(p.ID())[:16]}
	}
	return parts
}
