package lua_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// counting returns a library with policies of each kind.
func counting(t *testing.T) functions.Build {
	t.Helper()
	several := func(texts ...string) []functions.PolicyLimit {
		var limits []functions.PolicyLimit
		for i, text := range texts {
			limits = append(limits, functions.PolicyLimit{Key: fmt.Sprintf("key%d", i), Limit: text})
		}
		return limits
	}
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "one", Limits: several("5/s")},
		functions.Policy{Name: "rates", Limits: several("gcra 5/s, 7/m")},
		functions.Policy{Name: "two", Limits: several("gcra 9/s, 90/m", "3/s")},
		functions.Policy{Name: "try", Limits: several("2/s"), Shadow: true},
		functions.Policy{Name: "try.two", Limits: several("1/s", "4/s"), Shadow: true},
		functions.Policy{Name: "seen", Limits: several("2/s"), Track: true},
		// {v}:1039 belongs to the canary of part, and {v}:153 does not.
		functions.Policy{Name: "part", Limits: several("5/s"), Canary: &functions.Canary{Limits: []string{"1/s"}, Share: 500}},
		// {v}:h belongs to the canary of part.shadow, and {v}:b does not.
		functions.Policy{Name: "part.shadow", Limits: several("5/s"), Canary: &functions.Canary{Limits: []string{"1/s"}, Share: 400, Shadow: true}},
		// {v}:b belongs to the canaries of part.try and part.jobs, and {v}:a does not.
		functions.Policy{Name: "part.try", Limits: several("1/s"), Shadow: true, Canary: &functions.Canary{Limits: []string{"1/s"}, Share: 200}},
		functions.Policy{Name: "part.jobs", Limits: several("concurrency 2 lease=10s"), Canary: &functions.Canary{Limits: []string{"concurrency 1 lease=10s"}, Share: 200}},
		functions.Policy{Name: "jobs", Limits: several("concurrency 1 lease=10s")},
		functions.Policy{Name: "jobs.try", Limits: several("concurrency 1 lease=10s"), Shadow: true},
		functions.Policy{Name: "ten", Limits: several("gcra " + strings.Repeat("9/s, ", 9) + "9/s")},
		functions.Policy{Name: "wide", Limits: several("gcra " + strings.Repeat("9/s, ", 15) + "9/s")},
	)))
	return build
}

