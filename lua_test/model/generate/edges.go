package generate

import (
	"fmt"
	"math/big"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Edges generates sequences of takes, with and without FORCE, and of refunds, on keys whose limits have
// the largest numbers that the contract permits. Sums and products of such numbers are close to 2^53,
// and beyond it if they are computed in the wrong order.
func Edges() *rapid.Generator[[]Step] {
	return rapid.Custom(func(t *rapid.T) []Step {
		limits := make([]model.Policy, between(t, 1, 2))
		for i := range limits {
			limits[i] = large(t)
		}
		step := rapid.Custom(func(t *rapid.T) Step {
			l := pick(t, limits...)
			r := pick(t, l.Limits[0].Rates...)
			b := r.Capacity()
			c := model.Call{Verb: pick(t, model.Take, model.Take, model.Take, model.Take, model.Refund), Keys: limiterKeys[:1], Limits: []model.Policy{l}}
			just := justAbove(r)
			c.Costs = []int64{min(model.MaxCount, max(0, pick(t, 1, b, b, b/2, 2*b, between(t, 1, b), just, just, just-r.N)))}
			c.Force = c.Verb == model.Take && pick(t, false, true)
			if Shares && c.Verb == model.Take && !c.Force && pick(t, false, true) {
				c.Floor = percent(t)
			}
			us := pick(t, refill(r, 1), refill(r, b), refill(r, between(t, 1, b)), between(t, 1, 3*r.MS())*msUS)
			return Step{Move: pick(t, Move{}, Move{}, Move{}, Move{AfterRetry, nudge(t)}, Move{US: us + nudge(t)}, Move{US: -us + nudge(t)}), Call: c}
		})
		return rapid.SliceOfN(step, 2, 10).Draw(t, "steps")
	})
}

// large draws a limit whose time to refill, or whose sums, are close to what the contract permits.
func large(t *rapid.T) model.Policy {
	for {
		l := model.Limit{Algorithm: pick(t, "gcra", "gcra", "gcra", "leaky_bucket", "token_bucket", "token_bucket", "fixed_window", "sliding_log", "sliding_window")}
		for range pick(t, 1, 1, 1, 2) {
			l.Rates = append(l.Rates, largeRate(t, l.Algorithm))
		}
		if !l.Refused() || pick(t, false, false, false, true) {
			return written(l)
		}
	}
}

func largeRate(t *rapid.T, algorithm string) model.Rate {
	const longest = model.MaxPeriodMS
	switch pick(t, "any", "parts", "periods") {
	case "parts": // gcra counts a debt in fractions of a ms; here the count comes close to 2^53
		ms := longest - pick(t, 1, between(t, 1, longest/3))
		b := model.MaxCount / 2 / ms
		return model.Rate{N: b + between(t, 0, b/10), Period: fmt.Sprintf("%dms", ms), Options: burstOf(algorithm, b)}
	case "periods": // the refill of a token_bucket takes almost a whole period longer than b/n periods
		k, n := pick(t, int64(1), 2, 3), pick(t, int64(1000), 2000)+between(t, 0, 50)
		ms := longest/k - longest/pick(t, int64(100), 200, 300)
		return model.Rate{N: n, Period: fmt.Sprintf("%dms", ms), Options: burstOf(algorithm, k*n+between(t, 1, 3))}
	}
	ms := pick(t, longest, longest-1, between(t, 1, longest), between(t, 1, 1000000), 1)
	r := model.Rate{N: pick(t, between(t, 1, 3000), between(t, 1, 1<<32), between(t, 1, model.MaxCount)), Period: fmt.Sprintf("%dms", ms)}
	switch algorithm {
	case "sliding_log":
		r.N = r.N%50000 + 1
	case "sliding_window":
		r.N = r.N%max(1, model.MaxCount/(2*ms)) + 1 // for larger n, SEMANTICS.md permits a deviation of one unit
	case "gcra", "leaky_bucket", "token_bucket":
		// The largest burst that refills in time, and those whose debts are at most 2^53 parts.
		most := new(big.Int).Div(new(big.Int).Mul(big.NewInt(longest), big.NewInt(r.N)), big.NewInt(ms))
		b := min(model.MaxCount, most.Int64())
		if !most.IsInt64() {
			b = model.MaxCount
		}
		parts := model.MaxCount / 2 / max(1, min(ms, model.MaxCount/2))
		b = pick(t, b, b-1, b+1, between(t, 1, max(1, b)), min(b, parts), min(b, parts/1000))
		r.Options = burstOf(algorithm, b)
	}
	return r
}

// burstOf returns the option burst with a value close to b, if the algorithm has this option.
func burstOf(algorithm string, b int64) []string {
	switch algorithm {
	case "gcra", "leaky_bucket", "token_bucket":
		return []string{fmt.Sprintf("burst=%d", min(model.MaxCount, max(1, b)))}
	}
	return nil
}

// justAbove returns a cost, up to about twice the capacity if that is possible, that refills in a whole
// number of ms and the smallest part of a ms that is possible with this rate. If a sum is rounded, the
// wait for such a cost is most likely to be off by one ms.
func justAbove(r model.Rate) int64 {
	ms := r.Refill(1)
	inverse := new(big.Int).ModInverse(ms.Num(), ms.Denom())
	if inverse == nil {
		return r.Capacity()
	}
	q := ms.Denom().Int64()
	return inverse.Int64() + max(0, (2*r.Capacity()-1-inverse.Int64())/q*q)
}
