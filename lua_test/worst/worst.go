// Package worst lists the most expensive known valid calls to the library. The bench measures how
// long a server takes for each call, and tests count the work that each call causes.
package worst

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/lua_test/counted"
)

// Call is an expensive call and the state of its keys before it.
type Call struct {
	Name string

	// Prepare returns the commands that write the state into an empty database. now is the server's
	// time.
	Prepare func(now time.Time) [][]string

	// Words returns the command that makes the call. Its limits may differ each time.
	Words func() []string

	// Beyond reports whether the call, or a state stored by another limit, exceeds a bound. The
	// library may then reject the call.
	Beyond bool

	Large bool // the state has a million elements, and the call takes seconds in the offline engine
}

const day = 24 * time.Hour

// Bound is the maximum work that a call may cause. The calls at the bounds of SEMANTICS.md need
// almost as much, and take up to 10 ms.
var Bound = counted.Work{Commands: 1500, Bytes: 5200000, Steps: 20000}

// Calls returns all the expensive calls.
func Calls() []Call {
	return slices.Concat(ofLimits(), ofBuckets(), ofLogs(), ofLeases(), ofKeys())
}

// Keys returns n keys of 12 bytes.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("{v}:wrst%04d", i)
	}
	return keys
}

// FCall returns the words of the FCALL command for a verb.
func FCall(verb string, keys []string, args ...string) []string {
	return slices.Concat([]string{"FCALL", "ratelimit_" + verb, strconv.Itoa(len(keys))}, keys, args)
}

// always returns a Words function that returns the same call each time.
func always(verb string, keys []string, args ...string) func() []string {
	words := FCall(verb, keys, args...)
	return func() []string { return words }
}

func same(text string, n int) []string { return slices.Repeat([]string{text}, n) }

// rates returns a limit that repeats rate n times.
func rates(algorithm string, n int, rate string) string {
	return algorithm + " " + strings.Join(same(rate, n), ", ")
}

func nothing(time.Time) [][]string { return nil }

// holding returns a Prepare function whose commands store a value in each key.
func holding(value Text, keys ...string) func(time.Time) [][]string {
	return func(now time.Time) [][]string {
		text := value(now)
		commands := make([][]string, len(keys))
		for i, key := range keys {
			commands[i] = []string{"SET", key, text, "PX", "86400000"}
		}
		return commands
	}
}

// overridden returns a Prepare function that returns the commands of prepare, followed by commands
// that override the limits of the keys.
func overridden(prepare func(time.Time) [][]string, limit string, keys ...string) func(time.Time) [][]string {
	return func(now time.Time) [][]string {
		commands := prepare(now)
		for _, key := range keys {
			commands = append(commands, FCall("override", []string{key}, limit, "60000"))
		}
		return commands
	}
}

// ofLimits returns calls that are expensive because of their arguments.
func ofLimits() []Call {
	number := 1000
	// fresh returns a take with limits that the server has not parsed before.
	fresh := func(limits, size int) func() []string {
		return func() []string {
			words := FCall("take", Keys(50))
			for range limits {
				number++
				words = append(words, rates("gcra", size, strconv.Itoa(number)+"/d"))
			}
			return words
		}
	}
	gcra := func(time.Time) string { return "gcra" }
	return []Call{
		{Name: "take: 50 keys of 5 rates", Prepare: holding(gcra, Keys(50)...),
			Words: always("take", Keys(50), same(rates("leaky_bucket", 5, "7/s"), 50)...)},
		{Name: "take: 50 new limits of 5 rates", Prepare: nothing, Words: fresh(50, 5)},
		{Name: "take: 50 new limits of 16 rates", Prepare: nothing, Words: fresh(50, 16), Beyond: true},
		{Name: "take: 50 keys, each with an override of 5 rates", Prepare: overridden(nothing, rates("leaky_bucket", 5, "7/s"), Keys(50)...),
			Words: always("take", Keys(50), same("3/m", 50)...)},
		{Name: "take UPTO: 50 keys, each with an override of 5 rates", Prepare: overridden(nothing, rates("leaky_bucket", 5, "7/s"), Keys(50)...),
			Words: always("take", Keys(50), append(same("3/m", 50), "COST", "3", "UPTO")...)},
		{Name: "take: 20000 new limits", Prepare: nothing, Words: fresh(20000, 1), Beyond: true},
		{Name: "take: 20000 costs", Prepare: nothing, Words: always("take", Keys(1), append([]string{"3/m", "COST"}, same("2", 20000)...)...), Beyond: true},
	}
}

