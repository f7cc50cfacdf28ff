package histories

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Verdict is the result of checking a history.
type Verdict struct {
	Possible bool
	// Undecided is true if the search took too many steps. Possible is then false.
	Undecided bool
	// LostChanges is the smallest number of changes that the failovers of the history must have lost.
	// Stale reports whether a former primary must have decided calls after a replica took over.
	LostChanges int
	Stale       bool
	Steps       int // of the longest search
}

// mostSteps bounds the search for an order: it is how many calls of the model a search can make. It does
// not depend on the speed of the machine. A run ends its episodes early (mostPending), so that no search
// needs that many; nearly all need fewer than a thousand.
const mostSteps = 1_000_000

// Judge reports whether the history is possible.
func (h *History) Judge() Verdict {
	c := newChecker(h)
	v := c.verdict()
	v.Steps = c.longest
	return v
}

func (c *checker) verdict() Verdict {
	switch c.run(0, false) {
	case porcupine.Ok:
		return Verdict{Possible: true}
	case porcupine.Unknown:
		return Verdict{Undecided: true}
	}
	if !c.failover {
		return Verdict{}
	}
	for _, try := range []struct {
		most  int
		stale bool
	}{{0, true}, {len(c.Ops), false}, {len(c.Ops), true}} {
		switch c.run(try.most, try.stale) {
		case porcupine.Unknown:
			return Verdict{Undecided: true}
		case porcupine.Illegal:
			continue
		}
		lost := 0
		for lost < try.most && c.run(lost, try.stale) != porcupine.Ok {
			lost++
		}
		return Verdict{Possible: true, LostChanges: lost, Stale: try.stale}
	}
	return Verdict{}
}

type checker struct {
	*History
	ops      []porcupine.Operation // the calls with a reply, and the events
	pending  []*Op                 // the calls that may have been executed
	lowest   []int64               // the earliest time of the clock at or after each position
	failover bool                  // whether a replica took over
	done     map[execution][]*model.Model
	longest  int // steps of a search

	// What the current search allows failovers to lose.
	most  int  // changes, for each failover
	stale bool // whether a former primary may decide calls
	steps int
}

// execution identifies a call of the model.
type execution struct {
	before  string
	version int
	at      int
	op      *Op
}

func newChecker(h *History) *checker {
	c := &checker{History: h, lowest: slices.Clone(h.Clock), failover: h.Stale, done: map[execution][]*model.Model{}}
	for i := len(c.lowest) - 2; i >= 0; i-- {
		c.lowest[i] = min(c.lowest[i], c.lowest[i+1])
	}
	for _, op := range h.Ops {
		if op.Fate == Replied {
			c.ops = append(c.ops, porcupine.Operation{ClientId: op.Actor, Input: op, Call: op.From, Return: op.To})
		} else {
			c.pending = append(c.pending, op)
		}
	}
	slices.SortStableFunc(c.pending, func(a, b *Op) int { return cmp.Compare(a.From, b.From) })
	for _, e := range h.Events {
		c.ops = append(c.ops, porcupine.Operation{Input: e, Call: e.From, Return: e.end()})
		c.failover = c.failover || e.unplanned()
	}
	return c
}

func (c *checker) run(most int, stale bool) porcupine.CheckResult {
	c.most, c.stale, c.steps = most, stale, 0
	possible := porcupine.CheckOperations(c.model(), c.ops)
	c.longest = max(c.longest, c.steps)
	switch {
	case possible:
		return porcupine.Ok
	case c.tooLong():
		return porcupine.Unknown
	}
	return porcupine.Illegal
}

// tooLong reports whether the search has made too many steps. It then finds no order.
func (c *checker) tooLong() bool { return c.steps > mostSteps }

var seed = maphash.MakeSeed()

// model returns the model for the search. Its states are sets of worlds, because the time of a call
// and the outcome of some calls and events are not known.
func (c *checker) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			w := world{model: model.New(c.Clock[0]), version: c.Version}
			if c.Stale && c.stale {
				w.stale = model.New(c.Clock[0])
			}
			return newWorlds([]world{w}, 0)
		},
		Step: func(state, input, _ any) (bool, any) {
			before := state.(*worlds)
			var next []world
			from, to := int64(0), open
			switch in := input.(type) {
			case *Op:
				from, to = in.From, in.To
				for _, w := range c.closed(before, from, to, in.UntilClock, func(model.Call) bool { return true }) {
					if w.floor <= to {
						next = append(next, c.call(w, in)...)
					}
				}
			case *Event:
				from, to = in.From, in.end()
				for _, w := range c.closed(before, from, to, c.last(in), in.needs) {
					if w.floor <= to {
						next = append(next, c.event(w, in)...)
					}
				}
			}
			for i := range next {
				if next[i].floor <= from { // all remaining operations end later
					next[i].floor = 0
				}
			}
			return len(next) > 0 && !c.tooLong(), newWorlds(next, max(before.latest, from))
		},
		Equal: func(a, b any) bool { return a.(*worlds).text == b.(*worlds).text },
		Hash:  func(state any) uint64 { return maphash.String(seed, state.(*worlds).text) },
	}
}

// world is a possible state of the servers with regard to the keys of an episode.
type world struct {
	model   *model.Model
	version int            // of the build
	saved   *model.Model   // the last snapshot
	past    []*model.Model // former states, oldest first, if a failover may restore one
	stale   *model.Model   // the keys of a former primary that still accepts calls

	clock int    // the first position of the clock at which the next call can run
	done  uint64 // a bit for each pending call that was executed
	floor int64  // the next operation cannot have ended before this stamp
}