// TestPolicyCalls checks the counts that ratelimit_info reports for each policy.
// The calls in a case are separated by semicolons; a call that begins with ! returns an error, and
// HSET is the command.
// Counts that are not listed are 0.
func TestPolicyCalls(t *testing.T) {
	build := counting(t)
	sixteen := ""
	for i := range 16 {
		sixteen += fmt.Sprintf("{v}:%d ", i)
	}
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.UnixMicro(1700000000000000)))
	for _, tt := range []struct{ name, calls, want, shadows string }{
		{"a policy of one limit", strings.Repeat("take 1 {v}:a @one;", 6), "one 5 1", ""},
		{"costs", "take 1 {v}:a @one COST 5; take 1 {v}:a @one COST 0; take 1 {v}:a @one COST 6; take 1 {v}:a @one COST 1", "one 2 2", ""},
		{"several rates", "take 1 {v}:a @rates COST 5; take 1 {v}:a @rates COST 3", "rates 1 1", ""},
		{"no policy", "take 1 {v}:a 1/s; take 1 {v}:a 1/s; take 2 {v}:b {v}:c 1/s 1/s", "", ""},
		{"peek and refund", "peek 1 {v}:a @one; peek 1 {v}:a @one COST 6; refund 1 {v}:a @one; refund 1 {v}:a @one COST 0; peek 2 {v}:a {v}:b @two; refund 2 {v}:a {v}:b @two", "", ""},
		{"errors", "!take 1 {v}:set @one; !take 1 {v}:set @one COST 0; !take 2 {v}:a {v}:set @two; !take 2 {v}:a {v}:set @one @try; !take 1 {v}:a @one COST x; !acquire 1 {v}:set @jobs x; !acquire 1 {v}:set @jobs.try x", "", ""},
		{"errors of a usage key", "take 2 {v}:a {v}:u @one COST 6 TRACK; take 2 {v}:a {v}:u @one TRACK; HSET {v}:u denied x; !take 2 {v}:a {v}:u @one COST 6 TRACK; !take 2 {v}:a {v}:u @one TRACK; !take 2 {v}:a {v}:u @seen COST 6; !take 3 {v}:a {v}:b {v}:u @one @try COST 6 TRACK; !take 3 {v}:a {v}:b {v}:u @two COST 1 4 TRACK", "one 1 1", ""},
		{"a block", "block 1 {v}:a 9; take 1 {v}:a @one; take 1 {v}:a @one COST 0; take 1 {v}:a @one COST 0 UPTO", "one 0 3", ""},
		{"ONCE", "take 2 {v}:a {v}:r @one ONCE 99; take 2 {v}:a {v}:r @one ONCE 99; take 2 {v}:a {v}:q @one COST 6 ONCE 99; take 2 {v}:a {v}:q @one COST 6 ONCE 99", "one 1 2", ""},
		{"TRACK", "take 2 {v}:a {v}:u @one TRACK; take 2 {v}:a {v}:u @one COST 6 TRACK; take 2 {v}:b {v}:u @seen; take 2 {v}:b {v}:u @seen COST 2; take 3 {v}:b {v}:c {v}:u @seen 9/s", "one 1 1; seen 2 1", ""},
		{"UPTO and EACH", "take 1 {v}:a @one COST 3 UPTO; take 1 {v}:a @one COST 3 UPTO EACH; take 1 {v}:a @one COST 3 UPTO; take 1 {v}:a @one EACH; take 1 {v}:a @one COST 0 UPTO", "one 3 2", ""},
		{"FORCE", "take 1 {v}:a @one COST 9 FORCE; take 1 {v}:a @one COST 9 FORCE; take 1 {v}:a @one; block 1 {v}:a 9; take 1 {v}:a @one COST 9 FORCE", "one 2 2", ""},
		{"FORCE of a policy of two limits", "block 1 {v}:b 9; take 3 {v}:a {v}:b {v}:c @two @one COST 9 FORCE", "two 0 1", ""},
		{"denied by another limit", "take 2 {v}:a {v}:b 1/s @one; take 2 {v}:a {v}:b 1/s @one; take 2 {v}:a {v}:b 1/s @one COST 1 2; take 2 {v}:b {v}:a @one 1/s EACH", "one 1 0", ""},
		{"denied by another limit, with one unit left", "take 1 {v}:b @one COST 4; take 1 {v}:a 1/s; take 2 {v}:a {v}:b 1/s @one", "one 1 0", ""},
		{"denied by several", "take 2 {v}:a {v}:b 1/s @one COST 6; take 2 {v}:a {v}:b @rates @one COST 6; take 2 {v}:a {v}:b @rates @one COST 6 5", "one 0 2; rates 0 2", ""},
		{"known limits", "take 3 {v}:a {v}:b {v}:c 9/s @one @rates; take 3 {v}:a {v}:b {v}:c 9/s @one @rates; take 2 {v}:b {v}:x @one 9/s; take 2 {v}:b {v}:a @one 9/s; take 2 {v}:b {v}:x @one 9/s; take 2 {v}:b {v}:x @one 9/s; take 2 {v}:y {v}:x 9/s 9/s", "one 5 1; rates 2 0", ""},
		{"the same policy twice", "take 2 {v}:a {v}:b @one @one COST 5 1; take 2 {v}:a {v}:b @one @one", "one 2 1", ""},
		{"a policy of two limits", "take 2 {v}:a {v}:b @two COST 1 3; take 2 {v}:a {v}:b @two; take 2 {v}:a {v}:c @two COST 9 1; take 3 {v}:a {v}:x {v}:y 1/s @two COST 2 1 1", "two 1 2", ""},
		{"policies of two limits, of which one denies", "take 5 {v}:a {v}:b {v}:c {v}:d {v}:e @two @two @one COST 9 4 1 1 1; take 5 {v}:a {v}:b {v}:c {v}:d {v}:e @two @one @two COST 1 3 6 9 3; take 3 {v}:e {v}:a {v}:b @one @two COST 1 1 4", "one 0 1; two 0 2", ""},
		{"an override in a policy of two limits", "override 1 {v}:a 9/h 99999; take 2 {v}:a {v}:b @two; take 2 {v}:a {v}:b @two COST 9 1; take 2 {v}:a {v}:b @two COST 1 3", "two 1 2", ""},
		{"a large call", "take 5 {v}:a {v}:b {v}:c {v}:d {v}:e @wide @wide @wide @wide @wide COST 1 1 1 1 9; take 5 {v}:a {v}:b {v}:c {v}:d {v}:e @wide @wide @wide @wide @wide; take 5 {v}:a {v}:b {v}:c {v}:d {v}:e @wide @wide @wide @wide @wide COST 9", "wide 5 6", ""},
		{"250 rates, and 251", fmt.Sprintf("take 16 %s %s @ten; !take 17 %[1]s {v}:17 %[2]s @ten @one", sixteen, strings.Repeat("@wide ", 15)), "ten 1; wide 15", ""},
		{"a shadow policy", strings.Repeat("take 1 {v}:a @try;", 5) + "take 1 {v}:a @try COST 0; peek 1 {v}:a @try; refund 1 {v}:a @try COST 0", "try 3 3", "try 3"},
		{"a shadow policy beside limits", "take 2 {v}:a {v}:b @try 1/s COST 1 2; take 2 {v}:a {v}:b @try @one COST 3 1; take 2 {v}:a {v}:b @try @one COST 1 5; take 2 {v}:a {v}:b @try @one COST 3 1 FORCE; take 2 {v}:a {v}:c @try @one COST 3 6", "one 2 2; try 1 1", "try 1"},
		{"two shadow policies", "take 3 {v}:b {v}:c {v}:a @try.two @try COST 1 5 2; take 3 {v}:b {v}:c {v}:a @try.two @try COST 1; block 1 {v}:c 9; take 2 {v}:b {v}:c @try.two FORCE", "try 1 1; try.two 1 2", "try 1; try.two 2"},
		{"UPTO of a shadow policy", "take 1 {v}:a @try COST 5 UPTO; take 1 {v}:a @try COST 5 UPTO; take 2 {v}:a {v}:b @try 1/s COST 5 UPTO", "try 1 2", "try 2"},
		{"ONCE of a shadow policy", "take 2 {v}:a {v}:r @try COST 1 ONCE 99; take 2 {v}:a {v}:r @try COST 1 ONCE 99", "try 1 0", ""},
		{"a canary", "take 1 {v}:1039 @part; take 1 {v}:1039 @part; take 1 {v}:1039 @part; take 1 {v}:153 @part; take 2 {v}:153 {v}:1039 @part @part COST 6 2; take 2 {v}:153 {v}:1039 @part @part; peek 1 {v}:1039 @part", "part 1 1 1 4", ""},
		{"a canary that is a shadow", "take 1 {v}:h @part.shadow COST 2; take 1 {v}:h @part.shadow; take 1 {v}:h @part.shadow; take 1 {v}:b @part.shadow COST 6", "part.shadow 0 1 1 2", "part.shadow 2"},
		{"a canary of a shadow policy", "take 1 {v}:b @part.try COST 2; take 1 {v}:a @part.try; take 1 {v}:a @part.try; take 1 {v}:a @part.try; take 2 {v}:a {v}:b @part.try @part.try COST 1 2", "part.try 1 2 0 2", "part.try 2"},
		{"leases", "acquire 1 {v}:j @jobs a; acquire 1 {v}:j @jobs a; acquire 1 {v}:j @jobs b; renew 1 {v}:j @jobs a; renew 1 {v}:j @jobs c; release 1 {v}:j @jobs a; release 1 {v}:j @jobs a", "jobs 2 1", ""},
		{"leases of a shadow policy", "acquire 1 {v}:j @jobs.try a; acquire 1 {v}:j @jobs.try b; renew 1 {v}:j @jobs.try b; release 1 {v}:j @jobs.try a", "jobs.try 1 1", "jobs.try 1"},
		{"leases of a canary", "acquire 1 {v}:a @part.jobs x; acquire 1 {v}:a @part.jobs y; acquire 1 {v}:b @part.jobs x; acquire 1 {v}:b @part.jobs y; release 1 {v}:b @part.jobs x", "part.jobs 2 0 1 1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require(t, server.Load(mutated(t, build.Text())))
			for round := range int64(2) { // in the second round, the limits are cached
				for _, command := range []string{"FLUSHALL", "SADD {v}:set x"} {
					must[any](t)(server.Do(commandOf(command)...))
				}
				for call := range strings.SplitSeq(strings.Trim(tt.calls, "; "), ";") {
					call, fails := strings.CutPrefix(strings.TrimSpace(call), "!")
					if !strings.HasPrefix(call, "HSET ") {
						call = "FCALL ratelimit_" + call
					}
					if _, err := server.Do(commandOf(call)...); fails != (err != nil) {
						t.Errorf("%s: %v", call, err)
					}
				}
				calls, shadows := counts(t, server)
				compare(t, "policy_calls", calls, tt.want, round+1)
				compare(t, "shadow_denied", shadows, tt.shadows, round+1)
			}
		})
	}
}

