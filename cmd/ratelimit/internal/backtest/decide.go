package backtest

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

// engine is one server of package embedded, with its current time.
type engine struct {
	server *embedded.Server
	at     int64
}

func (e *engine) setTime(at int64) {
	if at != e.at {
		e.server.SetTime(time.UnixMilli(at))
		e.at = at
	}
}

// decider makes the decisions of one candidate for the keys of one worker.
type decider struct {
	share
	engine *engine
	number int    // of the candidate
	prefix string // prefix of the candidate's keys
	slots  []int  // indices of the candidate's keys in event.keys
	words  []any

	tally
}

// tally counts the decisions of one candidate.
type tally struct {
	requests, denied int64
	keyless          int64               // requests that lack one of the candidate's keys
	keys             map[uint64]*denials // denied keys, by index in event.keys and number
	series           series
	first, last      int64 // times of denials, ms since 1970
}

// denials counts the denials of one key.
type denials struct {
	count       int64
	first, last int64
}

func newDecider(e *engine, s share, number int, c Candidate, slots []int) *decider {
	words := []any{"FCALL", "ratelimit_take", len(slots)}
	for range slots {
		words = append(words, "")
	}
	return &decider{
		share: s, engine: e, number: number, prefix: strconv.Itoa(number) + ":", slots: slots,
		words: append(words, c.Limit), tally: tally{keys: map[uint64]*denials{}},
	}
}

func (d *decider) see(r *event) error {
	if len(d.slots) > 1 {
		if !d.mine(uint32(d.number)) { // one engine must have all keys of a decision
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
		d.words[3+i] = d.prefix + strconv.Itoa(i) + ":" + strconv.Itoa(int(r.keys[slot]))
	}
	d.engine.setTime(r.at)
	reply, err := d.engine.server.Do(d.words...)
	if err != nil {
		return err
	}
	decision, ok := reply.([]any)
	if !ok || len(decision) < 6 {
		return fmt.Errorf("the library returns %v to %v", reply, d.words)
	}
	d.requests++
	if decision[0] != int64(0) {
		d.series.add(r.at/1000, Interval{Allowed: 1})
		return nil
	}
	d.series.add(r.at/1000, Interval{Denied: 1})
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
	k.last = r.at
	return nil
}

// merge adds another worker's counts.
func (t *tally) merge(other tally) {
	t.requests += other.requests
	t.keyless += other.keyless
	if other.denied > 0 && (t.denied == 0 || other.first < t.first) {
		t.first = other.first
	}
	t.last = max(t.last, other.last)
	t.denied += other.denied
	maps.Copy(t.keys, other.keys) // no other worker decides for these keys
	t.series.merge(other.series)
}
