package backtest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustKey(t testing.TB, text string) Key {
	t.Helper()
	key := must[Key](t)(ParseKey(text))
	return key
}

// options returns options for a run on two engines.
func options(t testing.TB, limits ...string) Options {
	t.Helper()
	opts := Options{Library: functions.Source(), Workers: 2, Unsorted: time.Minute, Worst: 10, Key: mustKey(t, "client"),
		Periods: []time.Duration{time.Second, 10 * time.Second, time.Minute}}
	for _, limit := range limits {
		opts.Candidates = append(opts.Candidates, Candidate{limit, []Key{opts.Key}})
	}
	return opts
}

// opened returns the function that Run calls to open the inputs.
func opened(inputs ...Input) func() ([]Input, error) {
	return func() ([]Input, error) { return inputs, nil }
}

func replay(t testing.TB, opts Options, logs ...string) *Report {
	t.Helper()
	var inputs []Input
	for i, log := range logs {
		inputs = append(inputs, Input{fmt.Sprintf("log%d", i+1), strings.NewReader(log)})
	}
	report := must[*Report](t)(Run(t.Context(), opened(inputs...), opts))
	return report
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type hit struct {
	after int64 // ms
	key   string
	cost  int64
}

// csvOf returns hits as a log in CSV.
func csvOf(hits []hit) string {
	log := strings.Builder{}
	log.WriteString("time,client,cost\n")
	for _, h := range hits {
		fmt.Fprintf(&log, "%d,%s,%d\n", noon.UnixMilli()+h.after, h.key, h.cost)
	}
	return log.String()
}

// cases is the number of generated logs that a test replays. Each needs several engines, which take
// time to start.
const cases = 24

// drawHits returns random hits within 90 s, unsorted, and sets the options for their costs.
func drawHits(dice *rand.Rand, opts *Options) []hit {
	hits := make([]hit, 1+dice.IntN(400))
	for i := range hits {
		hits[i] = hit{dice.Int64N(90_000), string(rune('a' + min(dice.IntN(8), dice.IntN(8), dice.IntN(8)))), 1}
	}
	if dice.IntN(3) > 0 {
		opts.Cost, opts.After = "cost", dice.IntN(2) > 0
		for i := range hits {
			hits[i].cost = min(dice.Int64N(10), dice.Int64N(10))
		}
	}
	return hits
}

// The report agrees with a model that has no engines, workers or heaps.
func TestNaive(t *testing.T) {
	for seed := range uint64(cases) {
		dice := rand.New(rand.NewPCG(seed, 1))
		opts := options(t)
		hits := drawHits(dice, &opts)
		n, burst, seconds := 1+dice.Int64N(6), 1+dice.Int64N(6), 1+dice.Int64N(30)
		log := csvOf(hits)
		slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.after, b.after) })
		limits := []string{fmt.Sprintf("sliding_log %d/%ds", n, seconds), fmt.Sprintf("fixed_window %d/%ds", n, seconds), fmt.Sprintf("gcra %d/%ds burst=%d", n, seconds, burst)}
		opts.Candidates = options(t, limits...).Candidates
		opts.Unsorted = 90 * time.Second
		opts.Workers = 1 + dice.IntN(3)
		report := replay(t, opts, log)
		came := count(hits)
		for i, result := range report.Limits {
			capacity := n
			if i == 2 {
				capacity = burst
			}
			denied := naive(hits, strings.Fields(limits[i])[0], n, seconds*1000, burst, ruleOf(opts))
			sums := count(denied)
			above := slices.DeleteFunc(slices.Clone(hits), func(h hit) bool { return h.cost <= capacity })
			units := Units{came.units - sums.units, sums.units}
			if result.Limit != limits[i] || result.Requests != int64(len(hits)) || result.Denied != sums.requests || result.Allowed != result.Requests-result.Denied ||
				result.Keys != int64(len(came.keys)) || result.KeysDenied != int64(len(sums.keys)) || result.Units != units || result.Capacity != capacity || result.Above != int64(len(above)) {
				t.Fatalf("seed %d: %s: %+v, want %+v of %+v", seed, limits[i], result, sums, came)
			}
			for j, worst := range result.Worst {
				got := [4]int64{worst.Denied, worst.Requests, worst.UnitsDenied, worst.Units}
				a, b := sums.keys[worst.Key], came.keys[worst.Key]
				if want := [4]int64{a[0], b[0], a[1], b[1]}; got != want || j > 0 && worst.Denied > result.Worst[j-1].Denied {
					t.Fatalf("seed %d: %s: %+v, want %v of %v", seed, limits[i], result.Worst, sums, came)
				}
			}
			if last := len(denied) - 1; last >= 0 && (result.FirstDenied.UnixMilli() != noon.UnixMilli()+denied[0].after || result.LastDenied.UnixMilli() != noon.UnixMilli()+denied[last].after) {
				t.Fatalf("seed %d: %s: from %v to %v", seed, limits[i], result.FirstDenied, result.LastDenied)
			}
			var sum Interval
			for _, moment := range result.Series {
				sum.Allowed += moment.Allowed
				sum.Denied += moment.Denied
				sum.Units = sum.plus(moment.Units)
			}
			if (sum != Interval{result.Allowed, result.Denied, result.Units}) {
				t.Fatalf("seed %d: %s: the series adds up to %+v", seed, limits[i], sum)
			}
		}
	}
}

