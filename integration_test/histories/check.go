package histories

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Verdict is the result of checking a history.
type Verdict struct {
	Possible bool
	// Undecided is true if the search did not end in time. Possible is then false.
	Undecided bool
	// LostChanges is the smallest number of changes that the failovers of the history must have lost.
	// Stale reports whether a former primary must have decided calls after a replica took over.
	LostChanges int
	Stale       bool
}

// checkTime bounds the search for an order. Nearly all searches take less than a ms.
const checkTime = time.Minute

// Check reports whether the history is possible.
func (h *History) Check() Verdict {
	c := newChecker(h)
	switch c.run(0, false) {
	case porcupine.Ok:
		return Verdict{Possible: true}
	case porcupine.Unknown:
		return Verdict{Undecided: true}
	}
	if !c.failover {
		return Verdict{}
	}
	switch c.run(len(h.Ops), true) {
	case porcupine.Illegal:
		return Verdict{}
	case porcupine.Unknown:
		return Verdict{Undecided: true}
	}
	for lost := 1; lost <= len(h.Ops); lost++ {
		if c.run(lost, false) == porcupine.Ok {
			return Verdict{Possible: true, LostChanges: lost}
		}
		if c.run(lost-1, true) == porcupine.Ok {
			return Verdict{Possible: true, LostChanges: lost - 1, Stale: true}
		}
	}
	return Verdict{Possible: true, LostChanges: len(h.Ops), Stale: true}
}

type checker struct {
	*History
	ops      []porcupine.Operation
	lowest   []int64 // the earliest time of the clock at or after each position
	failover bool    // whether a replica took over

	// What the current search allows failovers to lose.
	most  int  // changes, for each failover
	stale bool // whether a former primary may decide calls
}

func newChecker(h *History) *checker {
	c := &checker{History: h, lowest: slices.Clone(h.Clock), failover: h.Stale}
	for i := len(c.lowest) - 2; i >= 0; i-- {
		c.lowest[i] = min(c.lowest[i], c.lowest[i+1])
	}
	for _, op := range h.Ops {
		c.ops = append(c.ops, porcupine.Operation{ClientId: op.Actor, Input: op, Call: op.From, Return: op.To})
	}
	for _, e := range h.Events {
		c.ops = append(c.ops, porcupine.Operation{Input: e, Call: e.From, Return: e.end()})
		c.failover = c.failover || e.What == TakenOver
	}
	return c
}

func (c *checker) run(most int, stale bool) porcupine.CheckResult {
	c.most, c.stale = most, stale
	return porcupine.CheckOperationsTimeout(c.model(), c.ops, checkTime)
}

var seed = maphash.MakeSeed()

// model returns the model for the search. Its states are sets of worlds, because the time of a call
// and the outcome of some events are not known.
func (c *checker) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			w := world{model: model.New(c.Clock[0]), version: c.Version}
			if c.Stale && c.stale {
				w.stale = model.New(c.Clock[0])
			}
			return newWorlds([]world{w})
		},
		Step: func(state, input, _ any) (bool, any) {
			var next []world
			for _, w := range state.(*worlds).all {
				switch in := input.(type) {
				case *Op:
					next = append(next, c.call(w, in)...)
				case *Event:
					next = append(next, c.event(w, in)...)
				}
			}
			return len(next) > 0, newWorlds(next)
		},
		Equal: func(a, b any) bool { return a.(*worlds).text == b.(*worlds).text },
		Hash:  func(state any) uint64 { return maphash.String(seed, state.(*worlds).text) },
	}
}

// world is a possible state of the servers with regard to the keys of an episode.
type world struct {
	model   *model.Model
	version int            // of the build
	clock   int            // the first position of the clock at which the next call can run
	saved   *model.Model   // the last snapshot
	past    []*model.Model // former states, oldest first, if a failover may restore one
	stale   *model.Model   // the keys of a former primary that still accepts calls
}

// text describes the world except for its clock.
func (w *world) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n%s", w.version, w.model)
	if w.saved != nil {
		fmt.Fprintf(&b, "saved %s", w.saved)
	}
	if w.stale != nil {
		fmt.Fprintf(&b, "stale %s", w.stale)
	}
	for _, m := range w.past {
		fmt.Fprintf(&b, "past %s", m)
	}
	return b.String()
}

// worlds is a set of possible worlds.
type worlds struct {
	all  []world
	text string
}

