package policies

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func one(limits ...string) functions.Policy {
	p := functions.Policy{Name: "p"}
	for i, limit := range limits {
		p.Limits = append(p.Limits, functions.PolicyLimit{Key: string(rune('a' + i)), Limit: limit})
	}
	return p
}

func effectsOf(t *testing.T, changes ...[2]functions.Policy) []Effect {
	t.Helper()
	effects, err := Effects(functions.Source(), changes)
	if err != nil {
		t.Fatal(err)
	}
	return effects
}

func TestEffects(t *testing.T) {
	canary := func(p functions.Policy, shadow bool, limits ...string) functions.Policy {
		p.Canary = &functions.Canary{Limits: limits, Share: 50, Shadow: shadow}
		return p
	}
	shadow := func(p functions.Policy) functions.Policy { p.Shadow = true; return p }
	for _, tt := range []struct {
		before, after functions.Policy
		want          Effect
	}{
		{one("100/m"), one("leaky_bucket 100/m"), Effect{Keys: "carry over: after 50 units of 100, 50 of 100 are left"}},
		{one("100/m"), one("10/m"), Effect{Keys: "carry over: after 5 units of 100, 9 of 10 are left"}},
		{one("fixed_window 100/m"), one("fixed_window 10/m"), Effect{Keys: "carry over: after 5 units of 100, 5 of 10 are left"}},
		{one("sliding_log 100/m"), one("100/m"), Effect{Keys: "carry over: after 50 units of 100, 50 of 100 are left"}},
		{one("fixed_window 100/h"), one("token_bucket 100/m"), Effect{Keys: "carry over: after 50 units of 100, 50 of 100 are left"}},
		{one("concurrency 4 lease=30s"), one("concurrency 10 lease=1m"), Effect{Keys: "carry over: after 2 leases of 4, 8 of 10 are left"}},
		{one("1/s"), one("1/m"), Effect{Keys: "carry over: after 1 unit of 1, 0 of 1 are left"}},
		{one("0/h"), one("100/m"), Effect{Keys: "start anew"}},
		{one("100/m"), one("0/h"), Effect{Keys: "denied: the new limit never allows"}},
		{one("100/m", "5/s"), one("100/m", "fixed_window 5/s"), Effect{Keys: "b carry over: after 2 units of 5, 3 of 5 are left"}},
		{one("concurrency 4 lease=30s"), one("100/m"), Effect{Keys: "refused until they expire, because a key is for leases or for rates", Denied: true}},
		{one("concurrency 4 lease=30s"), shadow(one("100/m")), Effect{Keys: "refused until they expire, because a key is for leases or for rates"}},
		{one("100/m"), one("5/x"), Effect{Refused: `"5/x": the unit of the period "x" is none of ms, s, m, h, d`}},
		{functions.Policy{}, one("5/x"), Effect{Refused: `"5/x": the unit of the period "x" is none of ms, s, m, h, d`}},
		{functions.Policy{}, one("5/s"), Effect{}},
		{one("100/m"), canary(one("100/m"), false, "60/m"), Effect{Keys: "carry over: after 30 units of 100, 42 of 60 are left"}},
		{canary(one("100/m"), false, "60/m"), one("60/m"), Effect{Keys: "carry over: after 30 units of 100, 42 of 60 are left"}},
	} {
		if got := effectsOf(t, [2]functions.Policy{tt.before, tt.after})[0]; got != tt.want {
			t.Errorf("%v to %v:\n%+v\nwant\n%+v", tt.before.Limits, tt.after.Limits, got, tt.want)
		}
	}
	if _, err := Effects("x", nil); err == nil {
		t.Error("a text that does not load has effects")
	}
}

// Every pair of algorithms has an effect. The effect says that keys are denied if the first call
// under the new limit is denied.
func TestEffectsOfAllPairs(t *testing.T) {
	var changes [][2]functions.Policy
	limits := []string{"100/h", "token_bucket 100/h", "leaky_bucket 100/h", "fixed_window 100/h", "fixed_window 100/h align=clock",
		"sliding_window 100/h", "sliding_window 100/h buckets=10", "sliding_log 100/h", "100/m, 1000/h", "concurrency 100 lease=1h"}
	for _, from := range limits {
		for _, to := range limits {
			if from != to {
				changes = append(changes, [2]functions.Policy{one(from), one(to)})
			}
		}
	}
	for i, effect := range effectsOf(t, changes...) {
		from, to := changes[i][0].Limits[0].Limit, changes[i][1].Limits[0].Limit
		known := slices.ContainsFunc([]string{"carry over: after ", "start anew", "denied, for up to ", "refused until they expire, "}, func(begin string) bool {
			return strings.HasPrefix(effect.Keys, begin)
		})
		leases := strings.HasPrefix(from, "concurrency") != strings.HasPrefix(to, "concurrency")
		if !known || effect.Refused != "" || leases && !effect.Denied || effect.Denied != (strings.HasPrefix(effect.Keys, "denied") || strings.HasPrefix(effect.Keys, "refused")) {
			t.Errorf("%s to %s: %+v", from, to, effect)
		}
		t.Logf("%-35s %-35s %s", from, to, effect.Keys)
	}
}
