package histories

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// draft makes a history whose operations follow one another. The limit of its takes is 3/s.
type draft struct {
	h    History
	next int64
}

func (d *draft) stamp() int64 { d.next++; return d.next }

// take adds a take with a reply.
func (d *draft) take(reply string) {
	op := &Op{Call: takeOf(1), Reply: "[" + reply + " 1]", From: d.stamp(), FromClock: d.now(), UntilClock: d.now()}
	op.To = d.stamp()
	d.h.Ops = append(d.h.Ops, op)
}

// once adds a take that stores its reply for a second.
func (d *draft) once(reply string) {
	d.take(reply)
	call := &d.h.Ops[len(d.h.Ops)-1].Call
	call.OnceMS, call.OnceKey = 1000, "request"
}

// lost adds a take without a known outcome. It may run at any later time.
func (d *draft) lost() {
	d.h.Ops = append(d.h.Ops, &Op{Call: takeOf(1), Fate: Unknown, From: d.stamp(), To: open, FromClock: d.now(), UntilClock: 9})
}

// during adds a take that runs while the clock moves from its last position to the next.
func (d *draft) during(us int64, reply string) {
	d.take(reply)
	d.move(us)
	d.h.Ops[len(d.h.Ops)-1].UntilClock = d.now()
}

func (d *draft) move(us int64) { d.h.Clock = append(d.h.Clock, d.h.Clock[d.now()]+us) }

func (d *draft) now() int { return len(d.h.Clock) - 1 }

func (d *draft) event(what What) {
	e := &Event{What: what, From: d.stamp()}
	e.clock.Store(int64(d.now()))
	e.to.Store(d.stamp())
	d.h.Events = append(d.h.Events, e)
}

func takeOf(cost int64) model.Call {
	return model.Call{Verb: model.Take, Keys: []string{"a"}, Limits: []model.Policy{{Limits: parse("gcra 3/s")}}, Costs: []int64{cost}}
}

