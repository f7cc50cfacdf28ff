package lua_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/agree"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// exactTakes returns the approximate number of takes in TestExactness. If RATELIMIT_SOAK is set,
// there are more than a million.
func exactTakes() int {
	if os.Getenv("RATELIMIT_SOAK") != "" {
		return 1200000
	}
	return 50000
}

var exactRates = []model.Rate{
	{N: 1, Period: "365d", Options: []string{"burst=100"}},
	{N: 7, Period: "1s"},
	{N: 999983, Period: "1h"},
	{N: 1000000, Period: "1s"},
	{N: 3, Period: "10s"},
	{N: 60000007, Period: "1d", Options: []string{"burst=1000"}},
	{N: 100000007, Period: "1d"},
	{N: 13, Period: "7ms"},
	{N: 100, Period: "1m"},
}

// TestExactness makes many takes, and checks that the library admits exactly those that exact
// arithmetic admits. It also checks that a denied call is allowed at retry_after and not a
// millisecond earlier. If the contract rounds the emission interval, the exact arithmetic uses the
// rounded interval. For such rates, a second test uses the interval without rounding: the numbers
// of admitted takes of cost 1 must never differ by more than one.
func TestExactness(t *testing.T) {
	server := offline{start(t)}
	each := exactTakes() / (2 * len(exactRates))
	total := 0
	for _, algorithm := range []string{"gcra", "leaky_bucket"} {
		for _, r := range exactRates {
			l := model.Limit{Algorithm: algorithm, Rates: []model.Rate{r}}
			interval, unit := r.Emission()
			perfectly := &perfect{capacity: r.Capacity(), interval: interval.Num().Int64(), parts: interval.Denom().Int64(), clock: unit}
			t.Run(l.String(), func(t *testing.T) {
				total += each
				takeManyTimes(t, server, l, perfectly, each, 0)
			})
			if exact := big.NewRat(r.MS()*1000, r.N); exact.Cmp(interval) != 0 {
				perfectly.interval, perfectly.parts = exact.Num().Int64(), exact.Denom().Int64()
				t.Run(l.String()+" of cost 1", func(t *testing.T) {
					total += each
					takeManyTimes(t, server, l, perfectly, each, 1)
				})
			}
		}
	}
	t.Logf("%d takes", total)
}

// perfect is a limiter that computes with exact integers. The unit of interval and debt is 1/parts
// of a microsecond.
type perfect struct {
	capacity, interval, parts int64
	clock                     int64 // resolution of the clock, in microseconds
	at, debt                  int64
}

func (p *perfect) take(now, cost int64) bool {
	now -= now % p.clock
	if passed := now - p.at; passed > p.debt/p.parts {
		p.debt = 0
	} else {
		p.debt -= passed * p.parts
	}
	p.at = now
	if p.debt > (p.capacity-cost)*p.interval {
		return false
	}
	p.debt += cost * p.interval
	return true
}

// takeManyTimes compares the takes that server and exact admit. tolerance is the maximum difference
// between the numbers of admitted takes. If tolerance is not 0, the first take empties the limiter,
// and all other takes have cost 1.
func takeManyTimes(t *testing.T, server agree.Server, l model.Limit, exact *perfect, takes, tolerance int) {
	r := l.Rates[0]
	exact.at, exact.debt = generate.StartUS, 0
	must[any](t)(server.Do("FLUSHALL"))
	random := rand.New(rand.NewPCG(1, uint64(r.N)))
	now, admitted, ideal := generate.StartUS, 0, 0
	for i := range takes {
		cost := costOf(random, r)
		if tolerance > 0 {
			cost = 1
			if i == 0 {
				cost = r.Capacity()
			}
		}
		if i > 0 {
			now += pause(random, r, cost, takes)
		}
		require(t, server.SetTime(now))
		reply := must[[6]int64](t)(decision(server, model.Call{Verb: model.Take, Keys: []string{"{v}:a"}, Limits: []model.Policy{{Limits: []model.Limit{l}}}, Costs: []int64{cost}}))
		if reply[0] == 1 {
			admitted++
		}
		if exact.take(now, cost) {
			ideal++
		}
		if d := admitted - ideal; d < -tolerance || d > tolerance {
			t.Fatalf("after %d takes %d are admitted, %d in exact arithmetic", i+1, admitted, ideal)
		}
		if reply[0] == 0 && reply[3] > 0 && i%8 == 0 {
			retryIsExact(t, server, l, cost, now, reply[3])
		}
	}
	if admitted == 0 || admitted == takes {
		t.Errorf("%d of %d takes were admitted; the test needs both admitted and denied takes", admitted, takes)
	}
}

func costOf(random *rand.Rand, r model.Rate) int64 {
	if random.IntN(4) > 0 {
		return 1
	}
	return 1 + random.Int64N(r.Capacity())
}

// pause returns a random time to wait before the next take, in µs. The average is slightly shorter
// than the time in which cost units are refilled. It is shorter still if all pauses together could
// otherwise exceed 26 years.
func pause(random *rand.Rand, r model.Rate, cost int64, takes int) int64 {
	refill := float64(r.MS()) * 1000 / float64(r.N) * float64(cost)
	most := min(1.7*refill, 8e14/float64(takes))
	return int64(most * random.Float64())
}

// retryIsExact checks the retry_after of a call that was denied. now is the time of the denial in
// µs, and retry is its retry_after in ms. The call must be allowed retry ms later, and still denied
// one millisecond before.
func retryIsExact(t *testing.T, server agree.Server, l model.Limit, cost, now, retry int64) {
	t.Helper()
	for _, row := range []struct{ after, allowed int64 }{{(retry - 1) * 1000, 0}, {retry * 1000, 1}} {
		require(t, server.SetTime(now+row.after))
		reply := must[[6]int64](t)(decision(server, model.Call{Verb: model.Peek, Keys: []string{"{v}:a"}, Limits: []model.Policy{{Limits: []model.Limit{l}}}, Costs: []int64{cost}}))
		if reply[0] != row.allowed {
			t.Fatalf("denied at %d us with a retry after %d ms; %d us later the reply is %v", now, retry, row.after, reply)
		}
	}
	require(t, server.SetTime(now))
}

// decision makes a call whose reply is a decision, and returns that decision.
func decision(server agree.Server, c model.Call) ([6]int64, error) {
	reply, err := server.Do(c.Words()...)
	if err != nil {
		return [6]int64{}, err
	}
	var fields [6]int64
	list, ok := reply.([]any)
	if !ok || len(list) < len(fields) {
		return fields, fmt.Errorf("%v is not a decision", reply)
	}
	for i := range fields {
		n, ok := list[i].(int64)
		if !ok {
			return fields, fmt.Errorf("field %d of %v is not an integer", i+1, reply)
		}
		fields[i] = n
	}
	return fields, nil
}
