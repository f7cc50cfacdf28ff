package combinations

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// limits lists the limits from which a feature draws, as callers write them. Names of policies begin
// with @. The limits are small, so that a few calls reach their boundaries.
var limits = map[string][]string{
	"gcra":           {"5/10s", "3/3s", "10/s burst=3", "100/m burst=7", "20/d", "1000/d", "100000007/d burst=4"},
	"large":          {"1000/d", "@big"},
	"token_bucket":   {"token_bucket 5/10s", "token_bucket 3/s burst=7", "token_bucket 10/m", "token_bucket 20/d"},
	"leaky_bucket":   {"leaky_bucket 7/s", "leaky_bucket 3/10s", "leaky_bucket 10/m"},
	"fixed_window":   {"fixed_window 3/10s", "fixed_window 7/s", "fixed_window 20/d"},
	"calendar":       {"fixed_window 5/m align=clock", "fixed_window 4/mo align=clock from=31 zone=+05:30", "fixed_window 6/w align=clock"},
	"sliding_window": {"sliding_window 5/10s buckets=5", "sliding_window 3/s", "sliding_window 20/m buckets=60"},
	"sliding_log":    {"sliding_log 3/10s", "sliding_log 10/m", "sliding_log 5/s"},
	"several rates":  {"5/10s, 20/m", "token_bucket 2/s, 5/10s", "fixed_window 3/s, 5/10s", "sliding_log 3/10s, 5/m", "sliding_window 3/s, 7/m buckets=6"},
	"count of 0":     {"0/m", "fixed_window 0/h"},
	"range edge":     {"1427/3153599999999ms", "token_bucket 1000/18214d burst=2003", "gcra 9007199254740992/s", "fixed_window 9007199254740992/d", "1/36500d", "sliding_log 2000/h"},
	"policy":         {"@one", "@two", "@big"},
	"shadow":         {"@watch", "@watch.two"},
	"canary":         {"@trial", "@trial.watch"},
	"track policy":   {"@counted"},

	"leases":       {"concurrency 1 lease=30s", "concurrency 2 lease=1h", "concurrency 2 lease=7s", "concurrency 3 lease=30s"},
	"lease policy": {"@slots", "@slots.watch"},

	"classes":       {"@class", "@class.watch"},
	"lease classes": {"@class.slots"},
	"guarantee":     {"@tenant"},
}

// sharing returns policies with classes, or with a guarantee and a pool, if the library knows them.
func sharing(all ...model.Policy) []model.Policy {
	if !generate.Shares {
		return nil
	}
	return all
}

