package histories

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// limits are those from which episodes draw. Their bursts are small, so that short histories reach
// them, and their periods are near the moves of the clock.
var limits = parse(
	"gcra 3/s", "gcra 5/10s", "gcra 2/3s burst=4", "gcra 7/m", "gcra 3/s, 5/10s", "gcra 3/7ms",
	"leaky_bucket 3/s", "leaky_bucket 5/10s burst=3",
	"token_bucket 2/s", "token_bucket 2/3s burst=5", "token_bucket 3/s, 5/10s",
	"fixed_window 3/s", "fixed_window 4/10s align=clock", "fixed_window 2/s, 5/m",
	"sliding_window 3/s", "sliding_window 5/10s buckets=5",
	"sliding_log 3/s", "sliding_log 5/10s", "sliding_log 2/s, 4/10s",
)

// leaseLimits are the limits of leases.
var leaseLimits = parse("concurrency 1/3s", "concurrency 2/10s", "concurrency 3/1s")

func parse(texts ...string) (all []model.Limit) {
	for _, text := range texts {
		algorithm, rates, _ := strings.Cut(text, " ")
		l := model.Limit{Algorithm: algorithm}
		for rate := range strings.SplitSeq(rates, ", ") {
			words := strings.Fields(rate)
			r := model.Rate{Options: words[1:]}
			if _, err := fmt.Sscanf(words[0], "%d/%s", &r.N, &r.Period); err != nil {
				panic(fmt.Sprintf("%q: %v", text, err))
			}
			l.Rates = append(l.Rates, r)
		}
		all = append(all, l)
	}
	return all
}

// policyNames are the policies that every version of the build has, with the number of their keys.
var policyNames = []struct {
	name string
	keys int
}{{"one", 1}, {"two", 2}, {"shadow", 1}, {"canary", 1}}

const leasePolicy = "jobs"

// Builds returns the policies of the versions of the build that a run deploys.
func Builds() []map[string]model.Policy {
	l := func(text string) []model.Limit { return parse(text) }
	of := func(all ...model.Policy) map[string]model.Policy {
		named := map[string]model.Policy{}
		for _, p := range all {
			named[p.Name] = p
		}
		return named
	}
	return []map[string]model.Policy{
		of(
			model.Policy{Name: "one", Limits: l("gcra 3/s")},
			model.Policy{Name: "two", Limits: parse("gcra 5/10s", "sliding_log 3/s")},
			model.Policy{Name: "shadow", Limits: l("gcra 2/s"), Shadow: true},
			model.Policy{Name: "canary", Limits: l("token_bucket 4/10s"), Share: 500, Canary: &model.Policy{Limits: l("gcra 2/s")}},
			model.Policy{Name: leasePolicy, Limits: l("concurrency 2/10s")},
		),
		of(
			model.Policy{Name: "one", Limits: l("gcra 2/s")},
			model.Policy{Name: "two", Limits: parse("fixed_window 4/10s", "sliding_log 2/s")},
			model.Policy{Name: "shadow", Limits: l("fixed_window 3/s")},
			model.Policy{Name: "canary", Limits: l("token_bucket 4/10s"), Share: 500, Canary: &model.Policy{Limits: l("gcra 3/s"), Shadow: true}},
			model.Policy{Name: leasePolicy, Limits: l("concurrency 1/3s")},
		),
	}
}

// Library returns the library with the policies of a build.
func Library(policies map[string]model.Policy) (functions.Build, error) {
	var all []functions.Policy
	for _, p := range policies {
		named := functions.Policy{Name: p.Name, Shadow: p.Shadow}
		for i, l := range p.Limits {
			named.Limits = append(named.Limits, functions.PolicyLimit{Key: fmt.Sprintf("key%d", i), Limit: l.String()})
		}
		if p.Canary != nil {
			named.Canary = &functions.Canary{Share: int(p.Share), Shadow: p.Canary.Shadow}
			for _, l := range p.Canary.Limits {
				named.Canary.Limits = append(named.Canary.Limits, l.String())
			}
		}
		all = append(all, named)
	}
	return functions.New(functions.WithPolicies(all...))
}

// episode draws the calls of one episode. It is not safe for concurrent use.
type episode struct {
	*rand.Rand
	tag    string // the hash tag of its keys
	leases bool
	many   []int // how many limits a call has
	limits []model.Policy
	over   []model.Limit // for overrides
	asked  []model.Call  // the calls with a request key so far
}

