package backtest

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// tokens is a log with costs: red uses 700, 1200 and 400 tokens, blue 149.5.
const tokens = `{"time":"2026-03-01T12:00:00Z","team":"red","usage":{"total_tokens":700}}
{"time":"2026-03-01T12:05:00Z","team":"red","usage":{"total_tokens":1200}}
{"time":"2026-03-01T12:10:00Z","team":"blue","usage":{"total_tokens":149.5}}
{"time":"2026-03-01T12:30:00Z","team":"red","usage":{"total_tokens":400}}
`

func tokenOptions(t *testing.T, after bool, limits ...string) Options {
	t.Helper()
	opts := options(t)
	opts.Key, opts.Cost, opts.After = mustKey(t, "team"), "usage.total_tokens", after
	for _, limit := range limits {
		opts.Candidates = append(opts.Candidates, Candidate{limit, []Key{opts.Key}})
	}
	return opts
}

// If costs are charged before requests, a request with a cost above the capacity is denied, and
// nothing is charged. If costs are charged after requests, such a request is allowed, and its debt
// denies the next request.
func TestCosts(t *testing.T) {
	for _, tt := range []struct {
		limit                     string
		after                     bool
		denied                    int64
		units                     Units
		capacity, above, redUnits int64
	}{
		{"1000/h", false, 1, Units{1250, 1200}, 1000, 1, 1200},
		{"1000/h", true, 1, Units{2050, 400}, 1000, 1, 400},
		{"fixed_window 1000/h", false, 2, Units{850, 1600}, 1000, 1, 1600},
		{"fixed_window 1000/h", true, 1, Units{2050, 400}, 1000, 1, 400},
		{"1000/h, 5000/d", false, 1, Units{1250, 1200}, 1000, 1, 1200},
		{"0/h", true, 4, Units{0, 2450}, 0, 4, 2300},
		{"1000/m burst=1200", false, 0, Units{2450, 0}, 1200, 0, 0},
	} {
		r := replay(t, tokenOptions(t, tt.after, tt.limit), tokens).Limits[0]
		if r.Requests != 4 || r.Denied != tt.denied || r.Units != tt.units || r.Capacity != tt.capacity || r.Above != tt.above || r.AllUnits() != 2450 ||
			r.Cost != "usage.total_tokens" || r.Charge != map[bool]string{false: "before", true: "after"}[tt.after] {
			t.Errorf("%s, after: %v: %+v", tt.limit, tt.after, r)
		}
		if tt.denied > 0 && (r.Worst[0].Key != "red" || r.Worst[0].Units != 2300 || r.Worst[0].UnitsDenied != tt.redUnits) {
			t.Errorf("%s, after: %v: %+v", tt.limit, tt.after, r.Worst)
		}
	}
}

// A request with cost 0 is always allowed, and takes nothing. If costs are charged after requests,
// even a request with cost 0 needs one available unit, because its cost is not known when the
// decision is made.
func TestCostOfZero(t *testing.T) {
	for after, want := range map[bool]int64{false: 0, true: 1} {
		opts := options(t, "fixed_window 5/h")
		opts.Cost, opts.After = "cost", after
		hits := []hit{{0, "a", 0}, {1, "a", 5}, {2, "a", 0}}
		if r := replay(t, opts, csvOf(hits)).Limits[0]; r.Denied != want || r.Units != (Units{Allowed: 5}) {
			t.Errorf("after: %v: %+v", after, r)
		}
	}
}

