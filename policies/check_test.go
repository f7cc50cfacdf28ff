package policies

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestFindingsWithoutPositions checks that Findings accepts policies that are not from a file.
func TestFindingsWithoutPositions(t *testing.T) {
	limits := []functions.PolicyLimit{{Key: "a", Limit: "sliding_log 60000/d"}, {Key: "b", Limit: "sliding_log 60000/d"}}
	file := File{Name: "f", Policies: []Policy{{Policy: functions.Policy{Name: "p", Limits: limits}}, {Policy: functions.Policy{Name: "q", Limits: []functions.PolicyLimit{{Limit: "1/x"}}}}}}
	canary := &functions.Canary{Limits: []string{"concurrency 1 lease=1s", "1/x"}, Share: 1}
	file.Policies = append(file.Policies, Policy{Policy: functions.Policy{Name: "r", Limits: []functions.PolicyLimit{{Limit: "1/s"}}, Canary: canary}})
	canary = &functions.Canary{Limits: []string{"concurrency 1 lease=1s"}, Share: 1}
	file.Policies = append(file.Policies, Policy{Policy: functions.Policy{Name: "s", Limits: []functions.PolicyLimit{{Limit: "1/s"}}, Canary: canary}})
	found, err := file.Findings()
	if err != nil || len(found.Wrong) != 5 || found.Wrong[0].Line != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// Build refuses what the library refuses, so that no caller can forget the check.
func TestBuildRefuses(t *testing.T) {
	file, err := Parse("p.yaml", []byte("policies:\n  api: 10/sx\n  web: 5/x\n  good: 1/s\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Build()
	var problems Mistakes
	if !errors.As(err, &problems) || len(problems) != 2 || !strings.HasPrefix(err.Error(), `p.yaml:2:8: policy api: "10/sx": the unit of the period`) {
		t.Errorf("%v, %q", err, problems)
	}
}

func TestLimitErrors(t *testing.T) {
	wrong, err := LimitErrors([]string{"10/s burst=20, 1000/h", "@api", "@team/api", "10/sx", "concurrency 5", ""})
	if err != nil || len(wrong) != 3 || wrong["10/sx"] == nil || wrong["concurrency 5"] == nil || wrong[""] == nil {
		t.Errorf("%v, %v", wrong, err)
	}
}

// TestRedundantRatesChangeNothing checks that a rate reported as redundant changes no decision: a
// limit with the rate allows the same calls as the limit without it.
func TestRedundantRatesChangeNothing(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()+parser), embedded.WithTime(startOfTests))
	c := checker{server: server}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	tried := map[string]int{}
	for range 250 {
		algorithm := pick("gcra", "leaky_bucket", "token_bucket", "sliding_log", "fixed_window", "sliding_window")
		option := ""
		switch algorithm {
		case "gcra", "leaky_bucket", "token_bucket":
			option = pick("", " burst=2", " burst=5", " burst=9")
		case "fixed_window":
			option = pick("", " align=clock")
		case "sliding_window":
			option = pick("", " buckets=5")
		}
		a := pick("1", "2", "3") + "/" + pick("s", "2s", "5s") + option
		b := pick("2", "3", "6", "12", "30") + "/" + pick("s", "2s", "5s", "10s") + option
		if strings.HasSuffix(algorithm, "_bucket") || algorithm == "gcra" {
			b = strings.TrimSuffix(b, option) + pick("", option, " burst=15", " burst=40")
		}
		unit, steps := time.Millisecond, []int{0, 0, 0, 100, 300, 700, 1100}
		calendar := algorithm == "fixed_window" && random.IntN(2) == 0
		if calendar {
			unit, steps = 24*time.Hour, []int{0, 0, 0, 1, 3, 9, 25}
			a = pick("1", "2", "3") + "/" + pick("d", "w", "w", "mo", "mo from=31") + " align=clock"
			b = pick("3", "6", "12", "30", "99") + "/" + pick("w", "mo", "mo from=15", "60d", "y") + " align=clock" + pick("", " zone=+05:30")
		}
		limit := must[limit](t)(c.parse(algorithm + " " + a + ", " + b))
		found := redundantRates(limit)
		if len(found) != 1 || !strings.HasPrefix(found[0], "the rate "+b+" is redundant") || a == b {
			continue
		}
		tried[algorithm]++
		if calendar {
			tried["calendar"]++
		}
		must[any](t)(server.Do("FLUSHALL"))
		var history []string
		for range 60 {
			server.Advance(time.Duration(steps[random.IntN(7)]) * unit)
			cost := fmt.Sprint(max(1, random.IntN(5)-2))
			var allowed [2]any
			for i, limit := range []string{algorithm + " " + a, algorithm + " " + a + ", " + b} {
				reply := must[any](t)(server.Do("FCALL", "ratelimit_take", "1", fmt.Sprint("k", i), limit, "COST", cost))
				allowed[i] = reply.([]any)[0]
			}
			history = append(history, fmt.Sprintf("%s cost %s: %v", server.Time().Format("2006-01-02 05.000"), cost, allowed))
			if allowed[0] != allowed[1] {
				t.Fatalf("%s %s is reported to make %s redundant, but decisions differ:\n%s", algorithm, a, b, strings.Join(history, "\n"))
			}
		}
	}
	for _, algorithm := range []string{"gcra", "leaky_bucket", "token_bucket", "sliding_log", "fixed_window", "sliding_window", "calendar"} {
		if tried[algorithm] == 0 {
			t.Errorf("no pair of %s was tried", algorithm)
		}
	}
}

// TestRedundantCalendarRates checks that, of two rates with different calendar windows, one is
// redundant only if the other always denies first: 10/d makes 320/mo redundant, but not 319/mo.
func TestRedundantCalendarRates(t *testing.T) {
	c := checker{server: embedded.Run(t, embedded.WithLibrary(functions.Source()+parser))}
	for text, want := range map[string]int{
		"5/mo align=clock, 5/mo align=clock":                          1,
		"5/mo align=clock, 5/mo align=clock zone=+01:00":              0,
		"5/mo align=clock, 5/mo align=clock from=2":                   0,
		"5/mo align=clock, 5/31d align=clock":                         0,
		"5/w align=clock, 5/7d align=clock":                           0,
		"5/w align=clock, 5/w align=clock zone=+00:00":                1,
		"10/d align=clock, 319/mo align=clock":                        0,
		"10/d align=clock, 320/mo align=clock":                        1,
		"10/mo align=clock, 39/61d align=clock":                       0, // the 61 days from January 31 to April 1 fall in four months
		"10/mo align=clock, 40/61d align=clock":                       1,
		"10/y align=clock, 20/366d align=clock":                       0,
		"10/d align=clock zone=+01:00, 70/7d align=clock":             0,
		"10/d align=clock zone=+01:00, 80/7d align=clock":             1,
		"10/d align=clock zone=+01:00, 70/7d align=clock zone=+01:00": 1,
	} {
		limit := must[limit](t)(c.parse("fixed_window " + text))
		if found := redundantRates(limit); len(found) != want {
			t.Errorf("%s: %q, want %d redundant", text, found, want)
		}
	}
}

// TestNotesOfBursts checks the note about limits that differ only in burst, and that what it says is true.
func TestNotesOfBursts(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(startOfTests))
	for _, tt := range []struct {
		a, b string
		note bool
	}{
		{"100/d", "100/d burst=20", true},
		{"100/d", "100/d burst=50", true},
		{"100/d", "100/d burst=51", false},
		{"leaky_bucket 100/d burst=200", "leaky_bucket 100/d", true},
		{"100/d", "100/d", false},
	} {
		found := must[Findings](t)(parse(t, "policies:\n  people: "+tt.a+"\n  batch: "+tt.b+"\n").Findings())
		if len(found.Wrong)+len(found.Doubtful) > 0 || len(found.Notes) > 0 != tt.note {
			t.Errorf("%s and %s: %+v", tt.a, tt.b, found)
		}
	}
	found := must[Findings](t)(parse(t, "policies:\n  people: 100/d\n  other: 100/h burst=20\n  batch: 100/d burst=20\n").Findings())
	const want = "p.yaml:4:10: policy batch: 100/d burst=20 differs from 100/d of policy people only in its burst; on one key, the smaller burst forgets what the other has taken. For priorities, use one limit with classes"
	if got := lines(found.Notes); len(got) != 1 || !strings.HasSuffix(got[0], strings.TrimPrefix(want, "p.yaml:")) {
		t.Errorf("%q", got)
	}
	found = must[Findings](t)(parse(t, "policies:\n  a: 100/d burst=60\n  b: 100/d\n  c: 100/d burst=50\n").Findings())
	if got := lines(found.Notes); len(got) != 1 || !strings.Contains(got[0], "policy c: 100/d burst=50 differs from 100/d of policy b only in its burst") {
		t.Errorf("limits that differ from others than the first: %q", got)
	}
	// What the note says: after 90 of 100 units, the smaller burst allows a call, and then the larger has room again.
	for _, call := range [][]any{{"100/d", "COST", 90}, {"100/d burst=20"}} {
		must[any](t)(server.Do(append([]any{"FCALL", "ratelimit_take", 1, "k"}, call...)...))
	}
	reply := must[any](t)(server.Do("FCALL_RO", "ratelimit_peek", 1, "k", "100/d")).([]any)
	if left := reply[2].(int64); left < 50 {
		t.Errorf("%d units are left, so the note is wrong", left)
	}
}