func newEpisode(seed, number uint64, tag string) *episode {
	e := &episode{Rand: rand.New(rand.NewPCG(seed, number)), tag: tag}
	e.leases = e.IntN(5) == 0
	from := limits
	if e.leases {
		from = leaseLimits
	}
	e.many = []int{1, 1, 1, 2}
	add := func() {
		e.limits = append(e.limits, model.Policy{Limits: []model.Limit{from[e.IntN(len(from))]}})
		e.over = append(e.over, from[e.IntN(len(from))])
	}
	for range 1 + e.IntN(2) {
		add()
	}
	switch {
	case e.IntN(3) > 0:
	case e.leases:
		e.limits[0] = model.Policy{Name: leasePolicy}
	default:
		e.limits[0] = model.Policy{Name: of(e, policyNames...).name}
		if e.limits[0].Name == "shadow" { // an enforced limit beside it decides whether it is charged
			add()
			e.many = []int{1, 2}
		}
	}
	return e
}

func (e *episode) key(name string) string { return "{" + e.tag + "}" + name }

// of draws one of the values. Values that occur several times are drawn more often.
func of[T any](e *episode, from ...T) T { return from[e.IntN(len(from))] }

// call draws a call.
func (e *episode) call() model.Call {
	keys := []string{e.key("a")}
	switch of(e, "call", "call", "call", "call", "call", "call", "call", "call", "call", "other") {
	case "other":
		switch verb := of(e, model.Block, model.Block, model.Unblock, model.Override, model.OverrideEnd, model.Reset); verb {
		case model.Block:
			return model.Call{Verb: verb, Keys: keys, SpanMS: of(e, int64(100), 1000, 5000), Extend: of(e, true, false)}
		case model.Override:
			l := e.over[e.IntN(len(e.over))]
			return model.Call{Verb: verb, Keys: keys, Limits: []model.Policy{{Limits: []model.Limit{l}}}, SpanMS: of(e, int64(300), 2000, 10000)}
		default:
			return model.Call{Verb: verb, Keys: keys}
		}
	}
	if e.leases {
		return model.Call{
			Verb: of(e, model.Acquire, model.Acquire, model.Acquire, model.Renew, model.Release), Keys: keys,
			Limits: []model.Policy{e.limits[e.IntN(len(e.limits))]}, Lease: of(e, "x", "y", "z", "w"),
		}
	}
	return e.decision(of(e, model.Take, model.Take, model.Take, model.Take, model.Take, model.Take, model.Peek, model.Refund, model.Usage))
}

// decision draws a call of the verb: take, peek, refund, or usage, which reads what takes have counted.
func (e *episode) decision(verb string) model.Call {
	c := model.Call{Verb: verb}
	if verb == model.Usage {
		c.Keys = []string{e.key("usage")}
		return c
	}
	names := []string{"a", "b", "c"}
	for range of(e, e.many...) {
		p := e.limits[e.IntN(len(e.limits))]
		n := 1
		for _, named := range policyNames {
			if named.name == p.Name {
				n = named.keys
			}
		}
		if len(c.Keys)+n > len(names) {
			break
		}
		for range n {
			c.Keys = append(c.Keys, e.key(names[len(c.Keys)]))
		}
		c.Limits = append(c.Limits, p)
	}
	switch e.IntN(4) {
	case 0:
		c.Costs = []int64{of(e, int64(0), 1, 2, 2, 3, 4)}
	case 1:
		for range c.Keys {
			c.Costs = append(c.Costs, of(e, int64(1), 1, 2, 3))
		}
	}
	c.Each = e.IntN(6) == 0
	if verb != model.Refund && len(c.Costs) == 1 {
		c.Upto = e.IntN(2) == 0
	}
	if verb == model.Peek {
		return c
	}
	if verb == model.Refund {
		return e.request(c)
	}
	c.Force = !c.Upto && e.IntN(10) == 0
	if e.IntN(8) == 0 {
		c.Track, c.Usage = true, e.key("usage")
	}
	return e.request(c)
}

// request sometimes adds a request key to a call, or returns an earlier call with one.
func (e *episode) request(c model.Call) model.Call {
	switch {
	case e.IntN(5) > 0:
		return c
	case len(e.asked) > 0 && e.IntN(2) == 0:
		return e.asked[e.IntN(len(e.asked))]
	}
	c.OnceMS, c.OnceKey = of(e, int64(1000), 60000), e.key(fmt.Sprintf("request%d", len(e.asked)))
	e.asked = append(e.asked, c)
	return c
}

// move draws a move of the clock, in µs. retry is the last retry_after_ms that the actor has seen.
func (e *episode) move(retry int64) int64 {
	switch e.IntN(12) {
	case 0:
		return -of(e, int64(1), 1000, 300_000, 2_000_000, 3_600_000_000)
	case 1:
		return of(e, int64(20_000_000), 100_000_000)
	case 2, 3, 4, 5:
		if retry > 0 && retry < 20_000 {
			return retry*1000 - of(e, int64(0), 0, 1, 1000)
		}
	}
	return of(e, int64(1), 1000, 1000, 50_000, 333_333, 700_000, 1_000_000)
}
