// Package policyvectors contains the replies of a library with policies, call by call, for tests of
// the offline engine and of real servers. The vectors in functions/vectors are for a library
// without policies.
package policyvectors

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// StartUS is the start of each vector in microseconds since the epoch.
const StartUS = 1700000000000000

// Policies contains the policies that the vectors use.
var Policies = []functions.Policy{
	{Name: "api", Limits: []functions.PolicyLimit{{Limit: "5/s"}}},
	{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "10/s"}, {Key: "consumer", Limit: "2/s"}}},
	{Name: "two-rates", Limits: []functions.PolicyLimit{{Key: "who", Limit: "gcra 2/s, 3/m"}}},
	{Name: "try", Limits: []functions.PolicyLimit{{Limit: "2/s"}}, Shadow: true},
	{Name: "try.both", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/s"}, {Key: "b", Limit: "4/s"}}, Shadow: true},
	{Name: "queue", Limits: []functions.PolicyLimit{{Limit: "leaky_bucket 1/s burst=2"}}, Shadow: true},
	{Name: "seen", Limits: []functions.PolicyLimit{{Limit: "2/s"}}, Track: true},
	{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=10s"}}},
	{Name: "jobs.try", Limits: []functions.PolicyLimit{{Limit: "concurrency 1 lease=10s"}}, Shadow: true},
	{Name: "wide", Limits: []functions.PolicyLimit{{Key: "a", Limit: "sliding_window 5/s buckets=1000"}, {Key: "b", Limit: "sliding_window 7/s buckets=1000"}}},
	{Name: "wrong", Limits: []functions.PolicyLimit{{Limit: "1/fortnight"}}},
	{Name: "wrong.too", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/s"}, {Key: "b", Limit: "concurrency 1 lease=1s"}}},
}

// Each row contains the steps on one keyspace. A step is "ms since the start | arguments after
// FCALL, without ratelimit_ | reply". The reply is JSON or an error's text. Commands other than
// FCALL begin with a colon.
var rows = map[string][]string{
	"a policy is its limit": {
		"0 | take 1 {v}:a @api | [1,5,4,0,200,1]",
		"0 | take 1 {v}:a 5/s | [1,5,3,0,400,1]",
		"0 | peek 1 {v}:a @api COST 3 | [1,5,0,0,1000,1]",
		"0 | take 1 {v}:a @api COST 4 | [0,5,3,200,400,1]",
		"0 | refund 1 {v}:a @api COST 2 | [1,5,5,0,0,1]",
		"0 | : EXISTS {v}:a | 0",
	},
	"UPTO beside a shadow policy: each takes as many of the units as fit it": {
		"0 | take 2 {v}:a {v}:t 5/s @try COST 0 UPTO | [0,5,5,0,0,1,0,0,2]",
		"0 | take 2 {v}:a {v}:t 5/s @try COST 4 UPTO | [4,5,1,0,800,1,2,0,2]",
		"0 | take 2 {v}:a {v}:t 5/s @try COST 0 UPTO | [0,5,1,0,800,1,0,0,2]",
		"0 | peek 1 {v}:t 2/s COST 0 | [1,2,0,0,1000,1]",
		"0 | take 2 {v}:a {v}:t 5/s @try COST 4 UPTO | [1,5,0,0,1000,1,0,500,2]",
		"0 | take 2 {v}:a {v}:t 5/s @try COST 4 UPTO | [0,5,0,200,1000,1,0,500,1]",
		"500 | take 2 {v}:a {v}:t 5/s @try COST 0 UPTO | [0,5,2,0,500,1,0,0,2]",
		"500 | take 2 {v}:a {v}:once 5/s ONCE 1000 UPTO COST 9 | [2,5,0,0,900,1]",
	},
	"UPTO beside a shadow policy: it is charged no more than is taken": {
		"0 | take 1 {v}:a 5/s COST 4 | [1,5,1,0,800,1]",
		"0 | take 2 {v}:a {v}:t 5/s @try COST 4 UPTO | [1,5,0,0,1000,1,1,0,1]",
		"0 | peek 1 {v}:t 2/s COST 0 | [1,2,1,0,500,1]",
	},
	"UPTO with shadow policies alone: what is asked for passes": {
		"0 | take 1 {v}:a @try COST 5 UPTO | [5,2,0,0,1000,1,2,0,1]",
		"0 | take 2 {v}:a {v}:once @try COST 5 UPTO ONCE 1000 | [5,2,0,0,1000,1,0,500,1]",
		"0 | : EXISTS {v}:once | 0",
		"500 | take 2 {v}:a {v}:once @try COST 5 UPTO ONCE 1000 | [5,2,0,0,1000,1,1,0,1]",
		"500 | take 2 {v}:a {v}:once @try COST 5 UPTO ONCE 1000 | [5,2,0,0,1000,1,1,0,1]",
		"500 | take 3 {v}:b {v}:c {v}:usage @try.both COST 3 UPTO TRACK | [3,1,0,0,1000,1,1,0,1]",
		"500 | : HGET {v}:usage cost | \"3\"",
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
		"0 | take 2 {v}:a {v}:a @calc | RATELIMIT BADKEYS \"{v}:a\" is given twice; name each key once",
		"0 | take 2 {v}:r {v}:c @calc COST 1 2 3 | RATELIMIT BADARGS the number of costs is 3 and the number of limits 2; give one cost for all, or one for each",
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
		"0 | take 2 {v}:t {v}:a @try @api | [1,5,2,0,600,2,0,500,1]", // the shadow policy would deny, so only the other limit is charged
		"0 | take 2 {v}:u {v}:a @try @api COST 1 3 | [0,5,2,200,600,2,0,200,2]",
		"0 | peek 1 {v}:u @try | [1,2,1,0,500,1,1,0,1]", // the other limit denied, so the shadow policy is not charged
		"0 | take 2 {v}:t {v}:a @try @api COST 1 3 | [0,5,2,200,600,2,0,500,1]",
		"0 | take 2 {v}:t {v}:a @try @api COST 3 3 | [0,5,2,200,600,2,0,-1,1]",
		"0 | take 4 {v}:p {v}:u {v}:q {v}:a @try.both @try 5/s COST 1 1 3 1 | [1,5,1,0,800,4,0,-1,3]",
	},
	"limits of policies count for the bounds of a call": {
		"0 | take 4 {v}:a {v}:b {v}:c {v}:d @wide @wide | [1,5,4,0,1001,1]",
		"0 | take 6 {v}:a {v}:b {v}:c {v}:d {v}:e {v}:f @wide @wide @wide | RATELIMIT BADARGS 6000 buckets; one call takes at most 5000",
		"0 | : EXISTS {v}:e {v}:f | 0",
	},
	"a policy of two limits beside a shadow policy is enforced": {
		"0 | take 3 {v}:r {v}:c {v}:t @calc @try COST 1 2 1 | [1,2,0,0,1000,2,1,0,2]",
		"0 | take 3 {v}:r {v}:c {v}:t @calc @try COST 1 1 1 | [0,2,0,500,1000,2,0,500,2]",
		"0 | peek 1 {v}:t @try | [1,2,0,0,1000,1,1,0,1]",
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
		"900 | : EXISTS {v}:x {v}:once2 | 0", // nothing was charged, so nothing is stored
		"900 | take 2 {v}:x {v}:once2 @try COST 2 ONCE 5000 | [1,2,0,0,1000,1,1,0,1]",
		"900 | take 2 {v}:x {v}:once2 @try COST 2 ONCE 5000 | [1,2,0,0,1000,1,1,0,1]",
	},
	"a policy with track takes a usage key last": {
		"0 | take 2 {v}:a {v}:use @seen | [1,2,1,0,500,1]",
		"0 | take 2 {v}:a {v}:use @seen COST 2 | [0,2,1,500,500,1]",
		"0 | take 2 {v}:a {v}:use @seen TRACK | [1,2,0,0,1000,1]", // TRACK in the call too: the same key
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
		"0 | : SET {v}:s x | \"OK\"",
		"0 | acquire 1 {v}:s @jobs.try b | RATELIMIT BADSTATE key \"{v}:s\" does not hold leases; give the limiter a key of its own, or delete this one",
		"0 | release 1 {v}:j @jobs.try a | 1",
	},
}

// Build returns the library for the vectors.
func Build() (functions.Build, error) {
	return functions.New(functions.WithPolicies(Policies...))
}

// All returns the vectors for that build.
func All(build functions.Build) ([]functions.Vector, error) {
	var vectors []functions.Vector
	for name, texts := range rows {
		vector := functions.Vector{Name: name}
		for _, text := range texts {
			step, err := parse(strings.ReplaceAll(text, "{{BUILD}}", build.ID()))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			vector.Steps = append(vector.Steps, step)
		}
		vectors = append(vectors, vector)
	}
	return vectors, nil
}

func parse(text string) (functions.Step, error) {
	parts := strings.SplitN(text, " | ", 3)
	if len(parts) != 3 {
		return functions.Step{}, fmt.Errorf("%q is not a step", text)
	}
	at, err := time.ParseDuration(parts[0] + "ms")
	if err != nil {
		return functions.Step{}, err
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
	return step, nil
}
