package generate

import (
	"math/big"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/internal/model"
)

var algorithms = []string{
	model.GCRA, model.GCRA, model.LeakyBucket, model.TokenBucket, model.FixedWindow, model.SlidingWindow, model.SlidingLog,
}

// limit draws a limit for take.
func limit(t *rapid.T) model.Limit {
	l := model.Limit{Algorithm: pick(t, algorithms...)}
	for range pick(t, 1, 1, 1, 2, 3) {
		l.Rates = append(l.Rates, rate(t, l.Algorithm))
	}
	return l
}

func leaseLimit(t *rapid.T) model.Limit {
	return model.Limit{Algorithm: model.Concurrency, Rates: []model.Rate{{
		N:      pick(t, int64(1), 2, 3, 5, model.MostLeases),
		Period: pick(t, period(1, "ms"), period(7, "ms"), period(1, "s"), period(30, "s"), period(1, "h"), period(36500, "d")),
	}}}
}

func period(k int64, unit string) model.Period { return model.Period{K: k, Unit: unit} }

// plain are rates as people write them, the awkward ones among them.
var plain = []model.Rate{
	{N: 3, Period: period(3, "s")}, {N: 5, Period: period(10, "s")}, {N: 10, Period: period(1, "s")},
	{N: 7, Period: period(1, "s")}, {N: 3, Period: period(10, "s")}, {N: 100, Period: period(1, "m")},
	{N: 1, Period: period(365, "d")}, {N: 1000000, Period: period(1, "s")}, {N: 1000, Period: period(1, "h")},
	{N: 13, Period: period(7, "ms")}, {N: 2, Period: period(3, "ms")},
	{N: 999983, Period: period(1, "h")}, {N: 1, Period: period(1, "ms")}, {N: 1, Period: period(1, "s")},
	{N: 9, Period: period(1, "d")}, {N: 60000007, Period: period(1, "d")},
	{N: 1, Period: period(36500, "d")}, {N: 365, Period: period(36500, "d")},
}

func rate(t *rapid.T, algorithm string) model.Rate {
	var r model.Rate
	if rapid.Bool().Draw(t, "any rate") {
		r = model.Rate{
			N:      pick(t, between(t, 1, 20), between(t, 1, 2000), between(t, 1, 1000000)),
			Period: period(between(t, 1, 60), pick(t, "s", "ms", "m", "h", "d")),
		}
	} else {
		r = pick(t, plain...)
	}
	switch algorithm {
	case model.GCRA, model.LeakyBucket, model.TokenBucket:
		r.Burst = pick(t, 0, 0, 1, 2, r.N, 2*r.N, r.N+1, (r.N+1)/2, 10*r.N, between(t, 1, 100))
		if r.RefillMS() > model.MaxPeriodMS || r.TooFine() {
			r.Burst = 0
		}
	case model.SlidingLog:
		r.N = min(r.N, model.MostLogged/9) // up to three rates on each of three keys
	case model.FixedWindow:
		r.Align = rapid.Bool().Draw(t, "align")
	case model.SlidingWindow:
		r.Buckets = pick(t, int64(0), 1, 2, 3, 5, 10, 60, model.MostBuckets/9/5*5)
		if r.Buckets > 0 && r.Period.MS()%r.Buckets != 0 {
			r.Buckets = 0
		}
	}
	return r
}

// cost draws a cost about the edges of a limit.
func cost(t *rapid.T, l model.Limit) int64 {
	b := pick(t, l.Rates...).Capacity()
	switch pick(t, "one", "one", "one", "one", "small", "part", "edge", "huge") {
	case "small":
		return between(t, 0, 3)
	case "part":
		return between(t, 0, b)
	case "edge":
		return pick(t, b, b-1, b+1, b/2, (b+1)/2)
	case "huge":
		return pick(t, 0, model.MaxCount, model.MaxCount-1, 2*b)
	}
	return 1
}

// emission is a rate's emission interval in microseconds, or at least one.
func emission(r model.Rate) int64 { return max(1, r.EmissionUS()) }

// afterUnits is when so many units have come back, in microseconds rounded down.
func afterUnits(r model.Rate, units int64) int64 {
	us := new(big.Int).Mul(big.NewInt(units), big.NewInt(r.Period.MS()*1000))
	return us.Div(us, big.NewInt(r.N)).Int64()
}
