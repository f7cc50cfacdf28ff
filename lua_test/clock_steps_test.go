package lua_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// TestRemainingAndRetry checks what every reply promises, after steps of the clock and changes of
// the limit:
//   - A peek returns what the take after it returns.
//   - If remaining is r, then r takes of cost 1 are allowed now, and one more is not.
//   - The call is allowed at retry_after_ms, and not a millisecond before. With several rates, another
//     rate can deny it then, whose state was impossible before.
//   - retry_after_ms is at most one full refill of the slowest rate, or two after FORCE.
//
// The checks use copies of the keys. If RATELIMIT_SOAK is set, it is the number of generated calls.
func TestRemainingAndRetry(t *testing.T) {
	wanted, done, fails := generate.Wanted(t, 4000), 0, false
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())))}
	rapid.Check(t, func(t *rapid.T) {
		if done >= wanted && !fails {
			return
		}
		p := &promises{T: t, server: server, now: generate.StartUS, writers: map[string]string{}}
		run := generate.Changes().Draw(t, "run")
		done += len(run)
		for _, step := range run {
			if err := p.step(step); err != nil {
				fails = true // from now on, rapid shrinks the failing run
				t.Fatalf("%v\n%s", err, strings.Join(p.transcript, "\n"))
			}
		}
	})
	t.Logf("%d calls", done)
}

// promises makes calls and checks their replies.
type promises struct {
	*rapid.T
	server     offline
	now, retry int64
	reset      int64
	transcript []string
	cleared    bool
	forced     bool              // whether a call had FORCE
	writers    map[string]string // the limit that wrote the state of each key
}

func (p *promises) do(words ...string) any {
	reply, err := p.server.Do(words...)
	if err != nil {
		p.Fatalf("%q: %v\n%s", words, err, strings.Join(p.transcript, "\n"))
	}
	return reply
}

func (p *promises) setTime(us int64) {
	if err := p.server.SetTime(us); err != nil {
		p.Fatal(err)
	}
}

// call makes a call with each limit's key replaced by prefix + key, and returns the reply.
func (p *promises) call(c model.Call, verb, prefix string) ([]int64, [][]int64) {
	c.Verb = verb
	c.Keys = slices.Clone(c.Keys)
	for i := range c.Keys {
		c.Keys[i] = prefix + c.Keys[i]
	}
	if verb == model.Peek {
		c.Force = false
	}
	reply := p.do(c.Words()...).([]any)
	p.transcript = append(p.transcript, fmt.Sprintf("%14d us  %q -> %v", p.now-generate.StartUS, c.Words(), reply))
	fields, each := []int64{}, [][]int64{}
	for _, field := range reply[:6] {
		fields = append(fields, field.(int64))
	}
	for _, entry := range reply[6].([]any) {
		var of []int64
		for _, field := range entry.([]any) {
			of = append(of, field.(int64))
		}
		each = append(each, of)
	}
	return fields, each
}

// copied copies the keys of a call to keys with the prefix "copy".
func (p *promises) copied(c model.Call) {
	for _, key := range c.Keys {
		p.do("DEL", "copy"+key)
		if value := p.do("GET", key); value != nil {
			p.do("SET", "copy"+key, value.(string), "PXAT", fmt.Sprint(p.do("PEXPIRETIME", key)))
		}
	}
}

func (p *promises) at(us int64, check func() error) error {
	p.setTime(us)
	now := p.now
	p.now = us
	err := check()
	p.now = now
	p.setTime(now)
	return err
}

