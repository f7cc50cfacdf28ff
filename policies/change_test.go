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

func effectsOf(t *testing.T, changes ...[2]functions.Policy) []functions.Effect {
	t.Helper()
	effects := must[[]functions.Effect](t)(Effects(functions.Source(), changes))
	return effects
}

func TestEffects(t *testing.T) {
	canary := func(p functions.Policy, shadow bool, limits ...string) functions.Policy {
		p.Canary = &functions.Canary{Limits: limits, Share: 50, Shadow: shadow}
		return p
	}
	shadow := func(p functions.Policy) functions.Policy { p.Shadow = true; return p }
	track := func(p functions.Policy) functions.Policy { p.Track = true; return p }
	classes := func(p functions.Policy, names ...string) functions.Policy {
		if names[0] == "any" {
			p.AnyClass = true
			return p
		}
		p.Classes = map[string]int{}
		for _, name := range names {
			p.Classes[name] = 20
		}
		return p
	}
	pool := func(floor int) functions.Policy {
		p := one("2/s", "10/s")
		p.Borrow, p.Floor = true, floor
		return p
	}
	for _, tt := range []struct {
		before, after functions.Policy
		want          functions.Effect
	}{
		{one("100/m"), one("leaky_bucket 100/m"), functions.Effect{Keys: "carry over: after 50 units of 100, 50 of 100 are left"}},
		{one("100/m"), one("10/m"), functions.Effect{Keys: "carry over: after 5 units of 100, 9 of 10 are left"}},
		{one("fixed_window 100/m"), one("fixed_window 10/m"), functions.Effect{Keys: "carry over: after 5 units of 100, 5 of 10 are left"}},
		{one("sliding_log 100/m"), one("100/m"), functions.Effect{Keys: "carry over: after 50 units of 100, 50 of 100 are left"}},
		{one("fixed_window 100/h"), one("token_bucket 100/m"), functions.Effect{Keys: "carry over: after 50 units of 100, 50 of 100 are left"}},
		{one("concurrency 4 lease=30s"), one("concurrency 10 lease=1m"), functions.Effect{Keys: "carry over: after 2 leases of 4, 8 of 10 are left"}},
		{one("1/s"), one("1/m"), functions.Effect{Keys: "carry over: after 1 unit of 1, 0 of 1 are left"}},
		{one("10/d"), one("fixed_window 1000/d"), functions.Effect{Keys: "carry over: after 5 units of 10, 500 of 1000 are left; after 10, the wait is up to 1d and was 2h24m"}},
		{one("0/h"), one("100/m"), functions.Effect{Keys: "start anew"}},
		{one("100/m"), one("0/h"), functions.Effect{Keys: "denied: the new limit never allows"}},
		{one("100/m", "5/s"), one("100/m", "fixed_window 5/s"), functions.Effect{Keys: "b carry over: after 2 units of 5, 3 of 5 are left; after 5, the wait is up to 1s and was 200ms"}},
		{one("concurrency 4 lease=30s"), one("100/m"), functions.Effect{Keys: "refused until they expire, because a key is for leases or for rates", Denied: true}},
		{one("concurrency 4 lease=30s"), shadow(one("100/m")), functions.Effect{Keys: "refused until they expire, because a key is for leases or for rates"}},
		{one("100/m"), one("5/x"), functions.Effect{Refused: `"5/x": the unit of the period "x" is none of ms, s, m, h, d`}},
		{functions.Policy{}, one("5/x"), functions.Effect{Refused: `"5/x": the unit of the period "x" is none of ms, s, m, h, d`}},
		{functions.Policy{}, one("5/s"), functions.Effect{}},
		{one("100/m"), canary(one("100/m"), false, "60/m"), functions.Effect{Keys: "carry over: after 30 units of 100, 42 of 60 are left"}},
		{canary(one("100/m"), false, "60/m"), one("60/m"), functions.Effect{Keys: "carry over: after 30 units of 100, 42 of 60 are left"}},
		{one("100/m"), one("100/m", "5/s"), functions.Effect{Keys: "calls with 1 key are refused with BADKEYS until they pass 2", Denied: true}},
		{one("100/m", "5/s"), shadow(one("10/m")), functions.Effect{Keys: "calls with 2 keys are refused with BADKEYS until they pass 1; carry over: after 5 units of 100, 9 of 10 are left", Denied: true}},
		{one("100/m"), track(one("100/m")), functions.Effect{Keys: "calls with 1 key are refused with BADKEYS until they pass 2", Denied: true}},
		{track(one("100/m")), one("100/m"), functions.Effect{Keys: "calls with 2 keys are refused with BADKEYS until they pass 1", Denied: true}},
		{one("100/m"), shadow(one("100/m")), functions.Effect{}},
		{one("100/m"), classes(one("100/m"), "batch"), functions.Effect{}},
		{one("100/m"), classes(one("100/m"), "batch", "default"), functions.Effect{Keys: "calls without CLASS leave 20 % in place of 0 %"}},
		{one("100/m"), shadow(classes(one("100/m"), "batch", "default")), functions.Effect{}},
		{classes(one("100/m"), "batch", "default"), classes(one("100/m"), "batch"), functions.Effect{}},
		{classes(one("100/m"), "batch", "default"), classes(one("100/m"), "any"), functions.Effect{}},
		{classes(one("100/m"), "batch", "critical", "default"), one("10/m"), functions.Effect{Keys: "calls with CLASS batch, critical are refused with BADARGS; carry over: after 5 units of 100, 9 of 10 are left", Denied: true}},
		{classes(one("100/m"), "any"), one("100/m"), functions.Effect{Keys: "calls with any CLASS are refused with BADARGS", Denied: true}},
		{classes(one("100/m"), "any"), classes(one("100/m"), "batch", "critical"), functions.Effect{Keys: "calls with a CLASS other than batch, critical are refused with BADARGS; calls with CLASS batch leave 20 % in place of 0 %; calls with CLASS critical leave 20 % in place of 0 %", Denied: true}},
		{pool(0), pool(80), functions.Effect{Keys: "borrowers leave 80 % of the pool in place of 0 %"}},
		{pool(80), pool(50), functions.Effect{}},
		{pool(80), one("2/s", "10/s"), functions.Effect{Keys: "refunds of what a guarantee or its pool paid are refused with BADARGS", Denied: true}},
		{one("2/s", "10/s"), pool(80), functions.Effect{Keys: "refunds, and calls with UPTO, FORCE or EACH, are refused with BADARGS", Denied: true}},
	} {
		if got := effectsOf(t, [2]functions.Policy{tt.before, tt.after})[0]; got != tt.want {
			t.Errorf("%v to %v:\n%+v\nwant\n%+v", tt.before.Limits, tt.after.Limits, got, tt.want)
		}
	}
	if _, err := Effects("x", nil); err == nil {
		t.Error("a text that does not load has effects")
	}
}

// TestEffectsOfAllPairs checks that Effects describes a change from each limit to each other one,
// and that Denied is true exactly for the changes that it describes as denied or refused.
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
