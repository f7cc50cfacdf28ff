package lua_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// TestInfoOfALimit checks that ratelimit_info, if called with a limit, returns the description of
// the library followed by the fields of the parsed limit.
func TestInfoOfALimit(t *testing.T) {
	server, _ := withPolicies(t)
	ints := func(n ...int64) []any {
		list := make([]any, len(n))
		for i := range n {
			list[i] = n[i]
		}
		return list
	}
	for limit, want := range map[string][]any{
		"100/m":                          {ints(0, 100, 60000, 100)},
		"10/s burst=20, 1000/h":          {ints(0, 10, 1000, 20, 1000, 3600000, 1000)},
		"leaky_bucket 3/2s burst=7":      {ints(0, 3, 2000, 7)},
		"fixed_window 5/d align=clock":   {ints(0, 5, 86400000, 5)},
		"fixed_window 5/w align=clock":   {ints(0, 5, 604800000, 5)},
		"fixed_window 5/mo align=clock":  {ints(0, 5, 2678400000, 5)},
		"fixed_window 5/1y align=clock":  {ints(0, 5, 31622400000, 5)},
		"sliding_window 6/10s buckets=4": {ints(0, 6, 10000, 6)},
		"@api":                           {ints(0, 5, 1000, 5)},
		"@two-rates":                     {ints(0, 2, 1000, 2, 3, 60000, 3)},
		"@calc":                          {ints(0, 10, 1000, 10), ints(0, 2, 1000, 2)},
		"fixed_window 0/h":               {ints(0, 0, 3600000, 0)},
		"@off.try":                       {ints(1, 5, 1000, 5), ints(1, 0, 60000, 0)},
		"@seen":                          {ints(0, 2, 1000, 2)},
		"@try":                           {ints(1, 2, 1000, 2)},
		"@try.both":                      {ints(1, 1, 1000, 1), ints(1, 4, 1000, 4)},
	} {
		got, err := server.Do("FCALL_RO", "ratelimit_info", "0", limit)
		fields, _ := got.([]any)
		if err != nil || len(fields) != 12 || fields[8] != "limit" || !reflect.DeepEqual(fields[9], any(want)) {
			t.Errorf("%s: %v, %v\nwant %v", limit, fields[min(8, len(fields)):], err, want)
		}
	}
	for limit, want := range map[string][]any{
		"100/m": {"gcra"}, "leaky_bucket 3/2s": {"leaky_bucket"}, "sliding_log 3/m": {"sliding_log"}, "sliding_log 0/m": {"sliding_log"}, "@calc": {"gcra", "gcra"}, "@try": {"gcra"},
	} {
		got, err := server.Do("FCALL_RO", "ratelimit_info", "0", limit)
		if fields, _ := got.([]any); err != nil || len(fields) != 12 || fields[10] != "algorithms" || !reflect.DeepEqual(fields[11], any(want)) {
			t.Errorf("%s: %v, %v\nwant the algorithms %v", limit, got, err, want)
		}
	}
	for limit, want := range map[string][]any{
		"@part.shadow": {"limit", []any{ints(0, 5, 1000, 5)}, "algorithms", []any{"gcra"}, "canary_limit", []any{ints(1, 2, 1000, 2)}, "canary_algorithms", []any{"gcra"}},
		"@part.try":    {"limit", []any{ints(1, 5, 1000, 5)}, "algorithms", []any{"gcra"}, "canary_limit", []any{ints(0, 2, 1000, 2)}, "canary_algorithms", []any{"gcra"}},
		"@part.wide": {
			"limit", []any{ints(0, 1, 1000, 1), ints(0, 1, 1000, 1)}, "algorithms", []any{"gcra", "gcra"},
			"canary_limit", []any{ints(0, 5, 1000, 5), ints(0, 5, 1000, 5)}, "canary_algorithms", []any{"sliding_window", "sliding_window"},
		},
	} {
		got, err := server.Do("FCALL_RO", "ratelimit_info", "0", limit)
		if fields, _ := got.([]any); err != nil || len(fields) != 16 || !reflect.DeepEqual(fields[8:], want) {
			t.Errorf("%s: %v, %v\nwant %v", limit, got, err, want)
		}
	}
	for limit, want := range map[string]string{
		"":            `RATELIMIT BADLIMIT "": `,
		"0/s, 1/m":    `RATELIMIT BADLIMIT "0/s, 1/m": `,
		"@none":       `RATELIMIT NOPOLICY "@none": `,
		"@wrong":      `RATELIMIT BADLIMIT "1/fortnight": `,
		"@wrong.too":  `RATELIMIT BADLIMIT "concurrency 1 lease=1s": `,
		"@jobs":       `RATELIMIT BADLIMIT "concurrency 1 lease=10s": `,
		"@part.wrong": `RATELIMIT BADLIMIT "1/fortnight": `,
	} {
		if got, err := server.Do("FCALL_RO", "ratelimit_info", "0", limit); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v\nwant %s", limit, got, err, want)
		}
	}
}