func (p *promises) step(s generate.Step) error {
	c := s.Call
	if !p.cleared {
		p.do("FLUSHALL")
		p.cleared = true
	}
	p.now = s.Move.To(p.now, p.retry, p.reset)
	p.setTime(p.now)
	p.transcript = append(p.transcript, fmt.Sprintf("%14d us", p.now-generate.StartUS))
	changed := p.changed(c)
	p.copied(c)
	peeked, peekedEach := p.call(c, model.Peek, "copy")
	fields, each := p.call(c, c.Verb, "")
	p.retry, p.reset = fields[3], fields[4]
	for i, key := range c.Keys {
		if fields[0] > 0 && (len(c.Costs) == 0 || c.Costs[i%len(c.Costs)] > 0) {
			p.writers[key] = c.Limits[i].String()
		}
	}
	if c.Verb == model.Take && !c.Force && (!slices.Equal(peeked, fields) || fmt.Sprint(peekedEach) != fmt.Sprint(each)) {
		return fmt.Errorf("peek returned %v %v, the take after it %v %v", peeked, peekedEach, fields, each)
	}
	if err := p.remaining(c, each); err != nil {
		return err
	}
	p.forced = p.forced || c.Force
	if c.Verb == model.Take && !c.Force && fields[0] == 0 && fields[3] > 0 {
		if most := p.longest(c); fields[3] > most {
			return fmt.Errorf("retry_after_ms is %d, more than %d", fields[3], most)
		}
		return p.wait(c, fields[3], changed)
	}
	return nil
}

// longest returns the longest wait of a call that the contract permits, in ms.
func (p *promises) longest(c model.Call) (most int64) {
	for _, l := range c.Limits {
		for _, r := range l.Limits[0].Rates {
			ms, _ := r.Refill(r.Capacity()).Float64()
			refill := int64(math.Ceil(ms))
			switch l.Limits[0].Algorithm {
			case "token_bucket":
				refill = (r.Capacity() + r.N - 1) / r.N * r.MS()
			case "sliding_window": // until the bucket in which the units are counted has left
				refill = 2 * r.MS()
			}
			most = max(most, refill)
		}
	}
	if p.forced {
		most *= 2
	}
	return most
}

// changed reports whether a key's state was written by another limit. Such a state can expire before
// retry_after_ms, because its expiry is the time at which the other limit is full.
func (p *promises) changed(c model.Call) bool {
	for i, key := range c.Keys {
		if by := p.writers[key]; by != "" && by != c.Limits[i].String() {
			return true
		}
	}
	return false
}

// remaining checks the remaining of each key.
func (p *promises) remaining(c model.Call, each [][]int64) error {
	p.copied(c)
	for i, entry := range each {
		one := model.Call{Keys: c.Keys[i : i+1], Limits: c.Limits[i : i+1], Each: true, Floor: c.Floor}
		left := entry[2]
		if left > 3 {
			one.Costs = []int64{left - 3}
			if fields, _ := p.call(one, model.Take, "copy"); fields[0] != 1 {
				return fmt.Errorf("key %d: remaining is %d, but a take of %d is denied", i+1, entry[2], left-3)
			}
			left = 3
		}
		one.Costs = []int64{1}
		for n := int64(0); n <= left; n++ {
			if fields, _ := p.call(one, model.Take, "copy"); (fields[0] == 1) != (n < left) {
				return fmt.Errorf("key %d: remaining is %d, but after %d more takes allowed is %d", i+1, entry[2], n+entry[2]-left, fields[0])
			}
		}
	}
	return nil
}

// wait checks the retry_after_ms of a denied call. If another limit wrote the state of a key,
// retry_after_ms may be longer than necessary.
func (p *promises) wait(c model.Call, retry int64, changed bool) error {
	p.copied(c)
	if err := p.at(p.now+(retry-1)*1000, func() error {
		if fields, _ := p.call(c, model.Peek, "copy"); fields[0] > 0 && !changed {
			return fmt.Errorf("the call is already allowed 1 ms before retry_after_ms")
		}
		return nil
	}); err != nil {
		return err
	}
	return p.at(p.now+retry*1000, func() error {
		if fields, _ := p.call(c, model.Peek, "copy"); fields[0] == 0 && !p.several(c) {
			return fmt.Errorf("the call is still denied at retry_after_ms")
		}
		return nil
	})
}

// several reports whether a call has several rates.
func (p *promises) several(c model.Call) bool {
	return len(c.Limits) > 1 || len(c.Limits[0].Limits[0].Rates) > 1
}
