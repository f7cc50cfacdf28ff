package generate

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Changes generates sequences of takes, peeks and refunds of one or two keys, with EACH. The clock
// often steps back, and the limits of a key change: in their numbers, and sometimes in the
// algorithm or in the number of rates.
func Changes() *rapid.Generator[[]Step] {
	return rapid.Custom(func(t *rapid.T) []Step {
		kept := pick(t, algorithms()...)
		limits := make([]model.Policy, between(t, 1, 3))
		for i := range limits {
			limits[i] = changing(t, kept)
		}
		step := rapid.Custom(func(t *rapid.T) Step {
			c := model.Call{Verb: pick(t, model.Take, model.Take, model.Take, model.Refund), Keys: slices.Clone(limiterKeys[:pick(t, 1, 1, 2)]), Each: true}
			for range c.Keys {
				c.Limits = append(c.Limits, pick(t, limits...))
				c.Costs = append(c.Costs, min(model.MaxCount, cost(t, c.Limits[len(c.Limits)-1].Limits[0])))
			}
			if c.Verb == model.Take {
				c.Force = pick(t, false, false, false, true)
			}
			if len(c.Costs) == 1 && c.Verb == model.Take {
				c.Upto = !c.Force && pick(t, false, false, true)
			}
			if Shares && c.Verb == model.Take && !c.Force && pick(t, false, false, true) {
				c.Floor = percent(t)
			}
			return Step{Move: back(t, limits), Call: c}
		})
		return rapid.SliceOfN(step, 2, 12).Draw(t, "steps")
	})
}

// changing draws a limit, usually of the algorithm `kept`, with small numbers, so that sequences reach
// the boundaries of the limit.
func changing(t *rapid.T, kept string) model.Policy {
	for {
		l := model.Limit{Algorithm: kept}
		if pick(t, false, false, false, false, true) {
			l.Algorithm = pick(t, algorithms()...)
		}
		for range pick(t, 1, 1, 1, 2) {
			r := model.Rate{N: pick(t, int64(2), 3, 5, 7, 10), Period: pick(t, "1s", "2s", "10s", "7ms", "1m", "3ms")}
			if l.Algorithm == "token_bucket" || l.Algorithm == "gcra" || l.Algorithm == "leaky_bucket" {
				r.Options = append(r.Options, fmt.Sprintf("burst=%d", pick(t, r.N, r.N+1, 2*r.N, (r.N+1)/2)))
			}
			if l.Algorithm == "sliding_window" && pick(t, false, true) {
				r.Period, r.Options = pick(t, "2s", "10s", "1m"), []string{pick(t, "buckets=2", "buckets=4")}
			}
			if l.Algorithm == "fixed_window" && pick(t, false, false, true) {
				r.Options = []string{"align=clock"}
			}
			l.Rates = append(l.Rates, r)
		}
		if !l.Refused() {
			return written(l)
		}
	}
}

// back draws a move of the clock: none, forward to a time at which a decision changes, or back.
func back(t *rapid.T, limits []model.Policy) Move {
	l := pick(t, limits...).Limits[0]
	r := pick(t, l.Rates...)
	us := pick(t, refill(r, 1), r.MS()*msUS, r.MS()*msUS/2, 2*r.MS()*msUS, refill(r, r.Capacity()), between(t, 1, 3*r.MS()*msUS))
	switch pick(t, "stay", "stay", "forward", "retry", "back", "back", "day") {
	case "forward":
		return Move{US: us + nudge(t)}
	case "retry":
		return Move{AfterRetry, nudge(t)}
	case "back":
		return Move{US: -us + nudge(t)}
	case "day":
		return Move{US: pick(t, -24*hourUS, 24*hourUS)}
	}
	return Move{}
}