// TestInfoOfAPenalty checks that ratelimit_info tells the penalty of a policy, when it warns, and what borrowers leave, and
// that the library does not apply the penalty.
func TestInfoOfAPenalty(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "1/m"}}, AnyClass: true, Canary: &functions.Canary{Limits: []string{"2/m"}, Share: 1},
			Penalty: &functions.Penalty{First: time.Minute, Max: time.Hour, Forget: 24 * time.Hour}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "1/m"}, {Key: "pool", Limit: "9/m"}}, Borrow: true, Floor: 80},
		functions.Policy{Name: "alone", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "1/m"}, {Key: "pool", Limit: "9/m"}}, Borrow: true},
		functions.Policy{Name: "warns", Limits: []functions.PolicyLimit{{Limit: "1/m"}}, Warn: 80},
		functions.Policy{Name: "none", Limits: []functions.PolicyLimit{{Limit: "1/m"}}},
	)))
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))
	for limit, want := range map[string]any{"@login": []any{int64(60000), int64(3600000), int64(86400000)}, "@none": nil, "1/m": nil} {
		got := respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0", limit)))["penalty"]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", limit, got, want)
		}
	}
	for limit, want := range map[string]any{"@warns": int64(80), "@login": nil, "1/m": nil} {
		if got := respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0", limit)))["warn"]; got != want {
			t.Errorf("%s: %v, want %v", limit, got, want)
		}
	}
	for limit, want := range map[string]any{"@tenant": int64(80), "@alone": int64(0), "@none": nil} {
		if got := respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0", limit)))["borrow"]; got != want {
			t.Errorf("%s: borrow %v, want %v", limit, got, want)
		}
	}
	for _, want := range []int64{1, 0, 0} {
		if got := must[any](t)(server.Do("FCALL", "ratelimit_take", "1", "k", "@login")).([]any)[0]; got != want {
			t.Errorf("allowed %v, want %d", got, want)
		}
	}
	if got := must[any](t)(server.Do("FCALL_RO", "ratelimit_peek", "1", "k", "@login", "GROW")).([]any); !reflect.DeepEqual(got[len(got)-1], []any{[]any{int64(0), int64(0)}}) {
		t.Errorf("after denials: %v, want nothing remembered", got)
	}
}

// TestInfoOfBorrowedCalls checks the counts of a policy with a guarantee and a pool: on keys that probe can read, and on keys
// that are loaded into states because they have an override. A peek is not counted.
func TestInfoOfBorrowedCalls(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "tenant",
		Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "2/m"}, {Key: "pool", Limit: "5/m"}}, Borrow: true})))
	for _, overridden := range []bool{false, true} {
		server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.Unix(1_800_000_000, 0)))
		if overridden {
			must[any](t)(server.Do("FCALL", "ratelimit_override", "1", "pool", "5/m", "3600000"))
		}
		for _, want := range []int64{1, 1, 2, 2, 2, 0, 0} { // who pays: 1 the guarantee, 2 the pool, 0 nobody
			must[any](t)(server.Do("FCALL_RO", "ratelimit_peek", "2", "t", "pool", "@tenant"))
			reply := must[any](t)(server.Do("FCALL", "ratelimit_take", "2", "t", "pool", "@tenant")).([]any)
			if got := reply[0].(int64) * reply[5].(int64); got != want {
				t.Errorf("overridden %v: %v, want %d to pay", overridden, reply, want)
			}
		}
		got := respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0")))["borrow_calls"]
		if want := []any{[]any{"tenant", int64(2), int64(3), int64(2)}}; !reflect.DeepEqual(got, want) {
			t.Errorf("overridden %v: %v, want %v", overridden, got, want)
		}
	}
}

