package backtest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

// engine is one server of package embedded, with its current time.
type engine struct {
	server *embedded.Server
	at     int64
}

func (e *engine) decide(words []any) ([]any, error) {
	reply, err := e.server.Do(words...)
	if err != nil {
		return nil, err
	}
	decision, ok := reply.([]any)
	if !ok || len(decision) < 6 {
		return nil, fmt.Errorf("the library returns %v to %v", reply, words)
	}
	return decision, nil
}

// decider makes the decisions of one trial for the keys of one worker.
type decider struct {
	share
	trial
	engine *engine
	number int    // index of the trial
	prefix string // prefix of the trial's keys
	costs  bool   // whether the last word of take is the cost
	take   []any  // FCALL and its arguments; the keys begin at index 3
	peek   []any  // peek command; nil unless costs are charged after requests
	class  *classes
	force  []any // take command with FORCE that ends with the cost; nil if peek is nil

	tally
}

// tally counts the decisions of one trial. Sums of units saturate at 2^63 - 1.
type tally struct {
	requests, denied int64
	units            Units
	above            int64               // requests that cost more than the capacity
	keyless          int64               // requests that lack one of the trial's keys
	classes          map[uint32]*Class   // by number; only for policies with classes
	keys             map[uint64]*denials // denied keys, by slot<<32 | number of the key
	series           series
	first, last      int64 // times of denials, ms since 1970
}

type denials struct {
	count, units int64
	first, last  int64
}

func newDecider(e *engine, s share, number int, t trial, class *classes, opts Options) *decider {
	call := func(function string, options ...any) []any {
		words := []any{"FCALL", function, len(t.slots)}
		for range t.slots {
			words = append(words, "")
		}
		return append(append(words, t.Limit), options...)
	}
	d := &decider{
		share: s, trial: t, engine: e, number: number, prefix: strconv.Itoa(number) + ":",
		take: call("ratelimit_take"), tally: tally{keys: map[uint64]*denials{}, classes: map[uint32]*Class{}},
	}
	if t.classed {
		d.class = class
	}
	if d.costs = opts.Cost != ""; d.costs {
		d.take = append(d.take, "COST", 1)
	}
	if opts.After {
		d.peek, d.force = call("ratelimit_peek"), call("ratelimit_take", "FORCE", "COST", 1)
	}
	return d
}

// decide makes the decision for a request with the given cost, and charges the cost if the request
// is allowed. If costs are charged after requests, decide first tries a plain take: if the cost
// fits, the result is the same in a quarter of the time. Otherwise, a peek decides, and a take with
// FORCE charges the cost. class has the arguments for the class of the request, if it has one.
func (d *decider) decide(cost int64, class ...any) ([]any, error) {
	if d.costs {
		d.take[len(d.take)-1] = cost
	}
	if d.force == nil {
		return d.engine.decide(with(d.take, class))
	}
	keys := d.take[3 : 3+len(d.slots)]
	if cost > 0 { // a take with cost 0 is allowed even if no unit is available
		if decision, err := d.engine.decide(with(d.take, class)); err != nil || decision[0] != int64(0) {
			return decision, err
		}
	}
	copy(d.peek[3:], keys)
	decision, err := d.engine.decide(with(d.peek, class))
	if err != nil || decision[0] == int64(0) || cost == 0 {
		return decision, err
	}
	copy(d.force[3:], keys)
	d.force[len(d.force)-1] = cost
	_, err = d.engine.decide(d.force)
	return decision, err
}

// with returns words with more at the end.
func with(words, more []any) []any {
	if len(more) == 0 {
		return words
	}
	return slices.Concat(words, more)
}

func (d *decider) see(r *event) error {
	if len(d.slots) > 1 {
		if !d.mine(uint32(d.number)) { // one engine decides all requests of this trial, because it needs all keys of a decision
			return nil
		}
	} else if !d.mine(r.keys[d.slots[0]] + uint32(d.number)) {
		return nil
	}
	for i, slot := range d.slots {
		if r.keys[slot] == 0 {
			d.keyless++
			return nil
		}
		d.take[3+i] = d.prefix + strconv.Itoa(i) + ":" + strconv.Itoa(int(r.keys[slot]))
	}
	if e := d.engine; r.at != e.at {
		e.server.SetTime(time.UnixMilli(r.at))
		e.at = r.at
	}
	number, class := r.keys[MostKeys-1], []any(nil)
	if d.class != nil && number > 0 {
		class = []any{"CLASS", (*d.class.names.Load())[number-1]}
	}
	decision, err := d.decide(r.cost, class...)
	if err != nil {
		if class != nil { // the policy may not have this class
			err = refused(d.Limit, err)
		}
		return err
	}
	if d.class != nil {
		if d.classes[number] == nil {
			d.classes[number] = &Class{}
		}
		d.classes[number].count(decision[0] != int64(0), r.cost)
	}
	d.requests++
	if r.cost > d.capacity {
		d.above++
	}
	if decision[0] != int64(0) {
		d.series.add(r.at/1000, Interval{Allowed: 1, Units: Units{Allowed: r.cost}})
		d.units.Allowed = plus(d.units.Allowed, r.cost)
		return nil
	}
	d.series.add(r.at/1000, Interval{Denied: 1, Units: Units{Denied: r.cost}})
	d.units.Denied = plus(d.units.Denied, r.cost)
	if d.denied == 0 {
		d.first = r.at
	}
	d.denied++
	d.last = r.at
	index, _ := decision[5].(int64)
	slot := d.slots[index-1]
	at := uint64(slot)<<32 | uint64(r.keys[slot])
	k := d.keys[at]
	if k == nil {
		k = &denials{first: r.at}
		d.keys[at] = k
	}
	k.count++
	k.units = plus(k.units, r.cost)
	k.last = r.at
	return nil
}

// plus adds two sums of units, neither below 0. Sums saturate at 2^63 - 1.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (u Units) plus(other Units) Units {
	return Units{plus(u.Allowed, other.Allowed), plus(u.Denied, other.Denied)}
}

func (t *tally) merge(other tally) {
	t.requests += other.requests
	t.keyless += other.keyless
	t.units = t.units.plus(other.units)
	t.above += other.above
	if other.denied > 0 && (t.denied == 0 || other.first < t.first) {
		t.first = other.first
	}
	for number, of := range other.classes {
		sum := t.classes[number]
		if sum == nil {
			sum = &Class{}
			t.classes[number] = sum
		}
		sum.Requests, sum.Allowed, sum.Denied = sum.Requests+of.Requests, sum.Allowed+of.Allowed, sum.Denied+of.Denied
		sum.Units = sum.Units.plus(of.Units)
	}
	t.last = max(t.last, other.last)
	t.denied += other.denied
	maps.Copy(t.keys, other.keys) // no other worker decides for these keys
	t.series.merge(other.series)
}
