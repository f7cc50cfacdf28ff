// Package histories checks what real servers reply while many clients call them and faults happen.
//
// A run makes many short episodes. In an episode, a few actors call the library on keys of their own
// through the Go client. The run records every call with its outcome, and with the positions of the
// server's clock between which the call ran. It also records what happened to the servers: restarts,
// failovers, deployments. When an episode ends, package porcupine searches for an order of its calls
// in which the reference model (lua_test/model) gives every reply that was received. If there is no
// such order, a reply was impossible.
//
// The tests own the servers' clock (package clock). It stands still between the moves of a run, so
// the time at which a call ran is one of a few known values, whatever the load of the machine. There is one
// exception: on a busy machine, a server may run a call while the clock moves, if the client no longer waits
// for it. Before Redis 7.2, such a call sees two times, and its stored reply may last longer than the model
// says.
package histories

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// open is the stamp of the end of an operation that may still take effect.
const open = int64(math.MaxInt64)

// Fate says what is known about a call after it returned.
type Fate int

// Fates of calls. Calls that were not executed are not part of a history: if one of them took
// effect, the replies of later calls are impossible.
const (
	Replied  Fate = iota // the call was executed once, and Reply is its reply
	Unknown              // the call was executed once or not at all, perhaps after it returned
	Repeated             // an additional attempt of a call that the client repeats if a reply is lost: executed once or not at all
)

// Op is a call and its outcome.
type Op struct {
	Actor int
	Call  model.Call // policies have only their names: the build that runs on the server has their limits
	Fate  Fate
	Reply string // as text of the model's form

	Returned              int64 // stamp of the time when the client returned
	From, To              int64 // stamps of the begin and the end; open if the call may take effect later
	FromClock, UntilClock int   // positions of the clock between which the call ran
}

func (o *Op) String() string {
	outcome := o.Reply
	switch o.Fate {
	case Unknown:
		outcome = "outcome unknown"
	case Repeated:
		outcome = "perhaps another attempt"
	}
	return fmt.Sprintf("actor %d, clock %d to %d: %s -> %s", o.Actor, o.FromClock, o.UntilClock, strings.Join(o.Call.Words()[1:], " "), outcome)
}

// What is a kind of event.
type What string

// Kinds of events.
const (
	Lost       What = "all keys lost"                 // a server without persistence restarted
	Saved      What = "snapshot"                      // the server saved its keys
	Restored   What = "restarted"                     // the server restarted with the keys of its last snapshot
	Deployed   What = "deployment"                    // another build of the library was loaded
	TakenOver  What = "failover"                      // the primary was killed and a replica took over; it may lack the last changes
	Replaced   What = "failover of a stopped primary" // like TakenOver, but the former primary may still decide calls
	HandedOver What = "planned failover"              // a replica took over that had all changes
	Demoted    What = "old primary demoted"           // the former primary no longer accepts writes
)

// Event is something that happened to a server at one moment between From and To.
type Event struct {
	What    What
	Shard   int    // the server, or the shard of the cluster
	Version int    // of the build, for Deployed and Restored
	Cause   string // the name of the fault
	From    int64
	to      atomic.Int64 // 0 until the event has ended
	clock   atomic.Int64 // the position of the run's clock at the end
}

// unplanned reports whether the event is a failover that may lose changes.
func (e *Event) unplanned() bool { return e.What == TakenOver || e.What == Replaced }

// needs reports whether it matters if a call ran before or after the event.
func (e *Event) needs(call model.Call) bool {
	switch e.What {
	case Lost, Restored, Demoted:
		return false // what ran before is lost
	case Deployed:
		return slices.ContainsFunc(call.Limits, func(p model.Policy) bool { return p.Name != "" })
	}
	return true
}

// end returns the stamp of the event's end, or open if it has not ended.
func (e *Event) end() int64 {
	if to := e.to.Load(); to > 0 {
		return to
	}
	return open
}

func (e *Event) String() string {
	text := "event: " + string(e.What)
	if e.What == Deployed {
		text += fmt.Sprintf(" of version %d", e.Version)
	}
	return text
}

// History is what is known about the keys of one episode. The keys were empty at its start.
type History struct {
	Ops     []*Op
	Events  []*Event
	first   int     // the position of the run's clock at the begin
	Clock   []int64 // the times to which the clock was set, in µs, from the begin of the episode on
	Version int     // of the build at the begin
	// Stale reports whether a former primary still accepted calls at the begin.
	Stale bool
	// Builds holds the policies of each version, by name.
	Builds []map[string]model.Policy
}

// String lists the operations and the events in the order of their begin.
func (h *History) String() string {
	type line struct {
		from int64
		text string
	}
	var lines []line
	for _, op := range h.Ops {
		lines = append(lines, line{op.From, fmt.Sprintf("%6d to %-6s %s", op.From-h.begin(), stamp(op.To, h.begin()), op)})
	}
	for _, e := range h.Events {
		lines = append(lines, line{e.From, fmt.Sprintf("%6d to %-6s %s", e.From-h.begin(), stamp(e.end(), h.begin()), e)})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "build version %d; the clock, in µs after %d:", h.Version, h.Clock[0])
	for i, us := range h.Clock {
		fmt.Fprintf(&b, " %d:%d", i, us-h.Clock[0])
	}
	b.WriteString("\n")
	for len(lines) > 0 {
		first := 0
		for i := range lines {
			if lines[i].from < lines[first].from {
				first = i
			}
		}
		b.WriteString(lines[first].text + "\n")
		lines = append(lines[:first], lines[first+1:]...)
	}
	return b.String()
}

func (h *History) begin() int64 {
	begin := open
	for _, op := range h.Ops {
		begin = min(begin, op.From)
	}
	return begin
}

func stamp(at, begin int64) string {
	if at == open {
		return "open"
	}
	return fmt.Sprint(at - begin)
}
