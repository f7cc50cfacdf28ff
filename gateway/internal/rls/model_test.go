package rls_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// limitOf is a limit of the model, with the name, unit and count that a descriptor's status
// reports.
type limitOf struct {
	model.Policy
	name, unit string
	count      int64
}

func window(count int64, unit, period string) limitOf {
	limit := model.Limit{Algorithm: "fixed_window", Rates: []model.Rate{{N: count, Period: period, Options: []string{"align=clock"}}}}
	if count == 0 {
		limit = model.Limit{Algorithm: "gcra", Rates: []model.Rate{{Period: "s"}}}
	}
	return limitOf{model.Policy{Limits: []model.Limit{limit}}, "", unit, count}
}

func policy(name, algorithm string, rates ...model.Rate) limitOf {
	return limitOf{model.Policy{Name: name, Limits: []model.Limit{{Algorithm: algorithm, Rates: rates}}}, name, "unknown", 0}
}

// Descriptors with rules are decided separately; descriptors with policies are decided together.
var (
	byRule = map[string]limitOf{
		"second": window(2, "second", "s"), "minute": window(3, "minute", "m"), "hour": window(5, "hour", "h"),
		"day": window(4, "day", "d"), "month": window(6, "month", "mo"), "none": window(0, "hour", "h"),
	}
	byPolicy = map[string]limitOf{
		"gcra":    policy("gcra", "gcra", model.Rate{N: 2, Period: "10s", Options: []string{"burst=3"}}, model.Rate{N: 6, Period: "m"}),
		"bucket":  policy("bucket", "token_bucket", model.Rate{N: 3, Period: "m"}),
		"sliding": policy("sliding", "sliding_window", model.Rate{N: 4, Period: "30s"}),
		"log":     policy("log", "sliding_log", model.Rate{N: 3, Period: "45s"}),
	}
)

// reference responds to requests as docs/envoy.md describes, with the decisions of the model.
type reference struct{ *model.Model }

// status formats a decision as testbed.ask does. entry begins with the five numbers that the model
// reports for the limit.
func (l limitOf) status(allowed bool, entry []any) string {
	n := make([]int64, 5)
	for i := range n {
		n[i] = entry[i].(int64)
	}
	code, ms := "OK", n[4]
	if !allowed {
		code, ms = "OVER_LIMIT", n[3]
	}
	seconds := (ms + 999) / 1000
	if ms < 0 {
		seconds = 1<<31 - 1
	}
	count := l.count
	if l.unit == "unknown" {
		count = n[1]
	}
	return fmt.Sprintf("%s %s:%d/%s %d %ds", code, l.name, count, l.unit, n[2], seconds)
}

// do makes a call that must not return an error.
func (r reference) do(verb string, keys []string, limits []limitOf, cost int64, each, force bool) []any {
	call := model.Call{Verb: verb, Keys: keys, Costs: []int64{cost}, Each: each, Force: force}
	for _, l := range limits {
		call.Limits = append(call.Limits, l.Policy)
	}
	fields, reason := r.Do(call)
	if reason != "" {
		panic(reason)
	}
	return fields.([]any)
}

// one decides on a single descriptor, and returns its status and whether it is allowed. back is
// true if the descriptor gives hits back. rule is true if its limit comes from a rule.
func (r reference) one(key string, l limitOf, hits int64, back, rule bool) (string, bool) {
	keys, limits := []string{key}, []limitOf{l}
	switch {
	case back:
		reply := r.do(model.Refund, keys, limits, hits, false, false)
		return l.status(reply[0] == int64(1), reply), reply[0] == int64(1)
	case hits == 0: // only a query: over the limit if no unit is left
		reply := r.do(model.Peek, keys, limits, 0, false, false)
		allowed := reply[0] == int64(1) && reply[2] != int64(0)
		if !allowed {
			reply = r.do(model.Peek, keys, limits, 1, false, false)
		}
		return l.status(allowed, reply), allowed
	}
	reply := r.do(model.Take, keys, limits, hits, false, false)
	allowed := reply[0] == int64(1)
	if !allowed && rule && hits > 1 { // charge the hits although fewer units are left
		reply[2] = int64(0)
		defer r.do(model.Take, keys, limits, hits, false, true)
	}
	return l.status(allowed, reply), allowed
}