// A cost is charged to all keys of a policy, or to none.
func TestCostsOfSeveralKeys(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{
		{Key: "resource", Limit: "fixed_window 100/h"}, {Key: "consumer", Limit: "fixed_window 40/h"}}})))
	log := "time,client,path,cost\n"
	for i, h := range []hit{{0, "a", 30}, {1, "a", 30}, {2, "a", 5}, {3, "b", 70}, {4, "c", 1}} {
		log += fmt.Sprintf("%d,%s,/x,%d\n", noon.UnixMilli()+int64(i), h.key, h.cost)
	}
	for after, want := range map[bool]Result{
		false: {Denied: 2, Units: Units{36, 100}, Above: 1}, // client a takes 30 and 5 of its 40; its second 30, and the 70 of client b, do not fit
		true:  {Denied: 2, Units: Units{130, 6}, Above: 1},  // client a has taken 60 of 40, so its 5 are denied; /x has taken 130 of 100, so c is denied
	} {
		opts := options(t)
		opts.Library, opts.Cost, opts.After = build.Text(), "cost", after
		opts.Candidates = []Candidate{{"@calc", []Key{mustKey(t, "path"), mustKey(t, "client")}}}
		if r := replay(t, opts, log).Limits[0]; r.Denied != want.Denied || r.Units != want.Units || r.Above != want.Above || r.Capacity != 40 {
			t.Errorf("after: %v: %+v", after, r)
		}
	}
}

// A cost above a guarantee may be borrowed, so only one above both the guarantee and the pool is never
// allowed. Neither is charged after a request: a run that would is refused before it reads the logs.
func TestCostsOfAGuaranteeAndAPool(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "other", Limits: []functions.PolicyLimit{{Limit: "2/h"}}},
		functions.Policy{Name: "bo", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/h"}, {Key: "pool", Limit: "10/h"}}, Borrow: true})))
	log := "time,client,path,cost\n"
	for i, cost := range []int{5, 3, 11} {
		log += fmt.Sprintf("%d,a,/x,%d\n", noon.UnixMilli()+int64(i), cost)
	}
	opts := options(t)
	opts.Library, opts.Cost = build.Text(), "cost"
	opts.Candidates = []Candidate{{"@bo", []Key{mustKey(t, "client"), mustKey(t, "path")}}, {"@other", []Key{mustKey(t, "client")}}}
	report := replay(t, opts, log)
	if r := report.Limits[0]; r.Denied != 1 || r.Units != (Units{8, 11}) || r.Above != 1 || r.Capacity != 10 {
		t.Errorf("%+v", r)
	}
	if r := report.Limits[1]; r.Denied != 3 || r.Above != 3 || r.Capacity != 2 {
		t.Errorf("%+v", r)
	}
	opts.After = true
	const want = `limit "@bo": a guarantee and a pool cannot be charged after a request; leave --charge after out`
	unread := func() ([]Input, error) { t.Error("the logs are opened"); return nil, nil }
	if _, err := Run(t.Context(), unread, opts); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A cost above a policy's capacity may be allowed by its canary, so only one above both is never allowed.
func TestCostsOfACanary(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{
		Name: "p", Limits: []functions.PolicyLimit{{Limit: "2/h"}}, Canary: &functions.Canary{Limits: []string{"10/h"}, Share: 1000}})))
	opts := options(t)
	opts.Library, opts.Cost = build.Text(), "cost"
	opts.Candidates = []Candidate{{"@p", []Key{mustKey(t, "client")}}}
	log := fmt.Sprintf("time,client,cost\n%d,a,7\n%d,a,11\n", noon.UnixMilli(), noon.UnixMilli())
	if r := replay(t, opts, log).Limits[0]; r.Denied != 1 || r.Units != (Units{7, 11}) || r.Above != 1 || r.Capacity != 10 {
		t.Errorf("%+v", r)
	}
}

