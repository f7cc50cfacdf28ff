package worst

import (
	"strconv"
	"time"
)

// leases returns a Prepare function for a key with 5000 leases of the given length. The lease x
// expires 20 s after now. The others expire a millisecond apart, the first at now+from. If several
// is true, the length of each lease is stored separately, as if the lengths differed.
func leases(from, length time.Duration, several bool) func(time.Time) [][]string {
	return func(now time.Time) [][]string {
		key, words := Keys(1)[0], []string{"ZADD", Keys(1)[0]}
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		for i := range 5000 {
			id, lapses := strconv.Itoa(i), now.Add(from).UnixMilli()+int64(i)
			if i == 4999 {
				id, lapses = "x", now.Add(20*time.Second).UnixMilli()
			}
			words = append(words, number(lapses), "lease:"+id)
			if several {
				words = append(words, number(length.Milliseconds()-lapses), "given:"+id)
			}
		}
		if !several && length > 0 {
			words = append(words, number(-length.Milliseconds()), "length")
		}
		return [][]string{words, {"PEXPIRE", key, "86400000"}}
	}
}

func ofLeases() []Call {
	const minute = time.Minute
	one, all := Keys(1), Keys(100)
	call := func(verb, lease string) func() []string {
		return always(verb, one, "concurrency 5000 lease="+lease, "x")
	}
	return []Call{
		{Name: "acquire: 5000 leases that all last too long", Prepare: leases(time.Hour, 10*time.Second, false), Words: call("acquire", "10s")},
		{Name: "renew: 5000 leases that have lapsed but one", Prepare: leases(-time.Hour, minute, false), Words: call("renew", "1m")},
		{Name: "renew: the first of another length among 5000 leases", Prepare: leases(minute-10*time.Second, minute, false), Words: call("renew", "30s")},
		{Name: "renew: the first of another length among 5000 leases that all last too long", Prepare: leases(time.Hour, minute, false), Words: call("renew", "30s")},
		{Name: "renew: 5000 leases of several lengths", Prepare: leases(minute-10*time.Second, minute, true), Words: call("renew", "30s")},
		{Name: "renew: 5000 leases of several lengths that all last too long", Prepare: leases(time.Hour, minute, true), Words: call("renew", "30s")},
		{Name: "renew: 5000 leases of several lengths, half of which have lapsed", Prepare: leases(-2500*time.Millisecond, minute, true), Words: call("renew", "30s")},
		{Name: "renew: 5000 leases of several lengths, most of which have lapsed", Prepare: leases(-4990*time.Millisecond, minute, true), Words: call("renew", "30s")},
		{Name: "renew: 5000 leases under an override of another length", Words: call("renew", "1m"), Prepare: func(now time.Time) [][]string {
			return append(leases(time.Hour, minute, false)(now), FCall("override", one, "concurrency 5000 lease=30s", "60000"))
		}},
		{Name: "release: one of 5000 leases", Prepare: leases(time.Hour, day, true), Words: call("release", "30s")},
		{Name: "reset: 100 keys of 5000 leases", Words: always("reset", all), Large: true, Prepare: func(now time.Time) [][]string {
			commands := leases(time.Hour, day, false)(now)
			for _, key := range all[1:] {
				commands = append(commands, []string{"COPY", all[0], key})
			}
			return commands
		}},
	}
}
