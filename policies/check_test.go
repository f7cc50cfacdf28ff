package policies

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

func TestCheck(t *testing.T) {
	const never = "; remove it, or make it stricter"
	for _, tt := range []struct{ name, policy, wrong, doubtful string }{
		{"fine", "{limit: '10/s burst=20, 5000/h', cost: 20}", "", ""},
		{"leases", "concurrency 2 lease=30s", "", ""},
		{"nothing that is a rate", "many", `p.yaml:2:6: policy p: "many": no rate such as 100/m or 5/10s; the keys come first, and a limit with blanks is one argument`, ""},
		{"unknown algorithm", "gcraa 1/s", `p.yaml:2:6: policy p: "gcraa 1/s": unknown algorithm "gcraa"; there are ` +
			strings.Join(slices.Sorted(maps.Keys(model.Algorithms)), ", "), ""},
		{"zero", "0/m", `p.yaml:2:6: policy p: "0/m": the count "0" is not a whole number from 1 to 9007199254740992`, ""},
		{"no burst", "10/m burst=0", `p.yaml:2:6: policy p: "10/m burst=0": burst="0" is not a whole number from 1 to 9007199254740992`, ""},
		{"a wrong limit of several", "{limits: [a: 1/s, b: 1/x]}", `p.yaml:2:27: policy p, b: "1/x": the unit of the period "x" is none of ms, s, m, h, d`, ""},
		{"wrong leases", "concurrency 0 lease=1s", `p.yaml:2:6: policy p: "concurrency 0 lease=1s": the count "0" is not a whole number from 1 to 9007199254740992`, ""},
		{"leases beside others", "{limits: [a: 1/s, b: concurrency 1 lease=1s]}", `p.yaml:2:27: policy p, b: concurrency beside other limits; a lease takes one limit, so give it a policy of its own`, ""},
		{"limits that are too much for one call", "{limits: [a: sliding_log 60000/d, b: sliding_log 60000/d]}",
			`p.yaml:2:3: policy p: 120000 calls to be kept in logs; one call takes at most 100000; sliding_window takes more`, ""},
		{"tracked leases", "{limit: concurrency 1 lease=1s, track: true}", `p.yaml:2:14: policy p: track is for ratelimit_take, and concurrency for ratelimit_acquire; remove track`, ""},
		{"leases of a cost", "{limit: concurrency 1 lease=1s, cost: 1}", `p.yaml:2:14: policy p: a lease has no cost; remove cost`, ""},
		{"injected", `"100/m' } } redis.log(3, 'x') --"`, `p.yaml:2:6: policy p: "100/m' } } redis.log(3, 'x') --": the unit of the period "m'" is none of ms, s, m, h, d`, ""},

		{"a burst below the cost", "{limit: 100/m burst=5, cost: 10}", "", `p.yaml:2:14: policy p: a call of cost 10 never passes, since 100/m burst=5 lets through at most 5 at once; raise its burst`},
		{"the least of several bursts", "{limit: '10/s, 1000/h', cost: 11}", "", `p.yaml:2:14: policy p: a call of cost 11 never passes, since 10/s, 1000/h lets through at most 10 at once; raise its burst`},
		{"a cost for each", "{limits: [a: 10/s, b: 10/s], cost: [10, 11]}", "", `p.yaml:2:28: policy p, b: a call of cost 11 never passes, since 10/s lets through at most 10 at once; raise its burst`},

		{"the second never decides", "{limit: '10/s, 1000/m'}", "", `p.yaml:2:14: policy p: the rate 1000/m never decides, since 10/s always denies before it` + never},
		{"the first never decides", "{limit: '5/s burst=50, 2/s burst=10'}", "", `p.yaml:2:14: policy p: the rate 5/s burst=50 never decides, since 2/s burst=10 always denies before it` + never},
		{"the same twice", "{limit: 'sliding_window 5/m, 5/m'}", "", `p.yaml:2:14: policy p: the rate 5/m never decides, since 5/m always denies before it` + never},
		{"a smaller burst decides", "{limit: '10/s burst=100, 1000/m burst=50'}", "", ""},
		{"a log within a log", "{limit: 'sliding_log 3/10s, 18/m'}", "", `p.yaml:2:14: policy p: the rate 18/m never decides, since 3/10s always denies before it` + never},
		{"a log that decides", "{limit: 'sliding_log 3/10s, 17/m'}", "", ""},
		{"windows that begin at any time", "{limit: 'fixed_window 10/s, 600/m'}", "", ""},
		{"windows that begin together", "{limit: 'fixed_window 10/s align=clock, 600/m align=clock'}", "", `p.yaml:2:14: policy p: the rate 600/m align=clock never decides, since 10/s align=clock always denies before it` + never},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := parse(t, "policies:\n  p: "+tt.policy+"\n").Check()
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(found.Wrong); got != tt.wrong {
				t.Errorf("wrong:\n%s\nwant:\n%s", got, tt.wrong)
			}
			if got := texts(found.Doubtful); got != tt.doubtful {
				t.Errorf("doubtful:\n%s\nwant:\n%s", got, tt.doubtful)
			}
		})
	}
}

func texts(problems Problems) string {
	var list []string
	for _, problem := range problems {
		list = append(list, problem.Error())
	}
	return strings.Join(list, "\n")
}

// A rate that is reported as moot changes no decision: limits with and without it give the same
// replies to any calls.
func TestMootRatesChangeNothing(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()+parser), embedded.WithTime(startOfTests))
	c := checker{server: server}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	moot := map[string]int{}
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
		limit, err := c.parse(algorithm + " " + a + ", " + b)
		if err != nil {
			t.Fatal(err)
		}
		said := mootRates(limit)
		if len(said) != 1 || !strings.HasPrefix(said[0], "the rate "+b+" never") || a == b {
			continue
		}
		moot[algorithm]++
		if _, err := server.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		var story []string
		for range 60 {
			server.Advance(time.Duration([]int{0, 0, 0, 100, 300, 700, 1100}[random.IntN(7)]) * time.Millisecond)
			cost := fmt.Sprint(max(1, random.IntN(5)-2))
			var allowed [2]any
			for i, limit := range []string{algorithm + " " + a, algorithm + " " + a + ", " + b} {
				reply, err := server.Do("FCALL", "ratelimit_take", "1", fmt.Sprint("k", i), limit, "COST", cost)
				if err != nil {
					t.Fatal(err)
				}
				allowed[i] = reply.([]any)[0]
			}
			story = append(story, fmt.Sprintf("%s cost %s: %v", server.Time().Format("05.000"), cost, allowed))
			if allowed[0] != allowed[1] {
				t.Fatalf("%s %s is said to make %s moot, and does not:\n%s", algorithm, a, b, strings.Join(story, "\n"))
			}
		}
	}
	for _, algorithm := range []string{"gcra", "leaky_bucket", "token_bucket", "sliding_log", "fixed_window", "sliding_window"} {
		if moot[algorithm] == 0 {
			t.Errorf("no pair of %s was tried", algorithm)
		}
	}
}