// Under a suggested limit, at least the given share of keys is never denied. If n or burst were
// smaller by one, more keys would be denied than the share permits.
func TestSuggestions(t *testing.T) {
	for seed := range uint64(cases) {
		dice := rand.New(rand.NewPCG(seed, 2))
		opts := options(t, "60/h") // suggestions start from empty engines, so this limit does not affect them
		hits := drawHits(dice, &opts)
		for i := range hits { // with these periods, curves are exact if times are whole seconds
			hits[i].after -= hits[i].after % 1000
		}
		slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.after, b.after) })
		opts.Share = []float64{0.01, 0.25, 0.5, 0.75, 0.99, 1}[dice.IntN(6)]
		report := replay(t, opts, csvOf(hits))
		came := count(hits)
		r := ruleOf(opts)
		if opts.After { // a suggested limit has room for every cost, so there is no debt
			r.most, r.debt = math.MaxInt64, false
		}
		untouched := func(algorithm string, n, period, burst int64) bool {
			denied := count(naive(hits, algorithm, n, period, burst, r))
			return float64(len(came.keys)-len(denied.keys)) >= opts.Share*float64(len(came.keys))
		}
		for i, p := range report.Periods {
			ms := p.Period.Milliseconds()
			switch result := report.Limits[1+i]; {
			case !untouched("sliding_log", p.N, ms, 0), !untouched("gcra", p.N, ms, p.Burst):
				t.Fatalf("seed %d: %+v touches too many", seed, p)
			case p.N > 1 && untouched("sliding_log", p.N-1, ms, 0):
				t.Fatalf("seed %d: %+v: n is too large", seed, p)
			case p.Burst > 1 && untouched("gcra", p.N, ms, p.Burst-1), p.Burst > p.N:
				t.Fatalf("seed %d: %+v: burst is too large", seed, p)
			case result.Suggested == nil || result.Limit != p.Limit || result.Requests != int64(len(hits)):
				t.Fatalf("seed %d: %+v", seed, result)
			default:
				denied := count(naive(hits, "gcra", p.N, ms, p.Burst, ruleOf(opts)))
				if result.Denied != denied.requests || result.Units.Denied != denied.units || result.KeysDenied != int64(len(denied.keys)) {
					t.Fatalf("seed %d: %+v, want %+v", seed, result, denied)
				}
			}
			for _, point := range p.Curve {
				var want Point
				for _, n := range trailing(hits, ms, r) {
					touched := int64(0)
					for _, count := range n {
						if count > point.N {
							touched++
						}
					}
					want.Requests += touched
					want.Keys += min(touched, 1)
				}
				if point.Keys != want.Keys || point.Requests != want.Requests {
					t.Fatalf("seed %d: %v: %+v, want %+v", seed, p.Period, point, want)
				}
			}
			if last := p.Curve[len(p.Curve)-1]; last.Keys != 0 || p.Worst[0].Most != p.Most || last.N < p.Most {
				t.Fatalf("seed %d: %+v", seed, p)
			}
		}
	}
}