// commandOf returns the words of a command.
func commandOf(command string) []any {
	var list []any
	for word := range strings.FieldsSeq(command) {
		list = append(list, word)
	}
	return list
}

// counts returns the counts of each policy from the fields policy_calls and shadow_denied of
// ratelimit_info. It checks the names and their order, and the shares of canaries.
func counts(t *testing.T, server *embedded.Server) (calls, shadows map[string][]int64) {
	t.Helper()
	reply := must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0"))
	info := respmap.Of(reply)
	if contract := info["contract"]; contract != int64(1) {
		t.Errorf("the contract is %v, want 1", contract)
	}
	calls, shadows = map[string][]int64{}, map[string][]int64{}
	var names []any
	shares := map[string]int64{"part": 500, "part.shadow": 400, "part.try": 200, "part.jobs": 200}
	for _, entry := range info["policy_calls"].([]any) {
		fields := entry.([]any)
		name := fields[0].(string)
		names = append(names, name)
		if len(fields) == 6 && fields[3] == shares[name] {
			fields = append(fields[:3], fields[4:]...)
		} else if len(fields) != 3 || shares[name] != 0 {
			t.Errorf("%v, for a share of %d", fields, shares[name])
		}
		for _, n := range fields[1:] {
			calls[name] = append(calls[name], n.(int64))
		}
	}
	if !reflect.DeepEqual(names, info["policies"]) {
		t.Errorf("policy_calls has %v, policies %v", names, info["policies"])
	}
	denied := info["shadow_denied"].([]any)
	names = nil
	for i := 0; i < len(denied); i += 2 {
		names = append(names, denied[i])
		shadows[denied[i].(string)] = []int64{denied[i+1].(int64)}
	}
	if want := []any{"jobs.try", "part.shadow", "part.try", "try", "try.two"}; !reflect.DeepEqual(names, want) {
		t.Errorf("shadow_denied has %v, want %v", names, want)
	}
	return calls, shadows
}

// compare compares got with the counts in want, multiplied by factor. Counts that want does not
// list must be 0.
func compare(t *testing.T, what string, got map[string][]int64, want string, factor int64) {
	t.Helper()
	for part := range strings.SplitSeq(want, "; ") {
		fields := strings.Fields(part)
		if len(fields) == 0 {
			continue
		}
		for i, field := range fields[1:] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil || got[fields[0]][i] != n*factor {
				t.Errorf("%s: %s is %d, want %d times %v", what, fields[0], got[fields[0]], factor, fields[1:])
				break
			}
		}
		delete(got, fields[0])
	}
	for name, counts := range got {
		if slices.ContainsFunc(counts, func(n int64) bool { return n != 0 }) {
			t.Errorf("%s: %s is %d, want nothing", what, name, counts)
		}
	}
}