// together decides on several descriptors with policies.
func (r reference) together(keys []string, limits []limitOf, hits int64) (statuses []string, allowed bool) {
	reply := r.do(model.Take, keys, limits, hits, true, false)
	for i, entry := range reply[len(reply)-1].([]any) {
		e := entry.([]any)
		statuses = append(statuses, limits[i].status(e[0] == int64(1), e))
	}
	return statuses, reply[0] == int64(1)
}

// TestStatusesAreThoseOfTheModel checks that, for generated requests, every field of every status
// equals that of the model.
func TestStatusesAreThoseOfTheModel(t *testing.T) {
	rules := "domain: web\ndescriptors:\n"
	for name, l := range byRule {
		rules += fmt.Sprintf("  - {key: %s, rate_limit: {unit: %s, requests_per_unit: %d}}\n", name, l.unit, l.count)
	}
	var build []functions.Policy
	for name, l := range byPolicy {
		build = append(build, functions.Policy{Name: name, Limits: []functions.PolicyLimit{{Limit: l.Limits[0].String()}}})
	}
	b := newTestbed(t, rules, build...)
	names := map[bool][]string{true: {"second", "minute", "hour", "day", "month", "none"}, false: {"gcra", "bucket", "sliding", "log"}}
	random := rand.New(rand.NewPCG(1, 2))
	m := reference{model.New(start.UnixMicro())}
	now, denied := start, 0
	for step := range 500 {
		if random.IntN(3) == 0 {
			move := []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 7 * time.Second, time.Minute, 5 * time.Hour, 40 * 24 * time.Hour}[random.IntN(7)]
			now = now.Add(move)
			b.server.Advance(move)
			m.SetTime(now.UnixMicro())
		}
		rule := random.IntN(2) == 0
		r := &api.RateLimitRequest{Domain: "web", HitsAddend: uint32(random.IntN(4))}
		if !rule {
			r.Domain = "policies"
		}
		var keys []string
		var limits []limitOf
		for _, i := range random.Perm(len(names[rule]))[:1+random.IntN(3)] {
			name := names[rule][i]
			text := fmt.Sprintf("%s=%d", name, random.IntN(2))
			if keys = append(keys, text); rule {
				limits = append(limits, byRule[name])
			} else {
				limits = append(limits, byPolicy[name])
				text = "policy=" + name + " " + text
			}
			r.Descriptors = append(r.Descriptors, descriptor(text))
		}
		want, over := "", false
		if apart := len(keys) == 1 && random.IntN(3) == 0; apart { // a descriptor with its own hits
			d, hits := r.Descriptors[0], int64(random.IntN(3))
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(uint64(hits)), random.IntN(2) == 0
			status, allowed := m.one(keys[0], limits[0], hits, d.IsNegativeHits, rule)
			want, over = " | "+status, !allowed
		} else if hits := int64(max(1, r.HitsAddend)); !rule && len(keys) > 1 {
			statuses, allowed := m.together(keys, limits, hits)
			want, over = " | "+strings.Join(statuses, " | "), !allowed
		} else {
			for i, key := range keys {
				status, allowed := m.one(key, limits[i], hits, false, rule)
				want, over = want+" | "+status, over || !allowed
			}
		}
		if over {
			want = "OVER_LIMIT" + want
			denied++
		} else {
			want = "OK" + want
		}
		if got := b.ask(r); got != want {
			t.Fatalf("step %d at %v, request %v:\n%s\nthe model says\n%s", step, now, r, got, want)
		}
	}
	if denied < 100 || denied > 400 {
		t.Errorf("%d of 500 requests were denied; the test needs some of both", denied)
	}
}