// trailing returns, for each key and each request, the smallest n that allows the request: the
// units that it needs, plus the costs of the key's other requests in the period that ends with the
// request.
func trailing(hits []hit, period int64, r rule) map[string][]int64 {
	counts := map[string][]int64{}
	for i, h := range hits {
		n := r.need(h.cost)
		for _, other := range hits[:i] {
			if n > 0 && other.key == h.key && other.after > h.after-period {
				n += other.cost
			}
		}
		counts[h.key] = append(counts[h.key], n)
	}
	return counts
}

// For logs of any length, a time line counts each decision in the interval that contains its time,
// however the decisions are split among the workers.
func TestSeries(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 3))
		long := int64(1000) << dice.IntN(40) // up to 35 years
		var times []int64
		for range 300 {
			times = append(times, noon.UnixMilli()+dice.Int64N(long))
		}
		slices.Sort(times)
		var parts [2]series
		for i, at := range times {
			if i%3 == 0 {
				parts[dice.IntN(2)].add(at/1000, Interval{Denied: 1, Units: Units{Denied: at % 7}})
			} else {
				parts[dice.IntN(2)].add(at/1000, Interval{Allowed: 1})
			}
		}
		parts[0].merge(parts[1])
		s := parts[0]
		got := s.moments()
		first := times[0] / 1000 / s.width()
		want := make([]Moment, times[len(times)-1]/1000/s.width()-first+1)
		for i := range want {
			want[i].Start = time.Unix((first+int64(i))*s.width(), 0).UTC()
		}
		for i, at := range times {
			if place := at/1000/s.width() - first; i%3 == 0 {
				want[place].Denied++
				want[place].Units.Denied += at % 7
			} else {
				want[place].Allowed++
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: intervals of %d s: %v, want %v", seed, s.width(), got, want)
		}
		if n := len(want); n > mostIntervals && s.level < len(widths)-1 {
			t.Fatalf("seed %d: %d intervals of %d s", seed, n, s.width())
		}
	}
}

// A curve counts the requests within a span that is at most 1/256 longer than the period.
func TestPeaks(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 4))
		period := 1000 + dice.Int64N(1_000_000)
		longer := period + max(1, period/marksPerPeriod)
		var k peak
		var hits []hit
		for range 500 {
			h := hit{dice.Int64N(period / 50), "", 1 + dice.Int64N(9)}
			if len(hits) > 0 {
				h.after += hits[len(hits)-1].after
			}
			hits = append(hits, h)
			sum := func(period int64) (n int64) {
				for _, other := range hits {
					if other.after > h.after-period {
						n += other.cost
					}
				}
				return n
			}
			if got := k.add(h.after, period, h.cost, h.cost); got < sum(period) || got > sum(longer) {
				t.Fatalf("seed %d: %d within %d ms at %d, want %d to %d", seed, got, period, h.after, sum(period), sum(longer))
			}
		}
		if len(k.marks) > marksPerPeriod*4/3+2 {
			t.Fatalf("seed %d: %d marks", seed, len(k.marks))
		}
	}
}

// BenchmarkRun replays a log in the Combined Log Format with 10,000 clients, a few of which send
// most of the requests.
func BenchmarkRun(b *testing.B) {
	dice := rand.New(rand.NewPCG(7, 42))
	zipf := rand.NewZipf(dice, 1.2, 20, 9999)
	var log strings.Builder
	for i := range 100_000 {
		who := zipf.Uint64()
		log.WriteString(line(noon.Add(time.Duration(i)*time.Second/10), fmt.Sprintf("198.18.%d.%d", who/250, who%250), "-", "/api/items?page=2"))
	}
	for _, limit := range []string{"60/m burst=20", "fixed_window 60/m", "sliding_window 60/m", "sliding_log 60/m"} {
		b.Run(limit, func(b *testing.B) {
			decisions := int64(0)
			for b.Loop() {
				decisions += replay(b, options(b, limit), log.String()).Limits[0].Requests
			}
			b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
