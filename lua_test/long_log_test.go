package lua_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestALongLog compares a log of hundreds of calls, which the library searches without reading it
// as a whole, with a plain list of times.
func TestALongLog(t *testing.T) {
	const limit, n, period = "sliding_log 800/10s", 800, 10 * time.Second
	for _, text := range []string{limit, limit + ", 50000/m"} {
		t.Run(text, func(t *testing.T) {
			server := start(t)
			began := server.Time()
			do := func(words ...any) string {
				t.Helper()
				reply := must[any](t)(server.Do(words...))
				return strings.Trim(fmt.Sprint(reply), "[]")
			}
			var taken []time.Time // when each unit that still counts was taken
			for i := range 1200 {
				now := began.Add(time.Duration(i) * 23 * time.Millisecond)
				server.SetTime(now)
				for len(taken) > 0 && !taken[0].After(now.Add(-period)) {
					taken = taken[1:]
				}
				verb, cost := "take", 1+i%3
				switch {
				case i%400 == 350 && len(taken) >= 30:
					verb, cost = "refund", 30
				case i%200 == 99: // this block ends before the next call
					do("FCALL", "ratelimit_block", 1, "k", 1)
					continue
				case i%200 == 199:
					do("FCALL", "ratelimit_block", 1, "k", 1)
					do("FCALL", "ratelimit_unblock", 1, "k")
				}
				allowed, retry := 1, int64(0)
				switch over := len(taken) + cost - n; {
				case verb == "refund":
					taken = taken[:len(taken)-cost]
				case over > 0:
					allowed, retry = 0, taken[over-1].Add(period).Sub(now).Milliseconds()
				default:
					for range cost {
						taken = append(taken, now)
					}
				}
				reset := taken[len(taken)-1].Add(period).Sub(now).Milliseconds()
				want := fmt.Sprintf("%d %d %d %d %d 1", allowed, n, n-len(taken), retry, reset)
				got := do("FCALL", "ratelimit_"+verb, 1, "k", text, "COST", cost)
				if text != limit { // the second rate resets at a different time
					fields := strings.Fields(got)
					fields[4] = fmt.Sprint(reset)
					got = strings.Join(fields, " ")
				}
				if got != want {
					t.Fatalf("call %d, %s %d: got %s, want %s", i, verb, cost, got, want)
				}
				if left := do("PTTL", "k"); text == limit && left != fmt.Sprint(reset) {
					t.Errorf("call %d: the key expires after %s ms, want %d", i, left, reset)
				}
				if i%50 == 0 && i <= 400 { // before any call leaves the window
					counted := strings.Fields(do("FCALL", "ratelimit_peek", 1, "k", "token_bucket 1000/d", "COST", 0))
					if want := fmt.Sprint(1000 - len(taken)); counted[2] != want {
						t.Errorf("call %d: another algorithm has %s of 1000 left, want %s", i, counted[2], want)
					}
				}
			}
		})
	}
}

// TestALongTextBesideAnother makes the same calls on one key with two rates and on two keys with
// one rate each, and compares the replies. The value of the first key is too long to be read at
// once, so its rates are read one by one.
func TestALongTextBesideAnother(t *testing.T) {
	for _, c := range []struct {
		first, second string // limits
		step          time.Duration
		cost, calls   int
	}{
		{"sliding_log 2000/h", "sliding_log 5/100ms", 10 * time.Millisecond, 1, 1700},
		{"sliding_window 5000000000000000/300s buckets=300", "sliding_window 9000000000000000/400s buckets=400", 700 * time.Millisecond, 14000000000003, 580},
	} {
		t.Run(c.first, func(t *testing.T) {
			server := start(t)
			began := server.Time()
			_, second, _ := strings.Cut(c.second, " ")
			for i := range c.calls {
				server.SetTime(began.Add(time.Duration(i) * c.step))
				both := must[any](t)(server.Do("FCALL", "ratelimit_take", 1, "both", c.first+", "+second, "COST", c.cost)).([]any)
				apart := must[any](t)(server.Do("FCALL", "ratelimit_take", 2, "first", "second", c.first, c.second, "COST", c.cost)).([]any)
				if got, want := fmt.Sprint(both[:5]), fmt.Sprint(apart[:5]); got != want {
					t.Fatalf("call %d: got %s, want %s", i, got, want)
				}
			}
			if size := must[any](t)(server.Do("STRLEN", "both")).(int64); size < 8192 {
				t.Errorf("the value has %d bytes, and is read as a whole", size)
			}
		})
	}
}

// bigEndian returns number in big-endian order, in the given number of bytes.
func bigEndian(bytes int, number uint64) string {
	return string(binary.BigEndian.AppendUint64(nil, number)[8-bytes:])
}

// TestTheLargestLog checks that the library accepts a stored log with 100,000,000 units, and
// rejects one with more units.
func TestTheLargestLog(t *testing.T) {
	const us = 1700000000000000
	server := start(t)
	server.SetTime(time.UnixMicro(us))
	for units, want := range map[uint64]string{100000000: "[0 5 0 86400000 86400000 1]", 100000001: "BADSTATE"} {
		value := "sliding_log:" + bigEndian(5, 0) + bigEndian(7, us) + bigEndian(5, units)
		if _, err := server.Do("SET", "k", value, "PX", "86400000"); err != nil {
			t.Fatal(err)
		}
		if got := textOf(server.Do("FCALL", "ratelimit_peek", "1", "k", "sliding_log 5/d")); !strings.Contains(got, want) {
			t.Errorf("%d units: got %s, want %s", units, got, want)
		}
	}
}

