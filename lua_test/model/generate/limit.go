package generate

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// algorithms returns the names from which limit draws an algorithm. gcra occurs twice, because it
// is the default.
func algorithms() []string {
	names := slices.Sorted(maps.Keys(model.Algorithms))
	return append(slices.DeleteFunc(names, func(name string) bool { return model.Algorithms[name].Leases }), "gcra")
}

// limit draws a limit for take, or sometimes a policy.
func limit(t *rapid.T) model.Policy {
	if pick(t, false, false, true) {
		return pick(t, shared(policies, classed)...)
	}
	for tries := 1; ; tries++ {
		l := model.Limit{Algorithm: pick(t, algorithms()...)}
		if rapid.IntRange(0, 15).Draw(t, "never") == 15 {
			l.Rates = []model.Rate{{Period: pick(t, "m", "10s", "mo")}} // a count of 0, which always denies
			return written(l)
		}
		for range pick(t, 1, 1, 1, 2, 3) {
			r := rate(t, l.Algorithm)
			if most := model.MaxCount / r.MS() / 2; l.Algorithm == "sliding_window" && r.N > most {
				r.N = r.N%most + 1 // for larger n, SEMANTICS.md permits a deviation of one unit
			}
			l.Rates = append(l.Rates, r)
		}
		if !l.Refused() || tries == 5 {
			return written(l)
		}
	}
}

func leaseLimit(t *rapid.T) model.Policy {
	if pick(t, false, false, true) {
		return pick(t, shared(leasePolicies, leaseClassed)...)
	}
	n, period := pick(t, int64(1), 2, 3, 5, 5000, 5001), pick(t, "1ms", "7ms", "1s", "30s", "1h", "36500d")
	return written(model.Limit{Algorithm: "concurrency", Rates: []model.Rate{{N: n, Period: period}}})
}

func written(l model.Limit) model.Policy { return model.Policy{Limits: []model.Limit{l}} }

// plain lists common rates and some unusual ones.
var plain = []model.Rate{
	{N: 3, Period: "3s"}, {N: 5, Period: "10s"}, {N: 10, Period: "s"}, {N: 7, Period: "1s"}, {N: 3, Period: "10s"},
	{N: 100, Period: "m"}, {N: 1, Period: "365d"}, {N: 1000000, Period: "s"}, {N: 1000, Period: "h"}, {N: 13, Period: "7ms"},
	{N: 2, Period: "3ms"}, {N: 999983, Period: "h"}, {N: 1, Period: "ms"}, {N: 1, Period: "s"}, {N: 9, Period: "d"},
	{N: 60000007, Period: "d"}, {N: 1, Period: "36500d"}, {N: 365, Period: "36500d"},
	{N: 0, Period: "m"}, {N: 100000007, Period: "d"}, {N: 1<<31 - 1, Period: "7h"}, {N: 1<<40 + 1, Period: "h"}, {N: model.MaxCount, Period: "s"},
}

func rate(t *rapid.T, algorithm string) model.Rate {
	var r model.Rate
	if rapid.Bool().Draw(t, "any rate") {
		r = model.Rate{
			N:      pick(t, between(t, 1, 20), between(t, 1, 2000), between(t, 1, 1000000)),
			Period: fmt.Sprintf("%d%s", between(t, 1, 60), pick(t, "s", "ms", "m", "h", "d")),
		}
	} else {
		r = pick(t, plain...)
	}
	if algorithm == "fixed_window" && pick(t, false, false, true) {
		r.Period = pick(t, "d", "w", "mo", "mo", "y")
	}
	options := model.Algorithms[algorithm].Options
	for _, option := range slices.Sorted(maps.Keys(options)) {
		if word := pick(t, append(options[option](r), "", "")...); word != "" {
			r.Options = append(slices.Clone(r.Options), word)
		}
	}
	return r
}

