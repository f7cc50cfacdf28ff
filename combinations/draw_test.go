package combinations

import (
	"math/bits"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// plan is a scenario: the options of the clients, and steps.
type plan struct {
	Set             []string // the features that meet
	Batches, Memory bool
	Fallback        string // "", "open", "closed" or "local"
	Prefix          string
	Layers          []string // the user's layers around the clients, from the inner to the outer one
	Order           [7]int   // mixes the options of the clients
	Steps           []step
}

// step is an exported call, with what happens before and during it.
type step struct {
	verb  string
	marks []string // the features of the step

	client   int
	keys     []string
	texts    []string // limits
	costs    []int64
	upTo     bool
	force    bool
	each     bool
	floor    *int64 // FLOOR, or the percentage after BORROW
	class    string
	borrow   bool
	paid     int64 // PAID, for a refund
	track    bool
	extend   bool
	grow     bool
	penalty  bool   // of the middleware
	warning  bool   // ask for the warning of the result
	once     string // request key
	onceMS   int64
	span     time.Duration // of a block, an override, or the function of Lease.Run
	patience time.Duration // of a wait
	lease    string
	actual   int64 // for Settle, More and Refund

	clock           time.Duration // how far the server's clock moves before the step
	pause           time.Duration // time before the step
	faults          []fault
	slow            time.Duration
	between         *step         // another process makes this call after the first lost reply
	meanwhile       *step         // the client of a wait makes this call on its first key
	after           time.Duration // how long the wait has lasted then
	crowd           int
	outage          bool
	canceled        bool
	lateCancel      bool // whether a wait is canceled only after its first call
	redeploy, close bool
	bad             bool     // an argument is wrong
	plantIn, plants string   // a key that gets a foreign value before the step, and its kind
	beforeLast      bool     // whether that concerns the last key, and not the first
	before          []string // what another process does before the step
	lateFaults      []fault  // for the second call of a handle
	faultsAgain     bool     // whether lateFaults also affect the third call
}

type faultKind int

const (
	loseReply   faultKind = iota + 1 // executed, the reply is lost
	loseRequest                      // sent, not executed
	refuse                           // no connection
	hang                             // executed or not, no reply until the call's deadline
)

// fault affects one command.
type fault struct {
	kind faultKind
	ran  bool // for hang: whether the server executes the command
}

func (s *step) fault(d *draw, kind faultKind) {
	for range d.number(1, 2) {
		s.faults = append(s.faults, fault{kind, d.chance(2)})
	}
}

// draw draws a plan.
type draw struct {
	*rapid.T
	plan   *plan
	leases bool   // whether the scenario is about leases
	home   string // the limit feature of most steps, and its text
	text   string
}

// number draws a number, each about as often as the others. rapid's own ranges draw small numbers much
// more often. A failing plan is shrunk towards low.
func (d *draw) number(low, high int) int {
	n := 0
	for range bits.Len(uint(high-low)) + 2 {
		n *= 2
		if coin.Draw(d.T, "bit") {
			n++
		}
	}
	return low + n%(high-low+1)
}

var coin = rapid.Bool()

func (d *draw) chance(n int) bool { return d.number(1, n) == 1 }

func (d *draw) span(low, high int64) time.Duration {
	ms := int64(d.number(int(low), int(high)))
	return time.Duration(pick(d, ms, max(low, min(high, 1000)), min(high, 10*low))) * time.Millisecond
}

func pick[T any](d *draw, from ...T) T { return from[d.number(0, len(from)-1)] }

// plans draws a plan in which all features of a set meet: in one step if a call can have them all, and
// otherwise in consecutive steps. Other steps come before and after. Most steps use the same keys and
// limit.
func plans(set []feature) *rapid.Generator[plan] {
	return rapid.Custom(func(t *rapid.T) plan {
		p := plan{}
		d := &draw{T: t, plan: &p, leases: slices.ContainsFunc(set, isOnLeases)}
		for _, f := range set {
			p.Set = append(p.Set, f.name)
			if f.kind == layer {
				f.put(d, nil)
			}
		}
		for _, name := range kinds[layer] {
			f := find(name)
			if d.chance(5) && !slices.ContainsFunc(set, func(g feature) bool { return illegal(f, g) != "" }) && p.Fallback == "" {
				f.put(d, nil)
			}
		}
		for i := range p.Order {
			p.Order[i] = d.number(0, len(p.Order)-1)
		}
		d.home = pick(d, names(limit, leaseLimits...)...)
		if d.leases {
			d.home = "leases"
		}
		for _, f := range set {
			if f.kind == limit {
				d.home = f.name
			}
		}
		d.text = d.limit(d.home, "charge")
		var main []step
		for _, group := range grouped(set) {
			main = append(main, d.step(group...))
		}
		if d.chance(2) {
			again := main[0] // with ONCE, this repeats the call
			again.faults, again.lateFaults, again.between, again.outage, again.crowd, again.clock, again.close, again.canceled = nil, nil, nil, false, 0, 0, false, false
			again.redeploy, again.before, again.meanwhile = false, nil, nil
			again.marks = withoutEvents(again.marks)
			main = append(main, again)
		}
		for range d.number(0, 4) {
			p.Steps = append(p.Steps, d.step())
		}
		p.Steps = append(p.Steps, main...)
		for range d.number(1, 3) {
			p.Steps = append(p.Steps, d.step())
		}
		return p
	})
}

// grouped splits a set of features into consecutive steps.
func grouped(set []feature) (groups [][]feature) {
next:
	for _, f := range set {
		for i, group := range groups {
			if !slices.ContainsFunc(group, func(g feature) bool { return !together(f, g) }) {
				groups[i] = append(groups[i], f)
				continue next
			}
		}
		groups = append(groups, []feature{f})
	}
	return groups
}

func withoutEvents(marks []string) []string {
	return slices.DeleteFunc(slices.Clone(marks), func(m string) bool { return find(m).kind == event })
}

func isOnLeases(f feature) bool {
	return slices.Contains(onLeases, f.name) || slices.Contains(leaseLimits, f.name) || f.name == "another's lease"
}

// limitless lists verbs whose call has no limit.
var limitless = []string{"block", "unblock", "end override", "reset", "usage"}

// together reports whether one step can have both features.
func together(a, b feature) bool {
	if a.kind == b.kind && (a.kind == verb || a.kind == limit) {
		return false
	}
	for _, pair := range [][2]feature{{a, b}, {b, a}} {
		if pair[0].kind == verb && pair[1].kind == limit && slices.Contains(limitless, pair[0].name) {
			return false
		}
	}
	return true
}