// builds are the policies of the library that is deployed first, and of the one that replaces it.
var builds = [2][]model.Policy{
	append(sharing(
		model.Policy{Name: "class", Limits: texts("10/s"), Classes: map[string]int64{"default": 20, "batch": 50}},
		model.Policy{Name: "class.watch", Shadow: true, Limits: texts("fixed_window 5/10s"), Classes: map[string]int64{"default": 0, "batch": 30}},
		model.Policy{Name: "class.slots", Limits: texts("concurrency 3 lease=30s"), Classes: map[string]int64{"default": 20, "batch": 50}},
		model.Policy{Name: "tenant", Borrow: true, Floor: 40, Limits: texts("2/s", "10/s")},
	), []model.Policy{
		{Name: "one", Limits: texts("5/10s")},
		{Name: "two", Limits: texts("10/s", "sliding_log 3/10s")},
		{Name: "big", Limits: texts("1000/d")},
		{Name: "watch", Shadow: true, Limits: texts("3/10s")},
		{Name: "watch.two", Shadow: true, Limits: texts("token_bucket 5/10s", "fixed_window 2/s")},
		{Name: "trial", Limits: texts("5/10s"), Share: 500, Canary: &model.Policy{Limits: texts("sliding_window 3/10s")}},
		{Name: "trial.watch", Limits: texts("fixed_window 5/10s"), Share: 500, Canary: &model.Policy{Limits: texts("2/10s"), Shadow: true}},
		{Name: "counted", Track: true, Limits: texts("fixed_window 4/10s")},
		{Name: "slots", Limits: texts("concurrency 2 lease=1h")},
		{Name: "slots.watch", Shadow: true, Limits: texts("concurrency 1 lease=7s")},
	}...),
	append(sharing(
		model.Policy{Name: "class", Limits: texts("token_bucket 6/s"), Classes: map[string]int64{"default": 50, "batch": 60}},
		model.Policy{Name: "class.watch", Limits: texts("fixed_window 5/10s"), AnyClass: true},
		model.Policy{Name: "class.slots", Limits: texts("concurrency 3 lease=30s"), Classes: map[string]int64{"default": 0, "batch": 100}},
		model.Policy{Name: "tenant", Borrow: true, Limits: texts("fixed_window 3/10s", "token_bucket 5/10s")},
	), []model.Policy{
		{Name: "one", Limits: texts("token_bucket 3/3s")},
		{Name: "two", Limits: texts("4/10s", "fixed_window 5/3s")},
		{Name: "big", Limits: texts("fixed_window 1000/d")},
		{Name: "watch", Limits: texts("4/10s")},
		{Name: "watch.two", Shadow: true, Limits: texts("leaky_bucket 5/10s", "0/m")},
		{Name: "trial", Limits: texts("4/10s"), Share: 1000, Canary: &model.Policy{Limits: texts("leaky_bucket 3/10s")}},
		{Name: "trial.watch", Limits: texts("fixed_window 5/10s"), Share: 500, Canary: &model.Policy{Limits: texts("2/10s")}},
		{Name: "counted", Track: true, Shadow: true, Limits: texts("sliding_log 4/10s")},
		{Name: "slots", Limits: texts("concurrency 2 lease=30s")},
		{Name: "slots.watch", Limits: texts("concurrency 1 lease=7s")},
	}...),
}

// warns holds the percentage from which on a policy warns, by build.
var warns = [2]map[string]int{
	{"one": 60, "two": 50, "watch": 70, "trial": 60, "counted": 50, "class": 60, "tenant": 50},
	{"one": 60, "two": 80, "trial": 60, "counted": 100, "class": 90},
}

func texts(all ...string) (parsed []model.Limit) {
	for _, text := range all {
		parsed = append(parsed, parseLimit(text))
	}
	return parsed
}

// parseLimit parses a limit of the tables above.
func parseLimit(text string) model.Limit {
	l, err := model.ParseLimit(text)
	must(err)
	return l
}

// policyOf returns what a limit means under a build.
func policyOf(build int, text string) model.Policy {
	name, ok := strings.CutPrefix(text, "@")
	if !ok {
		return model.Policy{Limits: []model.Limit{parseLimit(text)}}
	}
	for _, p := range builds[build] {
		if p.Name == name {
			return p
		}
	}
	panic("no policy " + text)
}

// shadows reports whether a policy, or its canary, is a shadow in any build.
func shadows(text string) bool {
	if !strings.HasPrefix(text, "@") {
		return false
	}
	for build := range builds {
		if p := policyOf(build, text); p.Shadow || p.Canary != nil && p.Canary.Shadow {
			return true
		}
	}
	return false
}

// library returns the text of a library with the policies of a build.
func library(build int) (string, error) {
	var all []functions.Policy
	for _, p := range builds[build] {
		named := functions.Policy{Name: p.Name, Shadow: p.Shadow, Track: p.Track, Warn: warns[build][p.Name]}
		for i, l := range p.Limits {
			named.Limits = append(named.Limits, functions.PolicyLimit{Key: fmt.Sprintf("key%d", i), Limit: l.String()})
		}
		if p.Canary != nil {
			named.Canary = &functions.Canary{Share: int(p.Share), Shadow: p.Canary.Shadow}
			for _, l := range p.Canary.Limits {
				named.Canary.Limits = append(named.Canary.Limits, l.String())
			}
		}
		generate.Share(&named, p)
		all = append(all, named)
	}
	made, err := functions.New(functions.WithPolicies(all...))
	return made.Text(), err
}
