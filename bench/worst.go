package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// worstMicroseconds is the most that any valid call should take in its fastest round, on an
// otherwise idle machine.
const worstMicroseconds = 10000

// logOf returns a sliding_log with this many calls, the last of them now, spread evenly over span.
func logOf(calls int, span time.Duration) string {
	now := time.Now().UnixMicro()
	log := make([]byte, 5, 5+12*calls)
	for i := 1; i <= calls; i++ {
		at := binary.BigEndian.AppendUint64(nil, uint64(now-span.Microseconds()+span.Microseconds()*int64(i)/int64(calls)))
		sum := binary.BigEndian.AppendUint64(nil, uint64(i))
		log = append(append(log, at[1:]...), sum[3:]...)
	}
	return string(log)
}

// bucketsOf returns the state of a sliding_window with buckets=1000 and a period of 1000 s, with
// all buckets in use.
func bucketsOf() string {
	return fmt.Sprintf("1000:%d:%s", time.Now().Unix(), strings.TrimSuffix(strings.Repeat("123,", 1001), ","))
}

// severalOf returns a value with the states of several rates.
func severalOf(algorithm string, states ...string) string {
	var value strings.Builder
	value.WriteString(algorithm + "::")
	for _, state := range states {
		fmt.Fprintf(&value, "%d:%s", len(state), state)
	}
	return value.String()
}

