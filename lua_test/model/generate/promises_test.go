package generate

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// TestPromises checks that the model keeps the promises of the contract for calls with FLOOR and BORROW,
// also after steps of the clock and changes of a limit:
//   - A peek returns what the take after it returns, and a denied call changes nothing.
//   - If remaining is r, then r takes with cost 1 are allowed and one more is not. The same is true of
//     costs r and r + 1, unless a state may be impossible.
//   - A denied call is allowed at retry_after_ms, and not a millisecond before.
func TestPromises(t *testing.T) {
	defer func(was bool) { Shares = was }(Shares)
	Shares = true
	wanted := Wanted(t, 400)
	for name, runs := range map[string]*rapid.Generator[[]Step]{"Changes": Changes(), "Loans": Loans()} {
		t.Run(name, func(t *testing.T) {
			done, fails := 0, false
			rapid.Check(t, func(t *rapid.T) {
				if done >= wanted && !fails {
					return
				}
				run := runs.Draw(t, "run")
				done += len(run)
				p := promises{m: model.New(StartUS), now: StartUS, writers: map[string]string{}}
				for _, step := range run {
					if err := p.step(step); err != "" {
						fails = true // from now on, rapid shrinks the failing run
						t.Fatalf("%s\n%s", err, p.transcript)
					}
				}
			})
			t.Logf("%d calls", done)
		})
	}
}

type promises struct {
	m                 *model.Model
	now, retry, reset int64
	odd               bool              // whether the clock was set back or a limit has changed
	writers           map[string]string // the limit that wrote each key last
	transcript        string
}

func (p *promises) step(s Step) string {
	to := s.Move.To(p.now, p.retry, p.reset)
	p.odd = p.odd || to < p.now
	p.now = to
	p.m.SetTime(p.now)
	c := s.Call
	was, before := p.m.Clone(), p.m.String()
	reply, reason := p.m.Do(c)
	p.transcript += fmt.Sprintf("%14d us  %q -> %v%s\n", p.now-StartUS, c.Words(), reply, reason)
	if reason != "" {
		return ""
	}
	fields := ints(reply)
	p.retry, p.reset = fields[3], fields[4]
	if c.Verb != model.Take {
		return ""
	}
	if peeked, _ := was.Clone().Do(c.Peeks()); !c.Force && fmt.Sprint(peeked) != fmt.Sprint(reply) {
		return fmt.Sprintf("peek returned %v", peeked)
	}
	if fields[0] == 0 && before != p.m.String() {
		return "a denied call changes " + before
	}
	changed := false
	for i, key := range c.Keys {
		by := p.writers[key]
		changed = changed || by != "" && by != c.Limits[i].String()
		if fields[0] > 0 {
			p.writers[key] = c.Limits[i].String()
		}
	}
	p.odd = p.odd || changed
	if err := p.remaining(c, fields[2]); err != "" {
		return err
	}
	if fields[0] == 0 && fields[3] != 0 {
		return p.wait(c, fields[3], changed)
	}
	return ""
}

func ints(reply any) (all []int64) {
	for _, field := range reply.([]any)[:6] {
		all = append(all, field.(int64))
	}
	return all
}

// remaining checks the remaining r of a call. With a cost for each key it is the least of all keys.
func (p *promises) remaining(c model.Call, r int64) string {
	c.Upto, c.Force = false, false
	allows := func(m *model.Model, cost int64) bool {
		c.Costs = []int64{cost}
		reply, _ := m.Do(c)
		return ints(reply)[0] > 0
	}
	if r > 0 && !allows(p.m.Clone(), r) || !p.odd && allows(p.m.Clone(), r+1) {
		return fmt.Sprintf("remaining is %d, and a take with this cost is denied, or one with %d allowed", r, r+1)
	}
	m := p.m.Clone()
	for i := int64(0); i <= r && r < 12; i++ {
		if allows(m, 1) != (i < r) {
			return fmt.Sprintf("remaining is %d, and take %d of cost 1 is denied, or one more allowed", r, i+1)
		}
	}
	return ""
}

// wait checks the retry_after_ms of a denied call.
func (p *promises) wait(c model.Call, retry int64, changed bool) string {
	allowed := func(ms int64) bool {
		m := p.m.Clone()
		m.SetTime(p.now + ms*1000)
		reply, _ := m.Do(c)
		return ints(reply)[0] > 0
	}
	several := len(c.Limits[0].Limits[0].Rates) > 1 || len(c.Keys) > 1 && !c.Borrow
	switch {
	case retry < 0:
		if allowed(model.MaxPeriodMS) {
			return "retry is -1, and the call is allowed later"
		}
	case allowed(retry-1) && !changed:
		return "the call is already allowed 1 ms before retry_after_ms"
	case !allowed(retry) && !several:
		return "the call is still denied at retry_after_ms"
	}
	return ""
}

// TestSharesAreDrawn checks that the generated calls have every word, alone and beside others, and that
// the model decides all of them.
func TestSharesAreDrawn(t *testing.T) {
	defer func(was bool) { Shares = was }(Shares)
	Shares = true
	wanted, done, seen := Wanted(t, 4000), 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		if done >= wanted {
			return
		}
		m, now := model.New(StartUS), StartUS
		var retry, reset int64
		for _, s := range Steps().Draw(t, "run") {
			done++
			now = s.Move.To(now, retry, reset)
			m.SetTime(now)
			reply, reason := m.Do(s.Call)
			for word, has := range map[string]bool{
				"FLOOR": s.Call.Floor != nil && !s.Call.Borrow, "CLASS": s.Call.Class != "", "BORROW": s.Call.Borrow, "PAID": s.Call.Paid > 0,
			} {
				if has {
					seen[word+" "+s.Call.Verb+" "+reason]++
				}
			}
			if list, ok := reply.([]any); ok && len(list) >= 6 && s.Call.Verb != model.Usage {
				retry, reset = list[3].(int64), list[4].(int64)
				if s.Call.Borrow && s.Call.Verb == model.Take {
					seen[fmt.Sprintf("BORROW allowed %d index %d", list[0], list[5])]++
				}
			}
		}
	})
	for _, want := range []string{
		"FLOOR take ", "FLOOR peek ", "FLOOR acquire ", "FLOOR take BADARGS", "CLASS take ", "CLASS acquire ", "CLASS take BADARGS",
		"BORROW take ", "BORROW peek ", "BORROW refund ", "BORROW take BADARGS", "PAID refund ", "PAID refund BADARGS",
		"BORROW allowed 1 index 1", "BORROW allowed 1 index 2", "BORROW allowed 0 index 1", "BORROW allowed 0 index 2",
	} {
		if seen[want] < 2 {
			t.Errorf("%d calls with %q: %v", seen[want], want, seen)
		}
	}
}