func ofBuckets() []Call {
	const window = "1000000/1000s buckets=1000"
	one, fifty := Keys(1), Keys(50)
	three := func(count string) Text { return Several("sliding_window", slices.Repeat([]Text{Buckets(count)}, 3)...) }
	single := func(count string) Text { return One("sliding_window", Buckets(count)) }
	few, wide := same(rates("sliding_window", 3, "1000/1000s"), 50), rates("sliding_window", 3, window)
	return []Call{
		{Name: "take: 3 rates of 1000 buckets", Prepare: holding(three("123"), one...), Words: always("take", one, wide)},
		{Name: "refund: 3 rates of 1000 buckets", Prepare: holding(three("123"), one...), Words: always("refund", one, wide)},
		{Name: "take: 50 keys with 1000 buckets of another limit", Prepare: holding(single("123"), fifty...),
			Words: always("take", fifty, same("fixed_window 1000000/1000s", 50)...), Beyond: true},
		{Name: "take: 50 keys with 1000 large buckets of another limit", Prepare: holding(single("8000000000000"), fifty...),
			Words: always("take", fifty, same("fixed_window 1000000/1000s", 50)...), Beyond: true},
		{Name: "take: 50 keys of 1000 buckets, with a limit of 60 buckets", Prepare: holding(single("1"), fifty...),
			Words: always("take", fifty, same("sliding_window 1000000/960s buckets=60", 50)...), Beyond: true},
		{Name: "take: 50 keys of 3 x 1000 buckets, with a limit of 3 rates", Prepare: holding(three("1"), fifty...), Words: always("take", fifty, few...), Beyond: true},
		{Name: "take: 2 keys, each with an override of 3 x 1000 buckets", Prepare: overridden(nothing, wide, fifty[:2]...),
			Words: always("take", fifty[:2], same("3/m", 2)...)},
		{Name: "take: 2 keys of 3 x 1000 large buckets, with a limit of 3 x 500 buckets", Prepare: holding(three("8000000000000"), fifty[:2]...),
			Words: always("take", fifty[:2], same(rates("sliding_window", 3, "9000000000000000/1000s buckets=500"), 2)...)},
		{Name: "take: 50 keys of 3 x 1000 buckets, each with an override of as many", Prepare: overridden(holding(three("1"), fifty...), wide, fifty...),
			Words: always("take", fifty, same("3/m", 50)...), Beyond: true},
		{Name: "peek: the same buckets under a block that has ended", Prepare: holding(Blocked(-time.Second, three("1")), fifty...),
			Words: always("peek", fifty, few...), Beyond: true},
	}
}

