package generate

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Shares is whether the library knows FLOOR, CLASS and BORROW. If it is false, no call has them,
// and no policy has classes, or a guarantee and a pool.
var Shares = true

// Share sets the fields of a policy that CLASS and BORROW need.
func Share(named *functions.Policy, p model.Policy) {
	for class, percent := range p.Classes {
		if named.Classes == nil {
			named.Classes = map[string]int{}
		}
		named.Classes[class] = int(percent)
	}
	named.AnyClass, named.Borrow, named.Floor = p.AnyClass, p.Borrow, int(p.Floor)
	if named.Canary != nil {
		named.Canary.Floor = int(p.Canary.Floor)
	}
}

// classed lists policies with classes: with and without the class default, with several keys, of a
// shadow, and with a canary.
var classed = []model.Policy{
	{Name: "class", Limits: []model.Limit{of("gcra", "10/s")}, Classes: map[string]int64{"default": 20, "batch": 50, "critical": 0}},
	{Name: "class.two", Limits: []model.Limit{of("fixed_window", "7/s", "5/10s"), of("gcra", "5/10s")}, Classes: map[string]int64{"batch": 33, "critical": 100}},
	{Name: "class.any", Limits: []model.Limit{of("token_bucket", "5/10s")}, AnyClass: true},
	{Name: "class.off", Limits: []model.Limit{of("gcra", "0/m")}, Classes: map[string]int64{"default": 50, "batch": 50}},
	{Name: "class.shadow", Shadow: true, Limits: []model.Limit{of("sliding_log", "3/3s")}, Classes: map[string]int64{"default": 1, "batch": 50}},
	{Name: "class.canary", Track: true, Limits: []model.Limit{of("gcra", "5/10s")}, Classes: map[string]int64{"default": 10, "batch": 60}, Share: 330,
		Canary: &model.Policy{Limits: []model.Limit{of("sliding_window", "10/s")}, Shadow: true}},
}

var leaseClassed = []model.Policy{
	{Name: "class.leases", Limits: []model.Limit{of("concurrency", "3/30s")}, Classes: map[string]int64{"default": 20, "batch": 50, "critical": 0}},
	{Name: "class.leases.shadow", Shadow: true, Limits: []model.Limit{of("concurrency", "2/7s")}, Classes: map[string]int64{"batch": 100}},
}

// lending lists policies with a guarantee and a pool. They must be the only limit of a call.
var lending = []model.Policy{
	{Name: "lend", Borrow: true, Floor: 40, Limits: []model.Limit{of("gcra", "2/s"), of("gcra", "10/s")}},
	{Name: "lend.all", Borrow: true, Track: true, Limits: []model.Limit{of("fixed_window", "3/10s"), of("token_bucket", "5/10s")}},
	{Name: "lend.canary", Borrow: true, Floor: 80, Limits: []model.Limit{of("gcra", "3/3s"), of("sliding_window", "10/s")}, Share: 330,
		Canary: &model.Policy{Floor: 20, Limits: []model.Limit{of("leaky_bucket", "2/s"), of("sliding_log", "3/3s")}}},
}

// shared returns list, and more if the library knows them.
func shared(list, more []model.Policy) []model.Policy {
	if Shares {
		return slices.Concat(list, more)
	}
	return list
}

var classes = []string{"default", "batch", "critical"}

// percent draws what FLOOR or BORROW leaves.
func percent(t *rapid.T) *int64 {
	return new(pick(t, 0, 1, 20, 50, 50, 80, 99, 100, between(t, 0, 100)))
}

// leave draws FLOOR or CLASS for a call, or mostly neither. Some classes are unknown.
func leave(t *rapid.T, c *model.Call) {
	if !Shares {
		return
	}
	classes := classes
	if slices.ContainsFunc(c.Limits, func(p model.Policy) bool { return p.Classes == nil && !p.AnyClass }) && pick(t, false, true, true, true, true) {
		classes = []string{""} // the library rejects every class
	}
	switch pick(t, "", "", "", "", "floor", "floor", "class", "class", "wrong") {
	case "floor":
		c.Floor = percent(t)
	case "class":
		c.Class = pick(t, classes...)
	case "wrong": // a percentage above 100, an unknown class, or both words
		c.Floor, c.Class = pick(t, nil, percent(t), new(int64(101))), pick(t, "", "gold", "batch")
	}
}