// text describes the world except for its last three fields.
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
	all    []world
	latest int64 // the latest begin of an operation so far
	text   string
}

// newWorlds returns a set of worlds, without those from which nothing follows that does not follow
// from another one: whatever follows from a world also follows from one with the same states in which
// the clock is not later and no further pending call was executed.
func newWorlds(all []world, latest int64) *worlds {
	byText := map[string][]world{}
	for _, w := range all {
		add(byText, w)
	}
	set := &worlds{latest: latest}
	var texts []string
	for text, same := range byText {
		for _, w := range same {
			set.all = append(set.all, w)
			texts = append(texts, fmt.Sprintf("%d %d %d %s", w.clock, w.done, w.floor, text))
		}
	}
	slices.Sort(texts)
	set.text = strings.Join(texts, "\n")
	return set
}

// add adds a world to a set, and reports whether anything follows from it that did not follow from
// the set.
func add(byText map[string][]world, w world) bool {
	text := w.text()
	for _, other := range byText[text] {
		if other.clock <= w.clock && other.done&^w.done == 0 && other.floor <= w.floor {
			return false
		}
	}
	byText[text] = append(slices.DeleteFunc(byText[text], func(other world) bool {
		return w.clock <= other.clock && w.done&^other.done == 0 && w.floor <= other.floor
	}), w)
	return true
}

// closed returns the worlds that can follow by executing any of the pending calls before an
// operation from the stamp `from` to the stamp `to`, which ends at a position of the clock, if needs
// returns true for one of them or they cannot run later.
func (c *checker) closed(before *worlds, from, to int64, until int, needs func(model.Call) bool) []world {
	if len(c.pending) == 0 {
		return before.all
	}
	byText, queue := map[string][]world{}, []world(nil)
	for _, w := range before.all {
		if add(byText, w) {
			queue = append(queue, w)
		}
	}
	// A call that need not run before the operation may have run before one that had to.
	needed := slices.ContainsFunc(c.pending, func(op *Op) bool { return op.From < to && op.To >= from && needs(op.Call) })
	for ; len(queue) > 0 && !c.tooLong(); queue = queue[1:] {
		w := queue[0]
		for i, op := range c.pending {
			if i == 64 || op.From >= to {
				break
			}
			// The attempts of a call are alike, so they are executed in their order.
			waits := i > 0 && c.pending[i-1].From == op.From && w.done&(1<<(i-1)) == 0
			if w.done&(1<<i) != 0 || op.To < before.latest || waits || op.To >= from && !needed {
				continue
			}
			for _, then := range c.executed(w, op, min(until, op.UntilClock)) {
				then.done |= 1 << i
				then.floor = max(then.floor, op.From)
				if add(byText, then) {
					queue = append(queue, then)
				}
			}
		}
	}
	var all []world
	for _, same := range byText {
		all = append(all, same...)
	}
	return all
}

// last returns the position of the clock at the end of an event.
func (c *checker) last(e *Event) int {
	last := len(c.Clock) - 1
	if e.end() < open {
		last = min(last, int(e.clock.Load())-c.first)
	}
	return last
}

// event returns the worlds that can follow an event.
func (c *checker) event(w world, e *Event) []world {
	switch e.What {
	case Lost:
		w.model, w.saved, w.past = model.New(c.Clock[0]), nil, nil
	case Saved: // with the keys that have expired, or without those that the server has deleted
		var next []world
		for _, m := range without(w.model, c.lapsed(w.model, w.clock, max(w.clock, c.last(e)))) {
			w.model, w.saved = m, m
			next = append(next, w)
		}
		return next
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
	case TakenOver, Replaced:
		was := w
		w.past = nil
		if c.stale && e.What == Replaced {
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
func (c *checker) call(w world, op *Op) []world { return c.executed(w, op, op.UntilClock) }

// executed returns the worlds that can follow a call if it ran at a position of the clock up to
// `until`.
func (c *checker) executed(w world, op *Op, until int) (next []world) {
	for at := max(w.clock, op.FromClock); at <= until; at++ {
		for _, before := range c.expired(w.model, w.clock, at) {
			for _, after := range c.do(before, w.version, at, op) {
				then := w
				then.model, then.clock = after, at
				if c.most > 0 && after.String() != w.model.String() {
					then.past = append(slices.Clip(w.past), w.model)
					if before != w.model { // the server has deleted expired keys, which is a change, too
						then.past = append(then.past, before)
					}
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

// expired returns the models that m can become while the clock moves from one position to another. If
// the clock was set back in between, a key may be gone that has not expired yet at the second position.
func (c *checker) expired(m *model.Model, from, to int) []*model.Model {
	now := m.Lapsed(c.Clock[to])
	return without(m, slices.DeleteFunc(c.lapsed(m, from, to), func(key string) bool { return slices.Contains(now, key) }))
}

// lapsed returns the keys that a server may have deleted while the clock moved from one position to
// another. It deletes an expired key at any later time, or when it is read. Redis 8.0 may delete a key
// in the millisecond of its expiry: its active expiry does, and its reads do not.
func (c *checker) lapsed(m *model.Model, from, to int) []string {
	const ms = 1000
	return m.Lapsed(slices.Max(c.Clock[from:to+1]) + ms)
}

// without returns m without some of the keys, for each choice of them. The first has all keys.
func without(m *model.Model, keys []string) []*model.Model {
	all := []*model.Model{m}
	for _, key := range keys {
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
	c.steps++
	this := execution{before.String(), version, at, op}
	all, known := c.done[this]
	if !known {
		all = c.execute(before, version, at, op)
		c.done[this] = all
	}
	return all
}

func (c *checker) execute(before *model.Model, version, at int, op *Op) []*model.Model {
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
