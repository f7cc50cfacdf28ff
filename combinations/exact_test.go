package combinations

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// exact checks the numbers of a decision with further peeks: remaining units pass and one more does
// not; one ms before RetryAfter the call is still denied, and at RetryAfter it passes; no call waits
// for longer than a full refill. The peeks at other times run on a second server, on copies of the
// keys.
func (w *world) exact(was *model.Model, c model.Call, x *execution) {
	if c.Verb != model.Take && c.Verb != model.Peek || x.reason != "" || x.repeated || len(x.reply) < 6 {
		return
	}
	allowed, remaining, retry := x.reply[0].(int64), x.reply[2].(int64), x.reply[3].(int64)
	single := true // whether one limit decides about each key, now and later
	for i, key := range c.Keys {
		if w.model.Blocked(key) > 0 || w.model.Overridden(key) {
			return
		}
		single = single && (len(w.kinds[key]) == 0 || len(w.kinds[key]) == 1 && w.kinds[key][w.limitAt(c, i).String()])
	}
	for _, p := range c.Limits {
		if p.Shadow || p.Canary != nil { // these decide separately
			return
		}
	}
	lends := lends(c)
	if allowed == 0 && retry > 0 && !lends { // a pool may be in debt
		w.longest(c, retry)
	}
	switch {
	case !single || lends && w.clockBack: // a state that is impossible for a guaranteed call can be possible for a loan
	case allowed > 0 && c.Verb == model.Take && w.chargesAll(c) && remaining < model.MaxCount:
		w.remaining(c, remaining)
	case allowed == 0 && retry > 0:
		w.retry(c, retry)
	}
}

// lends reports whether a call has a guarantee and a pool.
func lends(c model.Call) bool {
	return c.Borrow || slices.ContainsFunc(c.Limits, func(p model.Policy) bool { return p.Borrow })
}

// chargesAll reports whether an allowed call has written every key.
func (w *world) chargesAll(c model.Call) bool {
	for _, cost := range c.Costs {
		if cost == 0 {
			return false
		}
	}
	for i := range c.Keys {
		if w.limitAt(c, i).Rates[0].N == 0 {
			return false
		}
	}
	return true
}

func (w *world) remaining(c model.Call, r int64) {
	for units, want := range map[int64]int64{r: 1, r + 1: 0} {
		if units == 0 {
			continue
		}
		peek := c.Peeks()
		peek.Costs, peek.Upto, peek.Each = []int64{units}, false, false
		if c.Force { // which keeps nothing free, not even for the class default
			peek.Floor = new(int64(0))
		}
		reply, err := w.raw(peek.Words())
		if err != nil || reply.([]any)[0] != want {
			w.fail("remaining units pass, one more does not", "%v left %d remaining, and a peek with cost %d returns %v", c.Words(), r, units, show(reply, err))
		}
	}
}

// retry peeks with the arguments of a denied call, just before and at its retry_after_ms.
func (w *world) retry(c model.Call, ms int64) {
	peek := c.Peeks()
	peek.Each = false
	if w.loaded[1] != w.loaded[0] {
		must(w.future.Load(w.texts[w.loaded[0]]))
		w.loaded[1] = w.loaded[0]
	}
	for _, early := range []int64{1, 0} {
		at := time.UnixMicro(w.now + (ms-early)*1000)
		if at.Year() > 2200 {
			return
		}
		w.future.SetTime(time.UnixMicro(w.now))
		_, err := w.future.Do("FLUSHALL")
		must(err)
		for _, key := range c.Keys {
			if value, _ := w.do("GET", key).(string); value != "" { // an empty string counts as no key
				_, err := w.future.Do("SET", key, value, "PXAT", w.do("PEXPIRETIME", key))
				must(err)
			}
		}
		w.future.SetTime(at)
		args := make([]any, 0, 10)
		for _, word := range peek.Words() {
			args = append(args, word)
		}
		reply, err := w.future.Do(args...)
		must(err)
		if passes := reply.([]any)[0].(int64) > 0; passes != (early == 0) {
			w.fail("RetryAfter is exact", "%v is denied for %d ms; %d ms earlier a peek returns %v", c.Words(), ms, early, reply)
		}
	}
}

// longest checks that a call without debt waits for at most one full refill.
func (w *world) longest(c model.Call, ms int64) {
	most := new(big.Rat)
	for i, key := range c.Keys {
		if w.forced[key] {
			return
		}
		l := w.limitAt(c, i)
		for _, r := range l.Rates {
			if r.N == 0 { // allows a cost of 0 at once
				continue
			}
			full := r.Refill(r.Capacity())
			if l.Algorithm == "token_bucket" { // it refills n units at a time
				full = new(big.Rat).SetInt64((r.Capacity() + r.N - 1) / r.N * r.MS())
			}
			if l.Algorithm == "sliding_window" { // the oldest bucket leaves one bucket later
				full = new(big.Rat).Mul(full, big.NewRat(2, 1))
			}
			if full.Cmp(most) > 0 {
				most = full
			}
		}
	}
	if new(big.Rat).SetInt64(ms-1).Cmp(most) > 0 {
		w.fail("no wait is longer than a full refill", "%v waits for %d ms, a full refill takes %s", c.Words(), ms, fmt.Sprint(most.FloatString(1)))
	}
}