// TestInfoOfClasses checks the counts of each class, with calls that take.lua decides by itself and, with EACH, those that it does
// not. A call with FLOOR or FORCE has no class. It also checks that ratelimit_info lists the classes of a policy.
func TestInfoOfClasses(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/m"}}, Classes: map[string]int{"default": 20, "batch": 50}},
		functions.Policy{Name: "open", Limits: []functions.PolicyLimit{{Limit: "10/m"}}, AnyClass: true},
	)))
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	for _, c := range []struct {
		options string
		classes string // class, allowed and denied
		calls   string // allowed and denied, over all classes
	}{
		{"", "[[api batch 0 0] [api default 1 0]]", "[[api 1 0] [open 0 0]]"},
		{"EACH", "[[api batch 0 0] [api default 2 0]]", "[[api 2 0] [open 0 0]]"},
		{"CLASS batch", "[[api batch 1 0] [api default 2 0]]", "[[api 3 0] [open 0 0]]"},
		{"CLASS batch EACH", "[[api batch 2 0] [api default 2 0]]", "[[api 4 0] [open 0 0]]"},
		{"COST 9 CLASS batch", "[[api batch 2 1] [api default 2 0]]", "[[api 4 1] [open 0 0]]"},
		{"COST 9 CLASS batch EACH", "[[api batch 2 2] [api default 2 0]]", "[[api 4 2] [open 0 0]]"},
		{"CLASS default", "[[api batch 2 2] [api default 3 0]]", "[[api 5 2] [open 0 0]]"},
		{"CLASS default EACH", "[[api batch 2 2] [api default 4 0]]", "[[api 6 2] [open 0 0]]"},
		{"FLOOR 1", "[[api batch 2 2] [api default 4 0]]", "[[api 7 2] [open 0 0]]"},
		{"FLOOR 1 EACH", "[[api batch 2 2] [api default 4 0]]", "[[api 8 2] [open 0 0]]"},
		{"FORCE", "[[api batch 2 2] [api default 4 0]]", "[[api 9 2] [open 0 0]]"},
		{"FORCE EACH", "[[api batch 2 2] [api default 4 0]]", "[[api 10 2] [open 0 0]]"},
		{"COST 9", "[[api batch 2 2] [api default 4 1]]", "[[api 10 3] [open 0 0]]"},
	} {
		call := []any{"FCALL", "ratelimit_take", "1", "k", "@api"}
		for _, word := range strings.Fields(c.options) {
			call = append(call, word)
		}
		must[any](t)(server.Do(call...))
		info := respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0")))
		if got := fmt.Sprint(info["class_calls"]); got != c.classes {
			t.Errorf("after %q: by class %s, want %s", c.options, got, c.classes)
		}
		if got := fmt.Sprint(info["policy_calls"]); got != c.calls {
			t.Errorf("after %q: %s, want %s", c.options, got, c.calls)
		}
	}
	// The key has the state of another algorithm, so decisions.decide counts the call.
	must[any](t)(server.Do("FCALL", "ratelimit_take", "1", "other", "fixed_window 10/m"))
	must[any](t)(server.Do("FCALL", "ratelimit_take", "1", "other", "@api", "CLASS", "batch"))
	const loaded = "[[api batch 3 2] [api default 4 1]]"
	if got := fmt.Sprint(respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0")))["class_calls"]); got != loaded {
		t.Errorf("after a call on the key of another algorithm: by class %s, want %s", got, loaded)
	}
	for policy, want := range map[string]string{"@api": "[batch 50 default 20]", "@open": "[]", "10/m": "<nil>"} {
		if got := fmt.Sprint(respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0", policy)))["classes"]); got != want {
			t.Errorf("%s has the classes %s, want %s", policy, got, want)
		}
	}
}

// TestInfoOfACanary checks that the counts of classes, and those of a guarantee and a pool, include the calls of the canary, and that
// they begin with 0.
func TestInfoOfACanary(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "tenant", Borrow: true, Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "2/m"}, {Key: "pool", Limit: "5/m"}},
			Canary: &functions.Canary{Limits: []string{"3/m", "5/m"}, Share: 500}},
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1/m"}}, Classes: map[string]int{"batch": 50, "default": 0},
			Canary: &functions.Canary{Limits: []string{"4/m"}, Share: 1000}},
	)))
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	check := func(calls, borrowed, classes string) {
		t.Helper()
		info := respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0")))
		if got, want := fmt.Sprint(info["policy_calls"], info["borrow_calls"], info["class_calls"]), calls+" "+borrowed+" "+classes; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	none := "[[api batch 0 0] [api default 0 0]]"
	check("[[api 0 0 1000 0 0] [tenant 0 0 500 0 0]]", "[[tenant 0 0 0]]", none)
	take := func(times int, args ...any) {
		for range times {
			must[any](t)(server.Do(append([]any{"FCALL", "ratelimit_take"}, args...)...))
		}
	}
	// By its SHA-1, e is in the canary and a is not.
	take(7, "2", "a", "pool of a", "@tenant")
	check("[[api 0 0 1000 0 0] [tenant 5 2 500 0 0]]", "[[tenant 2 3 2]]", none)
	take(8, "2", "e", "pool of e", "@tenant")
	check("[[api 0 0 1000 0 0] [tenant 5 2 500 5 3]]", "[[tenant 5 5 5]]", none)
	take(3, "1", "k", "@api", "CLASS", "batch")
	check("[[api 0 0 1000 2 1] [tenant 5 2 500 5 3]]", "[[tenant 5 5 5]]", "[[api batch 2 1] [api default 0 0]]")
}