// newWorlds removes equal worlds. Of worlds that differ only in the clock, the earliest is kept,
// because whatever follows from a later one also follows from it.
func newWorlds(all []world) *worlds {
	if len(all) == 1 {
		return &worlds{all, fmt.Sprintf("%d %s", all[0].clock, all[0].text())}
	}
	first := map[string]world{}
	for _, w := range all {
		text := w.text()
		if known, ok := first[text]; !ok || w.clock < known.clock {
			first[text] = w
		}
	}
	set := &worlds{}
	var texts []string
	for text, w := range first {
		set.all = append(set.all, w)
		texts = append(texts, fmt.Sprintf("%d %s", w.clock, text))
	}
	slices.Sort(texts)
	set.text = strings.Join(texts, "\n")
	return set
}

// event returns the worlds that can follow an event.
func (c *checker) event(w world, e *Event) []world {
	switch e.What {
	case Lost:
		w.model, w.saved, w.past = model.New(c.Clock[0]), nil, nil
	case Saved:
		w.saved = w.model
	case Restored:
		w.version = e.Version
		if w.model = w.saved; w.model == nil {
			w.model = model.New(c.Clock[0])
		}
	case Deployed:
		w.version = e.Version
	case HandedOver:
		w.past, w.stale = nil, nil
	case Demoted:
		w.stale = nil
	case TakenOver:
		was := w
		w.past = nil
		if c.stale {
			w.stale = was.model
		}
		next := []world{w}
		for i, m := range slices.Backward(was.past) {
			if len(was.past)-i > c.most {
				break
			}
			w.model = m
			next = append(next, w)
		}
		return next
	}
	return []world{w}
}

// call returns the worlds that can follow a call. It returns none if the call cannot have had its
// reply in w.
func (c *checker) call(w world, op *Op) (next []world) {
	if op.Fate != Replied {
		next = append(next, w) // the call was not executed
	}
	for at := max(w.clock, op.FromClock); at <= op.UntilClock; at++ {
		for _, before := range c.expired(w.model, w.clock, at) {
			for _, after := range c.do(before, w.version, at, op) {
				then := w
				then.model, then.clock = after, at
				if c.most > 0 && after.String() != w.model.String() {
					then.past = append(slices.Clip(w.past), w.model)
				}
				next = append(next, then)
			}
		}
		if w.stale == nil {
			continue
		}
		for _, before := range c.expired(w.stale, w.clock, at) {
			for _, after := range c.do(before, w.version, at, op) {
				then := w
				then.stale, then.clock = after, at
				next = append(next, then)
			}
		}
	}
	return next
}

// expired returns the models that m can become while the clock moves from one position to another.
// A server deletes an expired key at any later time, or when it is read. So if the clock was set
// back in between, a key may be gone that has not expired yet at the second position.
func (c *checker) expired(m *model.Model, from, to int) []*model.Model {
	all := []*model.Model{m}
	latest := slices.Max(c.Clock[from : to+1])
	if latest == c.Clock[to] {
		return all
	}
	for _, key := range m.Lapsed(latest) {
		if slices.Contains(m.Lapsed(c.Clock[to]), key) {
			continue
		}
		for _, one := range slices.Clone(all) {
			gone := one.Clone()
			gone.Drop(key)
			all = append(all, gone)
		}
	}
	return all
}

// do executes a call at a position of the clock. It returns the models that can follow, none if the
// reply differs from that of the call.
func (c *checker) do(before *model.Model, version, at int, op *Op) []*model.Model {
	us := c.Clock[at]
	m := before.Clone()
	m.SetTime(us)
	reply, reason := m.Do(c.resolved(op.Call, version))
	if op.Fate == Replied && text(op.Call, reply, reason) != op.Reply {
		return nil
	}
	all := []*model.Model{m}
	if c.lowest[at] == us {
		return all
	}
	// The clock is set back later. The call may not have read a key that has expired, and then the
	// key can return.
	for _, key := range before.Lapsed(us) {
		if _, written := m.Expiry(key); written || slices.Contains(before.Lapsed(c.lowest[at]), key) {
			continue
		}
		for _, one := range slices.Clone(all) {
			kept := one.Clone()
			kept.CopyKey(key, before)
			all = append(all, kept)
		}
	}
	return all
}

// resolved returns the call with the limits that its policies have in a build.
func (c *checker) resolved(call model.Call, version int) model.Call {
	call.Limits = slices.Clone(call.Limits)
	for i, p := range call.Limits {
		if p.Name != "" {
			call.Limits[i] = c.Builds[version][p.Name]
		}
	}
	return call
}
