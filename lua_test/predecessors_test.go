package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

// The predecessors are published rate limiters that the library replaces. Each test makes the calls
// of a program that used one predecessor, and checks the library's replies. Some of these calls get
// a wrong reply from the predecessor. Times are in seconds after the start, which is 20 s after the
// beginning of a minute.

type predecessor struct {
	t      *testing.T
	server *embedded.Server
	start  time.Time
}

func newPredecessor(t *testing.T) predecessor {
	p := predecessor{t: t, server: start(t)}
	p.start = p.server.Time()
	return p
}

// at sets the clock and makes a call. It returns the reply on one line, as redis-cli would print
// it.
func (p predecessor) at(seconds float64, words ...any) string {
	p.t.Helper()
	p.server.SetTime(p.start.Add(time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)))
	reply, err := p.server.Do(words...)
	if err != nil {
		return err.Error()
	}
	line := fmt.Sprint(reply)
	if strings.HasPrefix(line, "[") {
		line = line[1 : len(line)-1]
	}
	return line
}

func (p predecessor) want(seconds float64, want string, words ...any) {
	p.t.Helper()
	if got := p.at(seconds, words...); got != want {
		p.t.Errorf("at %v s, %v: got %q, want %q", seconds, words, got, want)
	}
}

func take(keys int, words ...any) []any {
	return append([]any{"FCALL", "ratelimit_take", keys}, words...)
}

// The predecessor's document says: "-1 result indicates there were already max requests in the
// window." In this case, the first field of our reply is 0, and the fourth is the time to retry.
// Our key always has an expiry. If the predecessor's key expires between GET and INCR, INCR creates
// a key without an expiry.
func TestPredecessorCounterThatAnswersMinusOne(t *testing.T) {
	p := newPredecessor(t)
	for _, left := range []int{2, 1, 0} {
		p.want(1, fmt.Sprintf("1 3 %d 0 60000 1", left), take(1, "KEY1", "fixed_window 3/m")...)
	}
	p.want(31, "0 3 0 30000 30000 1", take(1, "KEY1", "fixed_window 3/m")...)
	p.want(31, "30000", "PTTL", "KEY1")
	p.want(61, "1 3 2 0 60000 1", take(1, "KEY1", "fixed_window 3/m")...)
}

// The predecessor uses a key per user and minute: "20 requests in any given minute". The library
// needs only one key per user. The key's name contains no minute, and the key expires at the end of
// the minute.
func TestPredecessorCounterPerKeyAndMinute(t *testing.T) {
	p := newPredecessor(t)
	limit := "fixed_window 20/m align=clock"
	p.want(0, "1 20 17 0 40000 1", take(1, "zA21X31", limit, "COST", 3)...)
	p.want(40, "1 20 12 0 60000 1", take(1, "zA21X31", limit, "COST", 8)...)
	p.want(100, "1 20 0 0 60000 1", take(1, "zA21X31", limit, "COST", 20)...)
	p.want(159, "0 20 0 1000 1000 1", take(1, "zA21X31", limit)...)
	p.want(160, "1 20 18 0 60000 1", take(1, "zA21X31", limit, "COST", 2)...)
	p.want(221, "0", "EXISTS", "zA21X31")
}

// The predecessor is a counter with additional data for each token: last use, totals and a time
// series. The library's TRACK records these in the same call, without a separate trigger.
func TestPredecessorCounterWithUsageData(t *testing.T) {
	p := newPredecessor(t)
	words := take(2, "{api:0ubo9qku7y}", "{api:0ubo9qku7y}:data", "fixed_window 2/m align=clock", "TRACK")
	p.want(0, "1 2 1 0 40000 1", words...)
	p.want(5, "1 2 0 0 35000 1", words...)
	p.want(6, "0 2 0 34000 34000 1", words...)
	p.want(6, "allowed 2 denied 1 cost 2 first_ms 1700000000000 last_ms 1700000006000 interval_ms 60000 series [[1699999980000 2 1]]",
		"FCALL_RO", "ratelimit_usage", 1, "{api:0ubo9qku7y}:data")
}

// The predecessor is a sorted set of times. It stores whole seconds, so two calls in one second are
// one member and count once. The library counts each call, with times in microseconds.
func TestPredecessorSortedSetLog(t *testing.T) {
	p := newPredecessor(t)
	p.want(0, "1 3 2 0 60000 1", take(1, "KEY1", "sliding_log 3/m")...)
	p.want(0, "1 3 1 0 60000 1", take(1, "KEY1", "sliding_log 3/m")...)
	p.want(0.000001, "1 3 0 0 60000 1", take(1, "KEY1", "sliding_log 3/m")...)
	p.want(0.000002, "0 3 0 60000 60000 1", take(1, "KEY1", "sliding_log 3/m")...)
	p.want(59.999999, "0 3 0 1 1 1", take(1, "KEY1", "sliding_log 3/m")...)
	p.want(60, "1 3 1 0 60000 1", take(1, "KEY1", "sliding_log 3/m")...)
}

