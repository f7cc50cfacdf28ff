package main

import (
	"strings"
	"testing"
	"time"
)

func TestWorkloadCheck(t *testing.T) {
	used := workload{keys: inUse, allow: true, count: 100, period: time.Minute, cost: 5}
	fresh := workload{keys: absent, allow: true, count: 100, period: time.Minute, cost: 5}
	denied := workload{keys: hot, count: 100, period: time.Minute, cost: 5}
	for _, test := range []struct {
		about string
		work  workload
		got   outcome
		wrong string
	}{
		{"in use", used, outcome{allowed: true, used: 20}, ""},
		{"in use, but it had run out", used, outcome{allowed: true, used: 5}, "they ran out"},
		{"in use, a contender that does not tell", used, outcome{allowed: true, used: unknown}, ""},
		{"in use, denied", used, outcome{used: 100}, "allowed is false"},
		{"absent", fresh, outcome{allowed: true, used: 5}, ""},
		{"absent, one unit off by floating point", fresh, outcome{allowed: true, used: 6}, ""},
		{"absent, but it was there", fresh, outcome{allowed: true, used: 10}, "about absent keys"},
		{"denied", denied, outcome{used: 100}, ""},
		{"denied, but it allows", denied, outcome{allowed: true, used: 5}, "allowed is true"},
	} {
		err := test.work.check(test.got)
		if test.wrong == "" && err != nil || test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%s: the error is %v, want %q", test.about, err, test.wrong)
		}
	}
}

func TestRate(t *testing.T) {
	for period, want := range map[time.Duration]string{
		time.Second: "7/s", 90 * time.Second: "7/90s", time.Minute: "7/m", time.Hour: "7/h", 10 * time.Hour: "7/10h", day: "7/d",
	} {
		if got := (workload{count: 7, period: period}).rate(); got != want {
			t.Errorf("%s: %q, want %q", period, got, want)
		}
	}
}

func TestKey(t *testing.T) {
	for n, want := range map[int]string{0: "rate:0000000", 42: "rate:0000042", 9999999: "rate:9999999"} {
		if got := key("rate", n); got != want {
			t.Errorf("key %d is %q, want %q", n, got, want)
		}
	}
}

// TestKeyNumberVisitsAllEqually checks that keys in use are visited equally often. Otherwise some
// keys could reach their limits.
func TestKeyNumberVisitsAllEqually(t *testing.T) {
	for _, keys := range []int{1, 2, 1000, 48271, 100000} {
		r := runner{plan: plan{Keys: keys}}
		visits := make([]int, keys)
		for position := range 3 * keys {
			visits[r.keyNumber(inUse, position)]++
		}
		for n, count := range visits {
			if count != 3 {
				t.Fatalf("of %d keys number %d is visited %d times, want 3", keys, n, count)
			}
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	good := plan{Keys: 100, Calls: 600, WarmUp: 400, Rounds: 1, Batch: 50} // 2000 calls in two rounds, the first of which is not counted
	require(t, good.check())
	if err := good.fits(workload{keys: inUse, allow: true, count: 30, cost: 1, prefill: 10}); err != nil {
		t.Errorf("10 units beforehand and 20 visits of 1 do not fit 30: %v", err)
	}
	err := good.fits(workload{keys: inUse, allow: true, count: 29, period: time.Minute, cost: 1, prefill: 10})
	if err == nil || !strings.Contains(err.Error(), "asked 20 times") {
		t.Errorf("10 units beforehand and 20 visits of 1 fit 29: %v", err)
	}
	for about, bad := range map[string]plan{
		"--keys is 0":     {Calls: 1, Rounds: 1, Batch: 1},
		"--warm-up is -1": {Keys: 1, Calls: 1, Rounds: 1, Batch: 1, WarmUp: -1},
		"7 digits":        {Keys: 1, Calls: 1e6, Rounds: 10, Batch: 1},
	} {
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), about) {
			t.Errorf("the error is %v, want one with %q", err, about)
		}
	}
}