// A line without a usable cost is dropped, and reported with its line number. It never counts as a
// request of cost 1.
func TestLinesWithoutACost(t *testing.T) {
	log := tokens
	for _, cost := range []string{`{}`, `{"total_tokens":null}`, `{"total_tokens":"many"}`, `{"total_tokens":-1}`, `{"total_tokens":9007199254740993}`, `{"total_tokens":1e400}`} {
		log += `{"time":"2026-03-01T12:40:00Z","team":"red","usage":` + cost + "}\n"
	}
	r := replay(t, tokenOptions(t, false, "10000/h"), log).Limits[0]
	if r.Requests != 4 || r.Lines != 10 || r.Costless != 6 || r.BadLines+r.LateLines+r.Keyless != 0 || r.AllUnits() != 2450 || !slices.Equal(r.Problems, []string{
		"log1:5: the line lacks usage.total_tokens, the field with its cost",
		"log1:6: the line lacks usage.total_tokens, the field with its cost",
		`log1:7: the cost usage.total_tokens: "many" is not a number`,
		`log1:8: the cost usage.total_tokens: "-1" is below 0`,
		`log1:9: the cost usage.total_tokens: "9007199254740993" is above 9007199254740992`,
	}) {
		t.Errorf("%+v", r)
	}
	opts := tokenOptions(t, false, "10000/h")
	opts.Cost = "tokens"
	const want = "none of 4 lines has a usable cost: log1:1: the line lacks tokens, the field with its cost; give --cost another field, and one within another as in usage.total_tokens"
	if _, err := Run(t.Context(), opened(Input{"log1", strings.NewReader(tokens)}), opts); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCostsInBytes uses the bytes of responses as costs. A response without a body costs 0.
func TestCostsInBytes(t *testing.T) {
	log := ""
	for i, size := range []string{"700", "-", "400", "300"} {
		log += fmt.Sprintf("a - - [%s] \"GET / HTTP/1.1\" 200 %s\n", noon.Add(time.Duration(i)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), size)
	}
	opts := options(t, "fixed_window 1000/h")
	opts.Cost = "size"
	if r := replay(t, opts, log).Limits[0]; r.Requests != 4 || r.Denied != 1 || r.Units != (Units{1000, 400}) {
		t.Errorf("%+v", r)
	}
}

// A monthly quota counts costs. Its months begin on the 15th, at midnight in India.
func TestQuotaOfAMonth(t *testing.T) {
	begins := time.Date(2026, 3, 14, 18, 30, 0, 0, time.UTC).Sub(noon).Milliseconds()
	const million = 1_000_000
	hits := []hit{{0, "a", 2 * million}, {1000, "a", 1}, {begins - 1, "a", 1}, {begins, "a", million}, {begins + 1, "a", million + 1}, {begins + 2, "a", million}}
	for after, want := range map[bool]struct {
		denied int64
		units  Units
		last   int64
	}{
		false: {3, Units{4 * million, million + 3}, begins + 1},
		true:  {3, Units{4*million + 1, million + 2}, begins + 2},
	} {
		opts := options(t, "fixed_window 2000000/mo align=clock zone=+05:30 from=15")
		opts.Cost, opts.After = "cost", after
		got := replay(t, opts, csvOf(hits)).Limits[0]
		if got.Denied != want.denied || got.Units != want.units || got.LastDenied == nil || got.LastDenied.UnixMilli() != noon.UnixMilli()+want.last {
			t.Errorf("after: %v: %+v", after, got)
		}
	}
}

// Costs of any size are added up, and limits are suggested for them. If a suggested limit is too
// large for gcra, fixed_window is suggested instead.
func TestLargeCosts(t *testing.T) {
	const largest = 1 << 53
	opts := options(t, "fixed_window 9007199254740992/s")
	opts.Cost, opts.Share, opts.Curves = "cost", 1, true
	hits := slices.Repeat([]hit{{0, "a", largest}}, 1200)
	report := replay(t, opts, csvOf(hits))
	if r := report.Limits[0]; r.Denied != 1199 || r.Units != (Units{largest, math.MaxInt64}) || r.AllUnits() != math.MaxInt64 || r.Worst[0].Units != math.MaxInt64 {
		t.Errorf("%+v", r)
	}
	if p, r := report.Periods[2], report.Limits[3]; p.N != largest || p.Burst != largest || p.Limit != "fixed_window 9007199254740992/m" || r.Limit != p.Limit || r.Denied != 1199 {
		t.Errorf("%+v, %+v", p, r)
	}
	// Each request costs 2^53, so a limit with a smaller n denies all requests.
	for _, point := range report.Periods[2].Curve {
		if want := int64(1200); point.N < largest && point.Requests != want || point.N > largest && point.Requests != 0 {
			t.Errorf("%+v", point)
		}
	}
	hits = []hit{{0, "a", 3e9}, {10_000, "a", 3e9}, {70_000, "a", 4e9}}
	report = replay(t, opts, csvOf(hits))
	if r := report.Limits[3]; r.Limit != "6000000000/m burst=5000000000" || r.Denied != 0 {
		t.Errorf("%+v", r)
	}
	report = replay(t, opts, csvOf([]hit{{0, "a", 0}, {1, "a", 0}}))
	if r := report.Limits[1]; r.Limit != "1/s" || r.Denied != 0 {
		t.Errorf("with costs of 0: %+v", r)
	}
}

// bursts computes the exact burst that a key needs, for rates and costs of any size.
func TestBursts(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 5))
		r := rate{n: 1 + dice.Int64N(1<<dice.IntN(53)), period: 1 + dice.Int64N(1<<dice.IntN(40))}
		b := &bursts{share: share{0, 1}, rates: []rate{r}}
		most, level, at := new(big.Rat), new(big.Rat), noon.UnixMilli()
		for range 200 {
			e := event{at: at, cost: dice.Int64N(1 << dice.IntN(46))}
			e.keys[0] = 1
			require(t, b.see(&e))
			if level.Add(level, big.NewRat(e.cost, 1)); e.cost > 0 && level.Cmp(most) > 0 {
				most.Set(level)
			}
			gone := dice.Int64N(1 << dice.IntN(30))
			at += gone
			freed := new(big.Rat).Mul(big.NewRat(gone, r.period), big.NewRat(r.n, 1))
			if level.Sub(level, freed); level.Sign() < 0 {
				level.SetInt64(0)
			}
		}
		want := new(big.Int).Div(new(big.Int).Add(most.Num(), new(big.Int).Sub(most.Denom(), big.NewInt(1))), most.Denom())
		if got := b.keys[1][0].most; got != want.Int64() {
			t.Fatalf("seed %d: %d in %d ms: burst %d, want %v", seed, r.n, r.period, got, want)
		}
	}
}