// policies lists the library's policies for the generated calls. Limits are drawn for each
// sequence, but policies are the same for all sequences. They cover several keys, shadow, track,
// canaries for some of the keys, windows that begin on the last day of each month (from=31), and
// counts of 0.
var policies = []model.Policy{
	{Name: "one", Limits: []model.Limit{of("gcra", "5/10s")}},
	{Name: "two", Limits: []model.Limit{of("gcra", "10/s"), of("sliding_log", "3/10s")}},
	{Name: "track", Track: true, Limits: []model.Limit{of("fixed_window", "3/3s")}},
	{Name: "shadow", Shadow: true, Limits: []model.Limit{of("gcra", "3/3s")}},
	{Name: "shadow.two", Shadow: true, Limits: []model.Limit{of("token_bucket", "2/s", "5/10s"), of("fixed_window", "1/s")}},
	{Name: "shadow.rates", Shadow: true, Limits: []model.Limit{of("gcra", "3/3s", "5/10s")}},
	{Name: "shadow.queue", Shadow: true, Limits: []model.Limit{of("leaky_bucket", "7/s")}},
	{Name: "month", Limits: []model.Limit{{Algorithm: "fixed_window", Rates: []model.Rate{
		{N: 5, Period: "mo", Options: []string{"align=clock", "from=31", "zone=+05:30"}},
	}}}},
	{Name: "off", Limits: []model.Limit{of("gcra", "0/m")}},
	{Name: "shadow.off", Shadow: true, Limits: []model.Limit{of("gcra", "3/3s"), of("fixed_window", "0/h")}},
	{Name: "canary", Limits: []model.Limit{of("gcra", "5/10s")}, Share: 330,
		Canary: &model.Policy{Limits: []model.Limit{of("gcra", "2/3s")}}},
	{Name: "canary.two", Track: true, Limits: []model.Limit{of("gcra", "10/s"), of("fixed_window", "3/3s")}, Share: 300,
		Canary: &model.Policy{Limits: []model.Limit{of("sliding_log", "3/10s", "5/m"), of("gcra", "1/s")}, Shadow: true}},
	{Name: "shadow.canary", Shadow: true, Limits: []model.Limit{of("gcra", "3/3s")}, Share: 330,
		Canary: &model.Policy{Limits: []model.Limit{of("leaky_bucket", "3/3s")}}},
	{Name: "shadow.track", Shadow: true, Track: true, Limits: []model.Limit{of("sliding_window", "10/s")}},
}

var leasePolicies = []model.Policy{
	{Name: "leases", Limits: []model.Limit{of("concurrency", "2/30s")}},
	{Name: "canary.leases", Limits: []model.Limit{of("concurrency", "2/30s")}, Share: 500,
		Canary: &model.Policy{Limits: []model.Limit{of("concurrency", "1/7s")}, Shadow: true}},
	{Name: "shadow.leases", Shadow: true, Limits: []model.Limit{of("concurrency", "1/7s")}},
}

func of(algorithm string, rates ...string) model.Limit {
	l := model.Limit{Algorithm: algorithm}
	for _, text := range rates {
		var r model.Rate
		if _, err := fmt.Sscanf(text, "%d/%s", &r.N, &r.Period); err != nil {
			panic(err)
		}
		l.Rates = append(l.Rates, r)
	}
	return l
}

// Library builds the library with the policies of the generated calls.
func Library() (functions.Build, error) { return library(true) }

// Enforced is like Library, but none of the policies and canaries is a shadow.
func Enforced() (functions.Build, error) { return library(false) }

func library(shadows bool) (functions.Build, error) {
	var all []functions.Policy
	for _, p := range slices.Concat(policies, leasePolicies, shared(nil, classed), shared(nil, leaseClassed), shared(nil, lending)) {
		named := functions.Policy{Name: p.Name, Shadow: p.Shadow && shadows, Track: p.Track}
		for i, l := range p.Limits {
			named.Limits = append(named.Limits, functions.PolicyLimit{Key: fmt.Sprintf("key%d", i), Limit: l.String()})
		}
		if p.Canary != nil {
			named.Canary = &functions.Canary{Share: int(p.Share), Shadow: p.Canary.Shadow && shadows}
			for _, l := range p.Canary.Limits {
				named.Canary.Limits = append(named.Canary.Limits, l.String())
			}
		}
		Share(&named, p)
		all = append(all, named)
	}
	return functions.New(functions.WithPolicies(all...))
}

// cost draws a cost near the boundaries of a limit.
func cost(t *rapid.T, l model.Limit) int64 {
	b := pick(t, l.Rates...).Capacity()
	switch pick(t, "one", "one", "one", "one", "small", "part", "edge", "huge") {
	case "small":
		return between(t, 0, 3)
	case "part":
		return between(t, 0, b)
	case "edge":
		return max(0, min(model.MaxCount, pick(t, b, b-1, b+1, b/2, (b+1)/2)))
	case "huge":
		return min(model.MaxCount, pick(t, 0, model.MaxCount, model.MaxCount-1, 2*b))
	}
	return 1
}

// refill returns the time to refill the given units, in microseconds, rounded down, but at least 1.
func refill(r model.Rate, units int64) int64 {
	if r.N == 0 {
		return 1
	}
	us, _ := r.Refill(units).Float64()
	return max(1, int64(us*1000))
}