// lend draws a take, a peek or a refund of a guarantee and a pool. Some have other words or limits, which
// the library rejects.
func (p pool) lend(t *rapid.T, c *model.Call) {
	var limits []model.Limit
	if pick(t, false, false, true) {
		policy := pick(t, lending...)
		c.Limits, limits, c.Borrow = []model.Policy{policy}, policy.Limits, pick(t, false, true)
	} else {
		plain := slices.DeleteFunc(slices.Clone(p.limits), func(l model.Policy) bool { return l.Name != "" || len(l.Limits[0].Rates) > 1 })
		plain = append(plain, written(of("gcra", "3/3s")), written(of("gcra", "10/s")))
		c.Borrow, c.Floor = true, pick(t, nil, percent(t), percent(t))
		for range pick(t, 2, 2, 2, 2, 2, 2, 2, 1, 3) {
			c.Limits = append(c.Limits, pick(t, plain...))
		}
		if pick(t, false, false, false, false, false, false, false, true) {
			c.Limits[0] = pick(t, p.limits...)
		}
		for _, l := range c.Limits {
			limits = append(limits, l.Limits...)
		}
	}
	c.Keys = keys(t, limiterKeys, len(limits), len(limits))
	if pick(t, false, true) {
		c.Costs = []int64{cost(t, pick(t, limits...))}
	}
	if c.Verb == model.Refund {
		c.Paid = pick(t, int64(1), 1, 1, 2, 2, 2, 0, 3)
	}
	switch pick(t, "", "", "", "", "", "", "", "", "", "UPTO", "EACH", "CLASS", "PAID") {
	case "UPTO":
		c.Upto = c.Verb != model.Refund
	case "EACH":
		c.Each = true
	case "CLASS":
		c.Class = "batch"
	case "PAID":
		c.Paid = 1
	}
}

// Loans generates sequences of takes and refunds of a guarantee and a pool. Other callers share the
// pool: they take from it with FLOOR, or with FORCE, and have guarantees of their own. The clock often
// steps back, and the limits change.
func Loans() *rapid.Generator[[]Step] {
	return rapid.Custom(func(t *rapid.T) []Step {
		kept := pick(t, algorithms()...)
		var limits []model.Policy
		for range pick(t, 2, 2, 3) {
			l := changing(t, kept)
			l.Limits[0].Rates = l.Limits[0].Rates[:1]
			limits = append(limits, l)
		}
		step := rapid.Custom(func(t *rapid.T) Step {
			guarantee, shared := limits[0], limits[1]
			if pick(t, false, false, false, true) {
				guarantee, shared = pick(t, limits...), pick(t, limits...)
			}
			c := model.Call{Verb: pick(t, model.Take, model.Take, model.Take, model.Take, model.Refund)}
			c.Costs = []int64{min(model.MaxCount, cost(t, pick(t, guarantee, shared).Limits[0]))}
			if pick(t, false, false, false, true) {
				c.Keys, c.Limits = []string{limiterKeys[1]}, []model.Policy{shared}
				if c.Verb == model.Take {
					c.Floor = pick(t, nil, percent(t))
					c.Force = c.Floor == nil && pick(t, false, true)
				}
			} else {
				c.Keys, c.Limits = []string{pick(t, limiterKeys[0], limiterKeys[0], limiterKeys[2]), limiterKeys[1]}, []model.Policy{guarantee, shared}
				c.Borrow, c.Floor = true, pick(t, nil, percent(t), percent(t))
				if c.Verb == model.Refund {
					c.Paid = pick(t, int64(1), 2)
				}
			}
			return Step{Move: back(t, limits), Call: c}
		})
		return rapid.SliceOfN(step, 2, 12).Draw(t, "steps")
	})
}
