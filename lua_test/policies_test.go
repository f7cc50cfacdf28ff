package lua_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// The policies that the rows below ask for.
var policies = []functions.Policy{
	{Name: "api", Limits: []functions.PolicyLimit{{Limit: "5/s"}}},
	{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "10/s"}, {Key: "consumer", Limit: "2/s"}}},
	{Name: "two-rates", Limits: []functions.PolicyLimit{{Key: "who", Limit: "gcra 2/s, 3/m"}}},
	{Name: "try", Limits: []functions.PolicyLimit{{Limit: "2/s"}}, Shadow: true},
	{Name: "try.both", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/s"}, {Key: "b", Limit: "4/s"}}, Shadow: true},
	{Name: "queue", Limits: []functions.PolicyLimit{{Limit: "leaky_bucket 1/s burst=2"}}, Shadow: true},
	{Name: "seen", Limits: []functions.PolicyLimit{{Limit: "2/s"}}, Track: true},
	{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=10s"}}},
	{Name: "jobs.try", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=10s"}}, Shadow: true},
	{Name: "wrong", Limits: []functions.PolicyLimit{{Limit: "1/fortnight"}}},
	{Name: "wrong.too", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/s"}, {Key: "b", Limit: "concurrency 1 lease=1s"}}},
}

// Each row: the steps of one keyspace, each "ms since the start | arguments after FCALL, without ratelimit_ | reply".
// A reply is JSON, or an error's text. Commands that are no FCALL begin with a colon.
var policyRows = map[string][]string{
	"a policy is its limit": {
		"0 | take 1 {v}:a @api | [1,5,4,0,200,1]",
		"0 | take 1 {v}:a 5/s | [1,5,3,0,400,1]",
		"0 | peek 1 {v}:a @api COST 3 | [1,5,0,0,1000,1]",
		"0 | take 1 {v}:a @api COST 4 | [0,5,3,200,400,1]",
		"0 | refund 1 {v}:a @api COST 2 | [1,5,5,0,0,1]",
		"0 | : EXISTS {v}:a | 0",
	},
	"several rates in one key": {
		"0 | take 1 {v}:a @two-rates | [1,2,1,0,20000,1]",
		"0 | take 1 {v}:a @two-rates | [1,2,0,0,40000,1]",
		"1000 | take 1 {v}:a @two-rates COST 2 | [0,3,1,19000,39000,1]",
	},
	"a policy of two keys decides over both or neither": {
		"0 | take 2 {v}:r {v}:c @calc | [1,2,1,0,500,2]",
		"0 | take 2 {v}:r {v}:c @calc COST 3 1 | [1,2,0,0,1000,2]",
		"0 | take 2 {v}:r {v}:c @calc | [0,2,0,500,1000,2]",
		"0 | take 2 {v}:r {v}:d @calc COST 7 1 | [0,10,2,100,400,1]",
		"0 | peek 2 {v}:r {v}:d @calc | [1,2,1,0,500,2]",
		"0 | take 3 {v}:r {v}:d {v}:e @calc 1/s | [1,1,0,0,1000,3]",
		"0 | refund 2 {v}:r {v}:c @calc | [1,2,1,0,500,2]",
	},
	"ONCE and TRACK beside a policy of two keys": {
		"0 | take 4 {v}:r {v}:c {v}:once {v}:use @calc ONCE 1000 TRACK | [1,2,1,0,500,2]",
		"0 | take 4 {v}:r {v}:c {v}:once {v}:use @calc ONCE 1000 TRACK | [1,2,1,0,500,2]",
		"0 | peek 2 {v}:r {v}:c @calc | [1,2,0,0,1000,2]",
	},
	"policies and keys that do not fit": {
		`0 | take 1 {v}:a @none | RATELIMIT NOPOLICY "@none": no such policy in build {{BUILD}}; ratelimit_info lists the policies`,
		`0 | take 1 {v}:a @ | RATELIMIT NOPOLICY "@": no such policy in build {{BUILD}}; ratelimit_info lists the policies`,
		`0 | take 1 {v}:a @api_ | RATELIMIT NOPOLICY "@api_": no such policy in build {{BUILD}}; ratelimit_info lists the policies`,
		`0 | acquire 1 {v}:a @none id | RATELIMIT NOPOLICY "@none": no such policy in build {{BUILD}}; ratelimit_info lists the policies`,
		"0 | take 1 {v}:a @calc | RATELIMIT BADKEYS the number of keys is 1 and the number of limits 2; give each limit one key, in order; @calc takes resource, consumer",
		"0 | take 3 {v}:a {v}:b {v}:c @calc | RATELIMIT BADKEYS the number of keys is 3 and the number of limits 2; give each limit one key, in order; @calc takes resource, consumer",
		"0 | take 1 {v}:a @seen | RATELIMIT BADKEYS the number of keys is 1 and the number of limits 1; give each limit one key, in order, then one for ONCE and one for TRACK; @seen takes a key, and a usage key last",
		"0 | peek 2 {v}:a {v}:b @seen | RATELIMIT BADKEYS the number of keys is 2 and the number of limits 1; give each limit one key, in order; @seen takes a key",
		"0 | take 2 {v}:a {v}:a @calc | RATELIMIT BADKEYS \"{v}:a\" is given twice; one key takes one limit",
		"0 | take 2 {v}:r {v}:c @calc COST 1 2 3 | RATELIMIT BADARGS COST is followed by 3 costs and there are 2 limits; give one cost for all, or one for each",
		"0 | take 1 {v}:a @wrong | RATELIMIT BADLIMIT \"1/fortnight\": the unit of the period \"fortnight\" is none of ms, s, m, h, d",
		"0 | take 2 {v}:a {v}:b @wrong.too | RATELIMIT BADLIMIT \"concurrency 1 lease=1s\": concurrency is for ratelimit_acquire, ratelimit_renew and ratelimit_release",
		"0 | acquire 1 {v}:a @wrong.too id | RATELIMIT BADLIMIT \"@wrong.too\": a policy of 2 limits; a lease takes one",
		"0 | take 1 {v}:a @jobs | RATELIMIT BADLIMIT \"concurrency 1 lease=10s\": concurrency is for ratelimit_acquire, ratelimit_renew and ratelimit_release",
		"0 | acquire 1 {v}:a @api id | RATELIMIT BADLIMIT \"5/s\": not a limit for leases; write it as concurrency n lease=30s",
		"0 | : EXISTS {v}:a {v}:b {v}:r {v}:c | 0",
	},
	"a shadow policy charges what it would allow, and lets the rest through": {
		"0 | take 1 {v}:a @try | [1,2,1,0,500,1,1,0,1]",
		"0 | take 1 {v}:a @try | [1,2,0,0,1000,1,1,0,1]",
		"0 | peek 1 {v}:a @try | [1,2,0,0,1000,1,0,500,1]",
		"0 | take 1 {v}:a @try | [1,2,0,0,1000,1,0,500,1]",
		"0 | take 1 {v}:a @try COST 3 | [1,2,0,0,1000,1,0,-1,1]",
		"500 | take 1 {v}:a @try | [1,2,0,0,1000,1,1,0,1]",
		"500 | refund 1 {v}:a @try | [1,2,1,0,500,1,1,0,1]",
	},
	"a shadow policy of two keys is one decision": {
		"0 | take 2 {v}:a {v}:b @try.both | [1,1,0,0,1000,1,1,0,1]",
		"0 | take 2 {v}:a {v}:b @try.both | [1,1,0,0,1000,1,0,1000,1]",
		"0 | peek 1 {v}:b 4/s | [1,4,2,0,500,1]",
	},
	"a shadow never delays": {
		"0 | take 1 {v}:a @queue | [1,2,1,0,1000,1,1,0,1]",
		"0 | take 1 {v}:a @queue | [1,2,0,0,2000,1,1,1000,1]",
		"0 | take 1 {v}:a @queue | [1,2,0,0,2000,1,0,1000,1]",
	},
	"shadow and enforced limits in one call": {
		"0 | take 2 {v}:t {v}:a @try @api | [1,5,4,0,200,2,1,0,1]",
		"0 | take 2 {v}:t {v}:a @try @api | [1,5,3,0,400,2,1,0,1]",
		"0 | take 2 {v}:t {v}:a @try @api | [1,5,2,0,600,2,0,500,1]", // the shadow would deny: the other is charged
		"0 | take 2 {v}:u {v}:a @try @api COST 1 3 | [0,5,2,200,600,2,0,200,2]",
		"0 | peek 1 {v}:u @try | [1,2,1,0,500,1,1,0,1]", // the other denied: the shadow is not charged
		"0 | take 2 {v}:t {v}:a @try @api COST 1 3 | [0,5,2,200,600,2,0,500,1]",
		"0 | take 2 {v}:t {v}:a @try @api COST 3 3 | [0,5,2,200,600,2,0,-1,1]",
		"0 | take 4 {v}:p {v}:u {v}:q {v}:a @try.both @try 5/s COST 1 1 3 1 | [1,5,1,0,800,4,0,-1,3]",
	},
	"several shadow policies decide each for itself": {
		"0 | take 3 {v}:a {v}:b {v}:t @try.both @try | [1,1,0,0,1000,1,1,0,1]",
		"0 | take 3 {v}:a {v}:b {v}:t @try.both @try | [1,1,0,0,1000,1,0,1000,1]",
		"0 | peek 1 {v}:t @try | [1,2,0,0,1000,1,0,500,1]",
		"0 | peek 1 {v}:b 4/s | [1,4,2,0,500,1]",
		"0 | peek 3 {v}:t {v}:a {v}:b @try @try.both | [1,2,0,0,1000,1,0,1000,1]",
		"0 | peek 3 {v}:x {v}:a {v}:b @try @try.both | [1,1,0,0,1000,2,0,1000,2]",
		"0 | peek 3 {v}:x {v}:y {v}:z @try @try.both COST 0 | [1,1,1,0,0,2,1,0,2]",
	},
	"blocks under a shadow policy": {
		"0 | block 1 {v}:t 5000 | 1",
		"0 | take 1 {v}:t @try | [1,2,0,0,5000,1,0,5000,1]",
		"0 | take 2 {v}:t {v}:a @try @api | [1,5,4,0,200,2,0,5000,1]",
		"0 | refund 2 {v}:t {v}:a @try @api | [1,5,5,0,0,2,0,5000,1]",
		"0 | : EXISTS {v}:a | 0",
	},
	"a key of another kind changes nothing": {
		"0 | : SADD {v}:set x | 1",
		`0 | take 2 {v}:a {v}:set @api @try | RATELIMIT BADSTATE key "{v}:set" is not a string; give the limiter a key of its own, or delete this one`,
		`0 | take 2 {v}:set {v}:t @api @try | RATELIMIT BADSTATE key "{v}:set" is not a string; give the limiter a key of its own, or delete this one`,
		"0 | : EXISTS {v}:a {v}:t | 0",
	},
	"ONCE keeps what a shadow said": {
		"0 | take 1 {v}:t 2/s COST 2 | [1,2,0,0,1000,1]",
		"0 | take 3 {v}:t {v}:a {v}:once @try @api COST 3 1 ONCE 5000 | [1,5,4,0,200,2,0,-1,1]",
		"900 | take 3 {v}:t {v}:a {v}:once @try @api COST 3 1 ONCE 5000 | [1,5,4,0,200,2,0,-1,1]",
		"900 | take 2 {v}:x {v}:once2 @try COST 3 ONCE 5000 | [1,2,2,0,0,1,0,-1,1]",
		"900 | : EXISTS {v}:x {v}:once2 | 0", // nothing was charged, so nothing is kept
		"900 | take 2 {v}:x {v}:once2 @try COST 2 ONCE 5000 | [1,2,0,0,1000,1,1,0,1]",
		"900 | take 2 {v}:x {v}:once2 @try COST 2 ONCE 5000 | [1,2,0,0,1000,1,1,0,1]",
	},
	"a policy with track takes a usage key last": {
		"0 | take 2 {v}:a {v}:use @seen | [1,2,1,0,500,1]",
		"0 | take 2 {v}:a {v}:use @seen COST 2 | [0,2,1,500,500,1]",
		"0 | take 2 {v}:a {v}:use @seen TRACK | [1,2,0,0,1000,1]", // written as well: the same key
		"0 | peek 1 {v}:a @seen | [0,2,0,500,1000,1]",
		"0 | take 3 {v}:b {v}:once {v}:use @seen ONCE 1000 | [1,2,1,0,500,1]",
		"0 | take 4 {v}:c {v}:d {v}:once2 {v}:use @seen @api ONCE 1000 | [1,2,1,0,500,1]",
		"0 | refund 1 {v}:a @seen | [1,2,1,0,500,1]",
		`0 | usage 1 {v}:use | ["allowed",4,"denied",1,"cost",4,"first_ms",1700000000000,"last_ms",1700000000000,"interval_ms",60000,"series",[[1699999980000,4,1]]]`,
	},
	"leases by a policy's name": {
		"0 | acquire 1 {v}:j @jobs a | [1,1,0,0,10000,1]",
		"0 | acquire 1 {v}:j @jobs b | [0,1,0,10000,10000,1]",
		"1000 | renew 1 {v}:j @jobs a | [1,1,0,0,10000,1]",
		"1000 | release 1 {v}:j @jobs a | 1",
		"1000 | release 1 {v}:j @jobs a | 0",
	},
	"leases under a shadow policy": {
		"0 | acquire 1 {v}:j @jobs.try a | [1,1,0,0,10000,1,1,0,1]",
		"0 | acquire 1 {v}:j @jobs.try b | [1,1,0,0,10000,1,0,10000,1]",
		"0 | renew 1 {v}:j @jobs.try b | [1,1,0,0,10000,1,0,-1,1]",
		"0 | release 1 {v}:j @jobs.try b | 0",
		"0 | release 1 {v}:j @jobs.try a | 1",
	},
}

func withPolicies(t *testing.T) (*embedded.Server, functions.Build) {
	t.Helper()
	build, err := functions.New(functions.WithPolicies(policies...))
	if err != nil {
		t.Fatal(err)
	}
	return embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.UnixMicro(1700000000000000))), build
}

func TestPolicies(t *testing.T) {
	server, build := withPolicies(t)
	for name, row := range policyRows {
		t.Run(name, func(t *testing.T) {
			var vector functions.Vector
			for _, text := range row {
				parts := strings.SplitN(strings.ReplaceAll(text, "{{BUILD}}", build.ID()), " | ", 3)
				at, err := time.ParseDuration(parts[0] + "ms")
				if err != nil || len(parts) != 3 {
					t.Fatalf("%q is not a step", text)
				}
				us := at.Microseconds()
				step := functions.Step{AtUS: &us, Call: strings.Fields(parts[1])}
				if step.Call[0] == ":" {
					step.Call = step.Call[1:]
				} else {
					step.Call = append([]string{"FCALL", "ratelimit_" + step.Call[0]}, step.Call[1:]...)
				}
				if strings.HasPrefix(parts[2], "RATELIMIT") {
					step.Error = parts[2]
				} else {
					step.Reply = json.RawMessage(parts[2])
				}
				vector.Steps = append(vector.Steps, step)
			}
			run(t, server, 1700000000000000, vector)
		})
	}
}

// What the library counts of its shadow policies since it was loaded, beside the names of all policies.
func TestInfoOfPolicies(t *testing.T) {
	server, build := withPolicies(t)
	info := func() []any {
		reply, err := server.Do("FCALL_RO", "ratelimit_info", "0")
		if err != nil {
			t.Fatal(err)
		}
		return reply.([]any)
	}
	want := func(counts string) {
		t.Helper()
		step := functions.Step{Call: []string{"ratelimit_info"}, Reply: json.RawMessage(
			`["version","` + build.Version() + `","contract",1,"build_id","` + build.ID() + `","policies",` +
				`["api","calc","jobs","jobs.try","queue","seen","try","try.both","two-rates","wrong","wrong.too"],"shadow_denied",` + counts + `]`)}
		if err := step.Check(info(), nil); err != nil {
			t.Error(err)
		}
	}
	do := func(call string) {
		t.Helper()
		args := []any{}
		for _, word := range strings.Fields("FCALL ratelimit_" + call) {
			args = append(args, word)
		}
		if _, err := server.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	want(`["jobs.try",0,"queue",0,"try",0,"try.both",0]`)
	for range 5 {
		do("take 1 {v}:a @try")
	}
	do("peek 1 {v}:a @try")                       // asks only
	do("refund 1 {v}:a @try COST 0")              // gives back
	do("take 1 {v}:a @try COST 0")                // would be allowed
	do("take 2 {v}:a {v}:x @try 1/s COST 1 2")    // was denied, but not by it
	do("take 3 {v}:b {v}:c {v}:a @try.both @try") // of these two one would deny
	do("acquire 1 {v}:j @jobs.try a")
	do("acquire 1 {v}:j @jobs.try b")
	want(`["jobs.try",1,"queue",0,"try",4,"try.both",0]`)
	if err := server.Load(build.Text()); err != nil {
		t.Fatal(err)
	}
	want(`["jobs.try",0,"queue",0,"try",0,"try.both",0]`)
}

// More limits than the library remembers pass through: a policy's limit is parsed anew, and says the same.
func TestPoliciesOutlastTheTableOfParsedLimits(t *testing.T) {
	server, _ := withPolicies(t)
	for i := range 2100 {
		if _, err := server.Do("FCALL", "ratelimit_peek", "1", "{v}:x", strconv.Itoa(i+1)+"/s"); err != nil {
			t.Fatal(err)
		}
		if i%300 == 0 {
			for _, call := range [][]any{
				{"FCALL", "ratelimit_peek", "1", "{v}:a", "@api"},
				{"FCALL", "ratelimit_peek", "2", "{v}:a", "{v}:b", "@calc"},
				{"FCALL", "ratelimit_peek", "1", "{v}:a", "@try"},
			} {
				reply, err := server.Do(call...)
				if err != nil || reply.([]any)[0] != int64(1) {
					t.Errorf("after %d limits: %v: %v, %v", i, call, reply, err)
				}
			}
		}
	}
}