func TestCheck(t *testing.T) {
	const first, second, third, denied = "1 3 2 0 334", "1 3 1 0 667", "1 3 0 0 1000", "0 3 0 334 1000"
	tests := []struct {
		name string
		make func(d *draft)
		want string // "lost n" if a failover has lost n changes
	}{
		{"in order", func(d *draft) { d.take(first); d.take(second); d.take(third); d.take(denied) }, "possible"},
		{"a unit charged twice", func(d *draft) { d.take(first); d.take(third) }, "impossible"},
		{"a unit not charged", func(d *draft) { d.take(first); d.take(first) }, "impossible"},
		{"a lost reply, executed", func(d *draft) { d.lost(); d.take(second) }, "possible"},
		{"a lost reply, not executed", func(d *draft) { d.lost(); d.take(first) }, "possible"},
		{"a lost reply, executed late", func(d *draft) { d.lost(); d.take(first); d.take(third) }, "possible"},
		{"a lost reply, executed twice", func(d *draft) { d.lost(); d.take(third) }, "impossible"},
		{"two lost replies", func(d *draft) { d.lost(); d.lost(); d.take(third) }, "possible"},
		{"executed before it was sent", func(d *draft) { d.take(second); d.lost() }, "impossible"},
		{"before the clock moved", func(d *draft) { d.take(first); d.during(100_000, second); d.take("1 3 0 0 900") }, "possible"},
		{"after the clock moved", func(d *draft) { d.take(first); d.during(100_000, "1 3 1 0 567"); d.take("1 3 0 0 900") }, "possible"},
		{"at a time that the clock never had", func(d *draft) { d.take(first); d.during(100_000, "1 3 1 0 617") }, "impossible"},
		{"a wait 1 ms early", func(d *draft) { d.take(first); d.take(second); d.take(third); d.take("0 3 0 333 1000") }, "impossible"},
		{"a reply stored until now, repeated", func(d *draft) { d.take(first); d.once(second); d.move(1_000_000); d.once(second) }, "possible"},
		{"a reply stored until now, deleted", func(d *draft) { d.take(first); d.once(second); d.move(1_000_000); d.once(first) }, "possible"},
		{"a stored reply deleted 1 ms early", func(d *draft) { d.take(first); d.once(second); d.move(999_000); d.once(first) }, "impossible"},
		{"a lost reply before a deployment", func(d *draft) {
			d.lost()
			d.h.Ops[0].To = d.stamp() // the server has executed what it had received
			d.event(Deployed)
			d.take(second)
		}, "possible"},
		{"a call that ran before one that the deployment had to follow", func(d *draft) {
			d.lost()
			d.once("1 3 1 0 667")
			b := d.h.Ops[1]
			b.Call.Limits[0].Name, b.Fate, b.To = "one", Unknown, open
			d.event(Deployed)
			d.h.Events[0].Version = 1
			d.once("1 3 1 0 667")
			d.h.Ops[2].Call.Limits[0].Name = "one"
		}, "possible"},
		{"a snapshot while the clock moves", func(d *draft) {
			d.take(first)
			d.move(10_000_000)
			d.take(first)
			d.event(Saved)
			d.h.Events[0].clock.Store(0)
		}, "possible"},
		{"a lost reply after which the server was asked", func(d *draft) {
			d.lost()
			d.h.Ops[0].To = d.stamp()
			d.take(first)
			d.take(third)
		}, "impossible"},
		{"a restart without persistence", func(d *draft) { d.take(first); d.event(Lost); d.take(first) }, "possible"},
		{"a restart that lost nothing", func(d *draft) { d.take(first); d.event(Lost); d.take(second) }, "impossible"},
		{"a restart with a snapshot", func(d *draft) {
			d.take(first)
			d.event(Saved)
			d.take(second)
			d.event(Restored)
			d.take(second)
		}, "possible"},
		{"a snapshot with an expired key", func(d *draft) {
			d.take(first)
			d.move(10_000_000)
			d.move(-10_000_000)
			d.event(Saved)
			d.event(Restored)
			d.take(second)
		}, "possible"},
		{"a snapshot without an expired key", func(d *draft) {
			d.take(first)
			d.move(10_000_000)
			d.move(-10_000_000)
			d.event(Saved)
			d.take(first)
			d.event(Restored)
			d.take(first)
		}, "possible"},
		{"a snapshot without a key that had not expired", func(d *draft) {
			d.take(first)
			d.move(300_000)
			d.move(-300_000)
			d.event(Saved)
			d.event(Restored)
			d.take(first)
		}, "impossible"},
		{"a key that a server had deleted, and its snapshot had not", func(d *draft) {
			d.take(first)
			d.move(10_000_000)
			d.move(-10_000_000)
			d.event(Saved)
			d.take(second)
			d.event(Restored)
			d.take(first)
		}, "impossible"},
		{"a failover that lost nothing", func(d *draft) { d.take(first); d.event(TakenOver); d.take(second) }, "possible"},
		{"a failover that lost a change", func(d *draft) { d.take(first); d.take(second); d.event(TakenOver); d.take(second) }, "lost 1"},
		{"a failover that lost two", func(d *draft) { d.take(first); d.take(second); d.event(TakenOver); d.take(first) }, "lost 2"},
		{"a failover that lost a change, but not the end of a key", func(d *draft) {
			d.take(first)
			d.take(second)
			d.move(10_000_000)
			d.move(-10_000_000)
			d.take(first)
			d.event(TakenOver)
			d.take(first)
		}, "lost 1"},
		{"a failover that took a unit", func(d *draft) { d.take(first); d.event(TakenOver); d.take(third) }, "impossible"},
		{"a planned failover that lost a change", func(d *draft) { d.take(first); d.event(HandedOver); d.take(first) }, "impossible"},
		{"a call on a former primary", func(d *draft) {
			d.event(Replaced)
			d.take(first)
			d.take(first)
		}, "decided by the former primary"},
		{"a call on a killed primary", func(d *draft) { d.event(TakenOver); d.take(first); d.take(first) }, "impossible"},
		{"the former primary is gone", func(d *draft) {
			d.event(Replaced)
			d.event(Demoted)
			d.take(first)
			d.take(first)
		}, "impossible"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &draft{h: History{Clock: []int64{startUS / 1000 * 1000}, Builds: Builds()}}
			tt.make(d)
			for _, op := range d.h.Ops {
				op.UntilClock = min(op.UntilClock, d.now())
			}
			v := d.h.Judge()
			got := "impossible"
			switch {
			case v.Undecided:
				got = "undecided"
			case v.Stale:
				got = "decided by the former primary"
			case v.LostChanges > 0:
				got = fmt.Sprintf("lost %d", v.LostChanges)
			case v.Possible:
				got = "possible"
			}
			if got != tt.want {
				t.Errorf("%s, want %s:\n%s", got, tt.want, &d.h)
			}
		})
	}
}

func TestDefectsThatDoNotApplyAreErrors(t *testing.T) {
	_, err := Defects[0].Apply("another library")
	if err == nil || !strings.Contains(err.Error(), "0 times") {
		t.Errorf("a defect applies to a text without its place: %v", err)
	}
}