// The predecessor is a sorted set and a hash with a bucket per second. The hash grows without
// bound, and neither key expires. The library uses one key, which holds at most 61 counters and
// expires with them.
func TestPredecessorSortedSetAndHashOfBuckets(t *testing.T) {
	p := newPredecessor(t)
	limit := "sliding_window 6/m buckets=60"
	for second := range 6 {
		p.want(float64(second), fmt.Sprintf("1 6 %d 0 61000 1", 5-second), take(1, "KEY1", limit)...)
	}
	p.want(6, "0 6 0 55000 60000 1", take(1, "KEY1", limit)...)
	p.want(61, "1 6 0 0 61000 1", take(1, "KEY1", limit)...)
	for second := 62; second < 600; second += 7 {
		p.at(float64(second), take(1, "KEY1", limit)...)
	}
	if size := len(p.at(600, "GET", "KEY1")); size > 200 {
		t.Errorf("the state has %d bytes after ten minutes", size)
	}
	p.want(700, "0", "EXISTS", "KEY1")
}

// The predecessor's document shows two sessions, with limits of 5 and 3 in 10 s. One session makes
// a call every second, the other every two seconds. redis-cli waits this long after each call, and
// the calls also take time: the test assumes 10 ms in the first session and 20 ms in the second.
func TestPredecessorResourceAndConsumer(t *testing.T) {
	const resource, consumer = "ratelimit:global:calc{a}", "ratelimit:consumer%d:calc{a}"
	sessions := func(p predecessor, calls int) (one, two []string) {
		for n, i, j := 0, 0, 0; n < calls; n++ {
			id, seconds := 9, float64(i)*1.01
			if other := 4.09 + float64(j)*2.02; other < seconds {
				id, seconds = 20, other
				j++
			} else {
				i++
			}
			fields := strings.Fields(p.at(seconds, take(2, resource, fmt.Sprintf(consumer, id), "sliding_log 5/10s", "sliding_log 3/10s")...))
			word := map[string]string{"1": "Adding", "0": "RESOURCE"}[fields[0]]
			if fields[0] == "0" && fields[5] == "2" {
				word = "CONSUMER"
			}
			if id == 9 {
				one = append(one, word)
			} else {
				two = append(two, word)
			}
		}
		return one, two
	}
	same := func(t *testing.T, name string, got []string, want string) {
		t.Helper()
		if words := strings.Fields(want); len(got) < len(words) || strings.Join(got[:len(words)], " ") != strings.Join(words, " ") {
			t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, " "), strings.Join(words, " "))
		}
	}
	t.Run("with the reason", func(t *testing.T) {
		p := newPredecessor(t)
		one, two := sessions(p, 44)
		// "Output from the first session looks like this once the second session gets going."
		same(t, "first session", one[10:],
			"Adding Adding Adding RESOURCE CONSUMER RESOURCE CONSUMER RESOURCE RESOURCE RESOURCE "+
				"Adding Adding Adding RESOURCE CONSUMER RESOURCE CONSUMER RESOURCE RESOURCE RESOURCE")
		same(t, "second session", two, "Adding Adding RESOURCE RESOURCE RESOURCE Adding Adding RESOURCE RESOURCE RESOURCE")
	})
	t.Run("True and False", func(t *testing.T) {
		p := newPredecessor(t)
		// The first session had started earlier: one of its calls is seven seconds old.
		p.at(-7*1.01, take(2, resource, fmt.Sprintf(consumer, 9), "sliding_log 5/10s", "sliding_log 3/10s")...)
		one, two := sessions(p, 38)
		truth := strings.NewReplacer("Adding", "True", "RESOURCE", "False", "CONSUMER", "False")
		same(t, "first session", strings.Fields(truth.Replace(strings.Join(one, " "))),
			"True True False True False False False False False False "+
				"True True False True False False False False False False True True False True False")
		same(t, "second session", strings.Fields(truth.Replace(strings.Join(two, " "))),
			"True True False False False True True False False False")
	})
}

// The predecessor tests "If (rcount == limit)". After the limit is lowered, its count is above the
// limit and never equal to it, so every call passes. The library denies calls until the log is
// below the new limit.
func TestPredecessorResourceUnderALoweredLimit(t *testing.T) {
	p := newPredecessor(t)
	p.want(0, "1 5 0 0 10000 1", take(1, "global:calc{a}", "sliding_log 5/10s", "COST", 5)...)
	p.want(1, "0 3 0 9000 9000 1", take(1, "global:calc{a}", "sliding_log 3/10s")...)
	p.want(10, "1 3 2 0 10000 1", take(1, "global:calc{a}", "sliding_log 3/10s")...)
}

// The predecessor runs INCR, EXPIRE NX and GET in a transaction: "the key value can get over max
// since we're incrementing regardless". The library counts only allowed calls, so a stream of
// denied calls does not increase the count or prolong the denial.
func TestPredecessorMultiCounterDoesNotOvershoot(t *testing.T) {
	p := newPredecessor(t)
	p.want(0, "1 2 0 0 60000 1", take(1, "key", "fixed_window 2/m", "COST", 2)...)
	for range 100 {
		p.want(30, "0 2 0 30000 30000 1", take(1, "key", "fixed_window 2/m")...)
	}
	p.want(30, "4000000000000000002", "GET", "key") // the mark 400, and a count of 2
	p.want(60, "1 2 1 0 60000 1", take(1, "key", "fixed_window 2/m")...)
}