// worst adds the most expensive valid calls of each verb that are known. Each is measured a few
// times, with a new state before each call.
func (b *caseBuilder) worst() {
	ctx := context.Background()
	names := func(n int) []any {
		keys := make([]any, n)
		for i := range keys {
			keys[i] = key("wrst", i)
		}
		return keys
	}
	set := func(value func() string, keys ...any) func() []redis.Cmder {
		return func() []redis.Cmder {
			text, all := value(), []redis.Cmder{redis.NewStatusCmd(ctx, "flushdb")}
			for _, k := range keys {
				all = append(all, redis.NewStatusCmd(ctx, "set", k, text, "px", 86400000))
			}
			return all
		}
	}
	// leases returns 5000 leases that expire from a given time on. Their set has one length for
	// all, or one for each lease.
	leases := func(from, length time.Duration, several bool) func() []redis.Cmder {
		return func() []redis.Cmder {
			k, now := key("wrst", 0), time.Now()
			args := []any{"zadd", k}
			for i := range 5000 {
				id, lapses := strconv.Itoa(i), now.Add(from).UnixMilli()+int64(i)
				if i == 4999 {
					id, lapses = "x", now.Add(20*time.Second).UnixMilli()
				}
				args = append(args, lapses, "lease:"+id)
				if several {
					args = append(args, length.Milliseconds()-lapses, "given:"+id)
				}
			}
			if !several && length > 0 {
				args = append(args, -length.Milliseconds(), "length")
			}
			return []redis.Cmder{redis.NewStatusCmd(ctx, "flushdb"), redis.NewIntCmd(ctx, args...), redis.NewIntCmd(ctx, "pexpire", k, 86400000)}
		}
	}
	fcall := func(verb string, keys []any, args ...any) []any {
		return append(append([]any{"fcall", "ratelimit_" + verb, len(keys)}, keys...), args...)
	}
	same := func(limit string, n int) []any {
		limits := make([]any, n)
		for i := range limits {
			limits[i] = limit
		}
		return limits
	}
	text := func(value string) func() string { return func() string { return value } }
	fiveRates := "leaky_bucket 7/s" + strings.Repeat(", 7/s", 4)
	logs := "sliding_log 10000/h, 90000/d"
	twoLogs := func() string { return severalOf("sliding_log", logOf(9990, time.Hour), logOf(89990, day)) }
	window := "sliding_window 1000000/1000s buckets=1000"
	windows := window + strings.Repeat(", 1000000/1000s buckets=1000", 4)
	fiveWindows := func() string {
		return severalOf("sliding_window", bucketsOf(), bucketsOf(), bucketsOf(), bucketsOf(), bucketsOf())
	}
	full := func() string { return "sliding_log:" + logOf(200000, 2*day) }
	blocked := func() string {
		return fmt.Sprintf("blocked:%d:%d:", time.Now().Add(time.Hour).UnixMilli(), time.Now().Add(day).UnixMilli()) + full()
	}
	runOut := func() string {
		return fmt.Sprintf("blocked:%d:%d:", time.Now().Add(-time.Second).UnixMilli(), time.Now().Add(day).UnixMilli()) + full()
	}
	all := names(250)
	many := set(func() string { return "sliding_log:" + logOf(800, time.Hour) }, all...)
	manyBlocked := func() []redis.Cmder {
		return append(many(), redis.NewCmd(ctx, fcall("block", all, 60000)...))
	}
	usage := func() []redis.Cmder {
		args := []any{"hset", key("wrst", 0), "first", 1, "last", time.Now().UnixMilli(), "allowed", 1, "denied", 1, "cost", 1}
		for i := range int64(60) {
			args = append(args, fmt.Sprintf("a%d", time.Now().Unix()/60-i), 1, fmt.Sprintf("d%d", time.Now().Unix()/60-i), 1)
		}
		return []redis.Cmder{redis.NewStatusCmd(ctx, "flushdb"), redis.NewIntCmd(ctx, args...), redis.NewIntCmd(ctx, "pexpire", key("wrst", 0), 86400000)}
	}
	c := benchCase{name: "worst legal calls", note: "each over a state that is made anew before it", work: workload{keys: none, allow: true, cost: 1}, few: true}
	add := func(name string, prepare func() []redis.Cmder, args []any) {
		command := args[0].(string)
		c.contenders = append(c.contenders, contender{
			name: name, library: b.libraries[0], commands: []string{command}, most: worstMicroseconds, prepare: prepare, read: readAnything,
			call: func(int) ([]redis.Cmder, error) { return []redis.Cmder{redis.NewCmd(ctx, args...)}, nil },
		})
	}
	one := names(1)
	add("take: 50 keys of 5 rates", set(text("gcra"), names(50)...), fcall("take", names(50), same(fiveRates, 50)...))
	add("take: 5 rates of 1000 buckets", set(fiveWindows, one...), fcall("take", one, windows))
	add("take: 50 keys that another limit's 1000 buckets are in", set(func() string { return "sliding_window:" + bucketsOf() }, names(50)...),
		fcall("take", names(50), same("fixed_window 1000000/1000s", 50)...))
	add("take: two logs of 100000 calls", set(twoLogs, one...), fcall("take", one, logs))
	add("take: a log of 100000 calls, half of it over", set(full, one...), fcall("take", one, "sliding_log 100000/d"))
	add("take: that log under a block", set(blocked, one...), fcall("take", one, "sliding_log 100000/d"))
	add("take: that log under a block that has run out", set(runOut, one...), fcall("take", one, "sliding_log 100000/d", "COST", 0))
	add("peek: two logs of 100000 calls", set(twoLogs, one...), fcall("peek", one, logs))
	add("refund: two logs of 100000 calls", set(twoLogs, one...), fcall("refund", one, logs))
	add("refund: 5 rates of 1000 buckets", set(fiveWindows, one...), fcall("refund", one, windows))
	const minute = time.Minute
	add("acquire: 5000 leases that all last too long", leases(time.Hour, 10*time.Second, false), fcall("acquire", one, "concurrency 5000 lease=10s", "x"))
	add("renew: 5000 leases that have lapsed but one", leases(-time.Hour, minute, false), fcall("renew", one, "concurrency 5000 lease=1m", "x"))
	add("renew: the first of another length among 5000 leases", leases(minute-10*time.Second, minute, false), fcall("renew", one, "concurrency 5000 lease=30s", "x"))
	add("renew: that, and all others last too long", leases(time.Hour, minute, false), fcall("renew", one, "concurrency 5000 lease=30s", "x"))
	add("renew: 5000 leases of several lengths", leases(minute-10*time.Second, minute, true), fcall("renew", one, "concurrency 5000 lease=30s", "x"))
	add("renew: 5000 leases of several lengths that all last too long", leases(time.Hour, minute, true), fcall("renew", one, "concurrency 5000 lease=30s", "x"))
	add("renew: 5000 leases of several lengths, half of which have lapsed", leases(-2500*time.Millisecond, minute, true), fcall("renew", one, "concurrency 5000 lease=30s", "x"))
	add("release: one of 5000 leases", leases(time.Hour, day, true), fcall("release", one, "concurrency 5000 lease=30s", "x"))
	add("reset: 250 keys", many, fcall("reset", all))
	add("block: 250 keys, 2.4 MB", many, fcall("block", all, 60000))
	add("block: one key, 2.4 MB", set(full, one...), fcall("block", one, 60000))
	add("unblock: 250 keys, 2.4 MB", manyBlocked, fcall("unblock", all))
	add("usage: an hour", usage, append([]any{"fcall_ro"}, fcall("usage", one)[1:]...))
	b.list = append(b.list, c)
}
