package backtest

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// classedOptions returns options for a run on two engines with the policy api, of 10 a day for each
// user: batch leaves half, and a call without a class a fifth.
func classedOptions(t *testing.T) Options {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/d"}}, Classes: map[string]int{"critical": 0, "default": 20, "batch": 50}},
		functions.Policy{Name: "any", Limits: []functions.PolicyLimit{{Limit: "10/d"}}, AnyClass: true},
	)))
	opts := options(t)
	opts.Library, opts.Key, opts.ClassBy = build.Text(), mustKey(t, "user"), "class"
	opts.Candidates = []Candidate{{"@api", []Key{opts.Key}}, {"@any", []Key{opts.Key}}, {"1/d", []Key{opts.Key}}}
	return opts
}

// classLog returns a line for each pair of a user and a class, or a user, a class and a cost.
func classLog(calls ...string) string {
	var text strings.Builder
	for i, call := range calls {
		words, class := append(strings.Split(call, " "), ""), ""
		if words[1] != "" {
			class = fmt.Sprintf(`,"class":%q`, words[1])
		}
		fmt.Fprintf(&text, `{"time":%q,"user":%q,"cost":%s%s}`+"\n", noon.Add(time.Duration(i)*time.Second).Format(time.RFC3339), words[0], cmp.Or(strings.Join(words[2:], ""), "1"), class)
	}
	return text.String()
}

// Each class gets what its percentage leaves it, for each key by itself. Limits that are not policies, and
// policies without a list of classes, are replayed beside it.
func TestClasses(t *testing.T) {
	var calls []string
	for range 8 {
		calls = append(calls, "a batch", "b batch")
	}
	for range 8 {
		calls = append(calls, "a", "b critical", "a critical")
	}
	report := replay(t, classedOptions(t), classLog(calls...))
	class := func(name string, allowed, denied int64) Class {
		return Class{Class: name, Requests: allowed + denied, Allowed: allowed, Denied: denied, Units: Units{allowed, denied}}
	}
	for i, want := range [][]Class{
		// a: 5 of batch, then the calls without a class and those of critical in turn
		{class("", 2, 6), class("batch", 10, 6), class("critical", 8, 8)},
		{class("", 1, 7), class("batch", 16, 0), class("critical", 3, 13)},
		nil,
	} {
		if got := report.Limits[i].Classes; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", report.Limits[i].Limit, got, want)
		}
	}
}

// Costs are counted by class, too, and a charge after the request asks with the class.
func TestClassesAndCosts(t *testing.T) {
	for after, want := range map[bool][]Class{
		false: {{Class: "batch", Requests: 2, Allowed: 1, Denied: 1, Units: Units{4, 3}}, {Class: "critical", Requests: 1, Allowed: 1, Units: Units{3, 0}}},
		true:  {{Class: "batch", Requests: 2, Allowed: 2, Units: Units{7, 0}}, {Class: "critical", Requests: 1, Allowed: 1, Units: Units{3, 0}}},
	} {
		opts := classedOptions(t)
		opts.Cost, opts.After = "cost", after
		if got := replay(t, opts, classLog("a batch 4", "a batch 3", "a critical 3")).Limits[0].Classes; !reflect.DeepEqual(got, want) {
			t.Errorf("after: %v: %+v\nwant %+v", after, got, want)
		}
	}
}

func TestWrongClasses(t *testing.T) {
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprint("a c", i))
	}
	for _, tt := range []struct {
		change func(*Options)
		calls  []string
		want   string
	}{
		{func(*Options) {}, []string{"a batch", "a bulk"}, `limit "@api": "bulk": no such class of @api; its classes are batch, critical, default`},
		{func(o *Options) { o.Candidates = o.Candidates[2:] }, []string{"a batch"}, "no policy of the run has classes, but the lines have them in class; replay one that has, as in --policy api"},
		{func(o *Options) { o.Candidates = o.Candidates[1:] }, many, "the field class has more than 100 values, so it is not a class; give --class-by another"},
		{func(o *Options) {
			o.Candidates = nil
			for _, field := range []string{"a", "b", "c", "d"} {
				o.Candidates = append(o.Candidates, Candidate{"@api", []Key{mustKey(t, field)}})
			}
		}, []string{"a batch"}, "4 different keys and classes; with classes, a run counts by at most 3 keys"},
	} {
		opts := classedOptions(t)
		tt.change(&opts)
		_, err := Run(t.Context(), opened(Input{"log", strings.NewReader(classLog(tt.calls...))}), opts)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}
