package generate

import (
	"math/rand/v2"
	"slices"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Corners draws short sequences from few values: limits of 0 to 4 units, overrides of 0 to 7, and costs of 0 to 9. So features
// meet often, several at a time. Each sequence ends with a call, its repetition, and a peek.
type Corners struct {
	*rand.Rand
	limits, overrides, single, several, lending []model.Policy
}

// NewCorners returns Corners that draw the same sequences for the same seed.
func NewCorners(seed uint64) *Corners {
	never := written(of("gcra", "0/m"))
	c := &Corners{Rand: rand.New(rand.NewPCG(seed, 0)), limits: []model.Policy{never, never}, overrides: []model.Policy{never, never, never}, lending: lending}
	for _, name := range slices.Compact(algorithms()) {
		c.limits = append(c.limits, written(of(name, "1/s")), written(of(name, "3/s")), written(of(name, "3/s", "4/10s")))
		c.overrides = append(c.overrides, written(of(name, "1/2s")), written(of(name, "5/s")), written(of(name, "5/s", "7/10s")))
	}
	with := func(algorithm string, r model.Rate) {
		c.limits = append(c.limits, written(model.Limit{Algorithm: algorithm, Rates: []model.Rate{r}}))
	}
	with("gcra", model.Rate{N: 1000000, Period: "s"})
	with("gcra", model.Rate{N: 7, Period: "3s", Options: []string{"burst=2"}})
	with("token_bucket", model.Rate{N: 3, Period: "s", Options: []string{"burst=1"}})
	with("fixed_window", model.Rate{N: 3, Period: "mo", Options: []string{"align=clock"}})
	with("sliding_window", model.Rate{N: 3, Period: "s", Options: []string{"buckets=4"}})
	for _, p := range shared(policies, classed) {
		if len(p.Limits) == 1 {
			c.single = append(c.single, p)
		} else {
			c.several = append(c.several, p)
		}
	}
	return c
}

// Steps draws a sequence.
func (c *Corners) Steps() []Step {
	var steps []Step
	for range 1 + c.IntN(4) {
		steps = append(steps, Step{Move: c.move(), Call: c.first()})
	}
	call := c.decision(one(c, model.Take, model.Take, model.Take, model.Refund))
	if c.IntN(8) == 0 {
		call = c.lease(one(c, model.Acquire, model.Acquire, model.Renew, model.Release))
	}
	steps = append(steps, Step{Move: c.move(), Call: call}, Step{Call: call})
	if slices.Contains([]string{model.Take, model.Refund}, call.Verb) {
		steps = append(steps, Step{Move: c.move(), Call: call.Peeks()})
	}
	return steps
}

func one[T any](c *Corners, from ...T) T { return from[c.IntN(len(from))] }

func (c *Corners) move() Move {
	switch c.IntN(12) {
	case 0, 1, 2:
		return Move{US: one(c, msUS, 333*msUS, 1000*msUS)}
	case 3:
		return Move{US: one(c, -500*msUS, -hourUS)}
	case 4:
		return Move{From: AfterRetry, US: one(c, -msUS, 0)}
	case 5:
		return Move{From: AfterReset, US: one(c, -msUS, 0, msUS)}
	}
	return Move{}
}

// first draws one of the first calls of a sequence.
func (c *Corners) first() model.Call {
	switch c.IntN(12) {
	case 0, 1, 2:
		return model.Call{Verb: model.Override, Keys: limiterKeys[:1+c.IntN(2)], SpanMS: one(c, int64(500), 30000, 60000), Limits: []model.Policy{one(c, c.overrides...)}}
	case 3:
		call := model.Call{Verb: model.Block, Keys: limiterKeys[:1], SpanMS: one(c, int64(300), 1500)}
		if c.IntN(2) == 0 {
			call.Grow = &model.Grow{Max: 5000, Forget: 20000}
		}
		return call
	case 4:
		return c.decision(model.Refund)
	case 5:
		return model.Call{Verb: model.Take, Keys: limiterKeys[:1], Limits: []model.Policy{one(c, c.limits...)}, Costs: []int64{5}, Force: true}
	case 6:
		return c.lease(model.Acquire)
	case 7:
		return model.Call{Verb: one(c, model.Unblock, model.OverrideEnd, model.Reset), Keys: limiterKeys[:1]}
	}
	return c.decision(model.Take)
}

func (c *Corners) lease(verb string) model.Call {
	call := model.Call{Verb: verb, Keys: limiterKeys[:1], Lease: one(c, leaseIDs[:3]...)}
	call.Limits = []model.Policy{one(c, append(shared(leasePolicies, leaseClassed), written(of("concurrency", "2/1s")), written(of("concurrency", "1/30s")))...)}
	if c.IntN(3) == 0 && verb == model.Acquire {
		c.leave(&call)
	}
	return call
}

// decision draws a take or a refund.
func (c *Corners) decision(verb string) model.Call {
	call := model.Call{Verb: verb}
	if c.IntN(6) == 0 && Shares {
		c.loan(&call)
	} else {
		c.plain(&call)
	}
	tracks := slices.ContainsFunc(call.Limits, func(p model.Policy) bool { return p.Track })
	if c.IntN(5) < 2 {
		call.OnceKey, call.OnceMS = onceKeys[0], 60000
	}
	if verb == model.Take {
		if call.Track = c.IntN(4) == 0 || tracks && call.OnceMS > 0; call.Track || tracks {
			call.Usage = usageKeys[0]
		}
	}
	return call
}

func (c *Corners) loan(call *model.Call) {
	if c.IntN(2) == 0 {
		call.Limits = []model.Policy{one(c, c.lending...)}
	}
	for call.Limits == nil || call.Borrow && len(call.Limits) < 2 {
		call.Borrow = true
		if l := one(c, c.limits...); len(l.Limits[0].Rates) == 1 {
			call.Limits = append(call.Limits, l)
		}
	}
	if len(call.Limits) == 1 {
		call.Borrow = c.IntN(4) == 0
	}
	if call.Borrow && c.IntN(2) == 0 {
		call.Floor = c.percent()
	}
	call.Keys = limiterKeys[:2]
	if c.IntN(2) == 0 {
		call.Costs = []int64{c.cost()}
	}
	if call.Verb == model.Refund {
		call.Paid = one(c, int64(1), 2)
	}
}

func (c *Corners) plain(call *model.Call) {
	size := 0
	for range one(c, 1, 1, 1, 1, 2, 2, 3) {
		p := one(c, c.limits...)
		switch {
		case c.IntN(3) == 0:
			p = one(c, c.single...)
		case c.IntN(12) == 0 && size < 3:
			p = one(c, c.several...)
		}
		if size+len(p.Limits) <= len(limiterKeys) {
			call.Limits, size = append(call.Limits, p), size+len(p.Limits)
		}
	}
	from := 0
	if size < 3 && c.IntN(4) == 0 {
		from = 1
	}
	call.Keys = limiterKeys[from : from+size]
	switch c.IntN(4) {
	case 0, 1:
		call.Costs = []int64{c.cost()}
	case 2:
		for range size {
			call.Costs = append(call.Costs, c.cost())
		}
	}
	call.Each = c.IntN(3) == 0
	if call.Verb == model.Refund {
		return
	}
	switch c.IntN(8) {
	case 0, 1, 2:
		call.Upto = len(call.Costs) < 2
	case 3:
		call.Force = true
		return
	}
	if c.IntN(2) == 0 {
		c.leave(call)
	}
}

// leave draws FLOOR or CLASS.
func (c *Corners) leave(call *model.Call) {
	switch {
	case !Shares:
	case c.IntN(2) == 0:
		call.Floor = c.percent()
	case !slices.ContainsFunc(call.Limits, func(p model.Policy) bool { return p.Classes == nil && !p.AnyClass }):
		call.Class = one(c, classes...)
	}
}

func (c *Corners) cost() int64     { return one(c, int64(0), 1, 1, 2, 2, 3, 4, 5, 9) }
func (c *Corners) percent() *int64 { return new(one(c, int64(0), 1, 34, 50, 67, 100)) }