// TestGuarantees checks what is said about guarantees that do not fit their pool.
func TestGuarantees(t *testing.T) {
	for _, tt := range []struct {
		policy   string
		doubtful bool
		want     string // what is said, or ""
	}{
		{"{guarantee: 80/s, pool: 1000/s}", false, ""},
		{"{guarantee: 80/s, pool: 1000/s, floor: 80, tenants: 10}", false, ""},
		{"{guarantee: 8/s, pool: 1000/s burst=50, floor: 16, tenants: 1}", false, ""}, // 16 % of 50, rounded up, are 8
		{"{guarantee: 8/s, pool: 1000/s burst=50, floor: 15, tenants: 1}", false, ""}, // 7.5, rounded up
		{"{guarantee: 8/s, pool: 1000/s burst=50, floor: 14, tenants: 1}", false,
			"the bursts of a guarantee of 8/s are 8 units, and floor 14 keeps 7 of the pool; if borrowers have taken the rest, the bursts exceed the limit of the pool. floor: 16 keeps enough"},
		{"{guarantee: 80/s, pool: 1000/s, tenants: 10}", false,
			"the bursts of 10 guarantees of 80/s are 800 units, and floor 0 keeps 0 of the pool; if borrowers have taken the rest, the bursts exceed the limit of the pool. floor: 80 keeps enough"},
		{"{guarantee: 80/s burst=200, pool: 1000/s, floor: 100, tenants: 10}", false,
			"the bursts of 10 guarantees of 80/s burst=200 are more than the pool holds, so together they can exceed its limit, by at most its capacity. Lower the burst of the guarantee"},
		{"{guarantee: 80/s, pool: 1000/s, floor: 80, tenants: 13}", true,
			"the pool of 1000/s has less than 13 guarantees of 80/s; if it is used up, calls within them are denied. Lower the guarantee, or raise the pool"},
		{"{guarantee: 60001/m, pool: 1000/s}", true,
			"the pool of 1000/s has less than a guarantee of 60001/m; if it is used up, calls within them are denied. Lower the guarantee, or raise the pool"},
		{"{guarantee: 1000000/s, pool: 1/d, tenants: 1000000000}", true, ""},
	} {
		file, err := Parse("p.yaml", []byte("policies:\n  t: "+tt.policy+"\n"))
		if err != nil {
			t.Errorf("%s: %v", tt.policy, err)
			continue
		}
		found := must[Findings](t)(file.Findings())
		got, other := found.Notes, found.Doubtful
		if tt.doubtful {
			got, other = other, got
		}
		switch {
		case len(other) > 0 || len(got) != 1 && (tt.want != "" || tt.doubtful) || len(got) > 0 && tt.want == "" && !tt.doubtful:
			t.Errorf("%s: %v, %v", tt.policy, found.Notes, found.Doubtful)
		case tt.want != "" && got[0].Text != "policy t: "+tt.want:
			t.Errorf("%s:\n%s\nwant\n%s", tt.policy, got[0].Text, "policy t: "+tt.want)
		}
	}
	for text, want := range map[string]string{
		"{limit: 1/s, tenants: 3}":                  "policy t has tenants without a guarantee and a pool; tenants is the number of callers with a guarantee",
		"{guarantee: 1/s, pool: 9/s, tenants: 0}":   "tenants is 0; write how many callers have a guarantee, from 1 to 1000000000",
		"{guarantee: 1/s, pool: 9/s, tenants: ten}": "tenants",
		"{guarantee: 1/s, pool: 9/s, tenants: 1.5}": "tenants",
		"{guarantee: 1/s, pool: 9/s, tenants: -1}":  "tenants",
	} {
		if _, err := Parse("p.yaml", []byte("policies:\n  t: "+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