// TestSumsOfALog checks that the library accepts only logs whose first sum is below wrap. Sums wrap
// around to 0 at this number.
func TestSumsOfALog(t *testing.T) {
	const us, wrap = 1700000000000000, 246952198016
	server := start(t)
	server.SetTime(time.UnixMicro(us))
	for base, want := range map[uint64]string{wrap - 1: "[1 5 3 0 86400000 1]", wrap: "BADSTATE"} {
		log := bigEndian(5, base) + bigEndian(7, us) + bigEndian(5, (base+1)%wrap)
		for limit, value := range map[string]string{"sliding_log 5/d": "sliding_log:" + log, "sliding_log 5/d, 9/d": "sliding_log::17:" + log + "0:"} {
			if _, err := server.Do("SET", "k", value, "PX", "86400000"); err != nil {
				t.Fatal(err)
			}
			if got := textOf(server.Do("FCALL", "ratelimit_take", "1", "k", limit)); !strings.Contains(got, want) {
				t.Errorf("%s, first sum %d: got %s, want %s", limit, base, got, want)
			}
		}
	}
}

// TestTwoLogsAreNotOne checks that the stored logs of two rates are never read as a single log. For
// some times and sums, the bytes of the two look like one log.
func TestTwoLogsAreNotOne(t *testing.T) {
	const (
		us   = 1700000000000000>>32<<32 | 0x3a31373a // the lower bytes spell ":17:"
		sums = 246952198016                          // sums wrap around to 0 at this number
		past = (0x3a31373a00 + 3) % sums             // read as one log, the value would have three units
	)
	log := func(base, sum uint64) string { return bigEndian(5, base) + bigEndian(7, us) + bigEndian(5, sum) }
	server := start(t)
	server.SetTime(time.UnixMicro(us))
	value := "sliding_log::17:" + log(0, 2) + "17:" + log(past-3, past)
	must[any](t)(server.Do("SET", "k", value, "PX", "86400000"))
	for limit, want := range map[string]string{"sliding_log 5/d, 5/d": "[1 5 1 0 86400000 1]", "sliding_log 5/d": "[1 5 2 0 86400000 1]"} {
		if got := textOf(server.Do("FCALL", "ratelimit_peek", "1", "k", limit)); got != want {
			t.Errorf("%s: got %s, want %s", limit, got, want)
		}
	}
}

// longLog returns a log with an entry for each number of units. The entries are a microsecond apart, and the
// last one is a microsecond before now.
func longLog(now time.Time, units ...uint64) string {
	log := append([]byte("sliding_log:"), make([]byte, 5)...) // no units before the first entry
	sum := uint64(0)
	for i, n := range units {
		sum += n
		log = append(log, bigEndian(7, uint64(now.UnixMicro())-uint64(len(units)-i))+bigEndian(5, sum)...)
	}
	return string(log)
}

// TestRefundOfLongLogs checks that a refund changes no key if the logs of all keys are too long to copy.
func TestRefundOfLongLogs(t *testing.T) {
	server := offline{start(t)}
	log := longLog(server.Time(), slices.Repeat([]uint64{1}, 110000)...)
	refund := []string{"FCALL", "ratelimit_refund", "2", "a", "b", "sliding_log 2000/d", "sliding_log 2000/d"}
	for _, options := range [][]string{nil, {"COST", "1"}, {"BORROW", "PAID", "1"}} {
		for _, key := range refund[3:5] {
			must[any](t)(server.Do("SET", key, log, "PX", "86400000"))
		}
		// The first call of a limit parses it. Only later calls decide without parsing.
		must[any](t)(server.Do("FCALL", "ratelimit_take", "1", "c", "sliding_log 2000/d"))
		words := slices.Concat(refund, options)
		if got, want := textOf(server.Do(words...)), "BADKEYS the keys hold more than 2500000 bytes"; !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", strings.Join(words[5:], " "), got, want)
		}
		for _, key := range refund[3:5] {
			if got := must[any](t)(server.Do("GET", key)); got != log {
				t.Errorf("%s: the refund changed key %s", strings.Join(words[5:], " "), key)
			}
		}
	}
}

// TestChargeOfALongLog checks that a call fails and changes nothing if the log is too long to copy: with
// FORCE, and with UPTO beside a shadow policy, if only the decision without shadow policies would copy it.
// The log has to be copied, because its last entry is later than now.
func TestChargeOfALongLog(t *testing.T) {
	server := offline{withShadow(t, "1/s")}
	units := make([]uint64, 2500000/12+2)
	units[len(units)-1] = 6
	log := longLog(server.Time().Add(2*time.Microsecond), units...)
	for _, call := range []string{"1|a|sliding_log 10/s", "1|a|sliding_log 10/s|FORCE", "2|a|b|sliding_log 10/s|@tried|COST|5|UPTO"} {
		must[any](t)(server.Do("SET", "a", log, "PX", "1000"))
		words := strings.Split("FCALL|ratelimit_take|"+call, "|")
		if got, want := textOf(server.Do(words...)), "BADKEYS the keys hold more than 2500000 bytes"; !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
		if got := must[any](t)(server.Do("GET", "a")); got != log {
			t.Errorf("%s: the call changed the key", call)
		}
		if n := must[any](t)(server.Do("EXISTS", "b")); n != int64(0) {
			t.Errorf("%s: the call charged the shadow policy", call)
		}
	}
	must[any](t)(server.Do("SET", "a", longLog(server.Time().Add(2*time.Microsecond), units[1:]...), "PX", "1000"))
	if got, want := textOf(server.Do("FCALL", "ratelimit_take", "1", "a", "sliding_log 10/s")), "[1 10 3 0 1000 1]"; got != want {
		t.Errorf("with an entry less: got %s, want %s", got, want)
	}
}