// The page shows the units, and says what happens to requests with costs above the capacity.
func TestPageOfCosts(t *testing.T) {
	for after, wants := range map[bool][]string{
		false: {"Units are those of <code>usage.total_tokens</code>.", "<td>1,250</td><td>1,200</td><td>48.98%</td>", "Costs are charged before each request. 1000/h: 1 of 4 requests (25%) cost more than its capacity of 1,000, so it can never allow them.",
			"<td>1,200</td><td>2,300</td>", "up to 1,200 units in", "n units per", "Most units in any minute: 1,200 by <code>red</code>", "of the keys untouched.", "n is how many units each team may use"},
		true: {"<td>2,050</td><td>400</td><td>16.33%</td>", "Costs are charged after each request. 1000/h: 1 of 4 requests (25%) cost more than its capacity of 1,000, and what exceeds a debt of one capacity is not charged.", "of the keys untouched and without debt."},
	} {
		opts := tokenOptions(t, after, "1000/h")
		opts.Share, opts.Curves = 1, true
		var page bytes.Buffer
		require(t, replay(t, opts, tokens, `{"time":"2026-03-01T12:00:01Z","team":"red"}`).WritePage(&page, "ratelimit backtest"))
		for _, want := range append(wants, "1 had no cost, and 0 lacked the key") {
			if !strings.Contains(page.String(), want) {
				t.Errorf("after: %v: no %s in\n%s", after, want, page.String())
			}
		}
	}
}