func ofLogs() []Call {
	one, fifty := Keys(1), Keys(50)
	const limit, two = "sliding_log 100000/d", "sliding_log 10000/h, 90000/d"
	log := func(calls int, span time.Duration) Text { return One("sliding_log", Log(calls, span)) }
	twoLogs := Several("sliding_log", Log(9990, time.Hour), Log(89990, day))
	twoDebts := Several("sliding_log", Log(19990, time.Hour), Log(179990, day))
	full := log(200000, 2*day)
	few, fewer := same("sliding_log 1000/h, 1000/d", 50), same("sliding_log 2000/h", 50)
	return []Call{
		{Name: "take: two logs of 100000 calls", Prepare: holding(twoLogs, one...), Words: always("take", one, two)},
		{Name: "take: a log of 200000 calls, half of them expired", Prepare: holding(full, one...), Words: always("take", one, limit)},
		{Name: "take: the same log under a block", Prepare: holding(Blocked(time.Hour, full), one...), Words: always("take", one, limit)},
		{Name: "take: the same log under a block that has ended", Prepare: holding(Blocked(-time.Second, full), one...),
			Words: always("take", one, limit, "COST", "0")},
		{Name: "take: the same log under an override", Prepare: overridden(holding(full, one...), limit, one...), Words: always("take", one, "3/m")},
		{Name: "refund: the same log under an override", Prepare: overridden(holding(full, one...), limit, one...), Words: always("refund", one, "3/m")},
		{Name: "take FORCE: 50 logs of 2000 calls with full debt, under overrides", Prepare: overridden(holding(log(4000, time.Hour), fifty...), "sliding_log 2000/h", fifty...),
			Words: always("take", fifty, append(same("3/m", 50), "FORCE")...)},
		{Name: "take FORCE: 50 logs of 200000 calls with full debt, under overrides", Prepare: overridden(holding(full, fifty...), "sliding_log 2000/h", fifty...),
			Words: always("take", fifty, append(same("3/m", 50), "FORCE")...), Beyond: true},
		{Name: "peek: two logs of 100000 calls", Prepare: holding(twoLogs, one...), Words: always("peek", one, two)},
		{Name: "refund: two logs of 100000 calls", Prepare: holding(twoLogs, one...), Words: always("refund", one, two)},
		{Name: "take: 50 logs of 100000 calls, with a limit of 2000", Prepare: holding(log(100000, time.Hour), fifty...), Words: always("take", fifty, fewer...), Beyond: true},
		{Name: "refund: 50 logs of 100000 calls, with a limit of 2000", Prepare: holding(log(100000, time.Hour), fifty...), Words: always("refund", fifty, fewer...), Beyond: true},
		{Name: "take FORCE: a log with a debt of 100000 calls, which is rewritten", Prepare: holding(log(200000, day+time.Second), one...),
			Words: always("take", one, limit, "FORCE")},
		{Name: "take FORCE: two logs with debts, 100000 calls in total", Prepare: holding(twoDebts, one...), Words: always("take", one, two, "FORCE")},
		{Name: "take FORCE: two logs with debts, under an override", Prepare: overridden(holding(twoDebts, one...), two, one...), Words: always("take", one, "3/m", "FORCE")},
		{Name: "refund: two logs with debts, 100000 calls in total", Prepare: holding(twoDebts, one...), Words: always("refund", one, two)},
		{Name: "take FORCE: 50 logs of 200000 calls with full debt", Prepare: holding(log(200000, time.Hour), fifty...),
			Words: always("take", fifty, append(fewer, "FORCE")...)},
		{Name: "take: 2 keys of two logs with debts, 100000 calls in total", Prepare: holding(Several("sliding_log", Log(49990, time.Hour), Log(49990, day)), fifty[:2]...),
			Words: always("take", fifty[:2], same("sliding_log 25000/h, 25000/d", 2)...)},
		{Name: "peek: 50 keys of two logs of 100000 calls, with a limit of 1000 each", Prepare: holding(twoLogs, fifty...), Words: always("peek", fifty, few...), Beyond: true},
		{Name: "refund: 50 keys of two logs of 100000 calls, with a limit of 1000 each", Prepare: holding(twoLogs, fifty...), Words: always("refund", fifty, few...), Beyond: true},
		{Name: "peek: the same logs under a block that has ended", Prepare: holding(Blocked(-time.Second, twoLogs), fifty...), Words: always("peek", fifty, few...), Beyond: true},
	}
}

func ofKeys() []Call {
	one, all := Keys(1), Keys(100)
	logs := holding(One("sliding_log", Log(1000, time.Hour)), all...)
	long := holding(One("sliding_log", Log(200000, 2*day)), one...)
	return []Call{
		{Name: "reset: 100 keys", Prepare: logs, Words: always("reset", all)},
		{Name: "block: 100 keys, 1.2 MB", Prepare: logs, Words: always("block", all, "60000")},
		{Name: "block: one key, 2.4 MB", Prepare: long, Words: always("block", one, "60000")},
		{Name: "unblock: one key, 2.4 MB", Words: always("unblock", one),
			Prepare: func(now time.Time) [][]string { return append(long(now), FCall("block", one, "60000")) }},
		{Name: "unblock: 100 keys, 1.2 MB", Words: always("unblock", all),
			Prepare: func(now time.Time) [][]string { return append(logs(now), FCall("block", all, "60000")) }},
		{Name: "override: 100 keys, 1.2 MB", Prepare: logs, Words: always("override", all, "1000/h", "60000")},
		{Name: "override_end: 100 keys, 1.2 MB", Words: always("override_end", all),
			Prepare: func(now time.Time) [][]string { return append(logs(now), FCall("override", all, "1000/h", "60000")) }},
		{Name: "usage: an hour", Prepare: usage(0), Words: always("usage", one)},
		{Name: "take: TRACK in a record of the previous hour", Prepare: usage(61), Words: always("take", []string{"{v}:wrsttake", one[0]}, "3/m", "TRACK")},
	}
}

// usage returns a Prepare function whose commands store a usage record of 60 minutes. The last of
// these minutes began `before` minutes ago.
func usage(before int64) func(time.Time) [][]string {
	return func(now time.Time) [][]string {
		key := Keys(1)[0]
		hash := []string{"HSET", key, "first", "1", "last", strconv.FormatInt(now.UnixMilli(), 10), "allowed", "1", "denied", "1", "cost", "1"}
		for i := range int64(60) {
			minute := now.Unix()/60 - before - i
			hash = append(hash, fmt.Sprintf("a%d", minute), "1", fmt.Sprintf("d%d", minute), "1")
		}
		return [][]string{hash, {"PEXPIRE", key, "86400000"}}
	}
}
