package lua_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/lua_test/counted"
)

// names returns n keys.
func names(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("{v}:%d", i)
	}
	return keys
}

// TestBoundsOfACall checks how many keys, limits and rates one call may contain, and that a call
// over a bound changes nothing. functions/vectors/bounds.json tests the bounds of buckets, logs,
// leases and bytes.
func TestBoundsOfACall(t *testing.T) {
	sixteen := "1/d" + strings.Repeat(", 1/d", 15)
	rates := slices.Repeat([]string{sixteen}, 15)
	for _, c := range []struct {
		name   string
		verb   string
		keys   int
		args   []string
		beyond []string // arguments to add to args for a call that has one key too many
		want   string
	}{
		{"take", "take", 50, slices.Repeat([]string{"1/d"}, 50), []string{"1/d"}, "RATELIMIT BADARGS 51 limits; one call takes at most 50"},
		{"peek", "peek", 50, slices.Repeat([]string{"1/d"}, 50), []string{"1/d"}, "RATELIMIT BADARGS 51 limits; one call takes at most 50"},
		{"refund", "refund", 50, slices.Repeat([]string{"1/d"}, 50), []string{"1/d"}, "RATELIMIT BADARGS 51 limits; one call takes at most 50"},
		{"costs", "take", 50, slices.Concat(slices.Repeat([]string{"1/d"}, 50), []string{"COST"}, slices.Repeat([]string{"1"}, 50)), []string{"1"}, "RATELIMIT BADARGS the number of costs is 51 and the number of limits 50; give one cost for all, or one for each"},
		{"rates", "take", 16, append(rates, "1/d"+strings.Repeat(", 1/d", 9)), []string{"1/d"}, "RATELIMIT BADARGS 251 rates; one call takes at most 250"},
		{"rates and logs", "take", 50, slices.Repeat([]string{"sliding_log 1200/d, 400/d"}, 50), []string{"1/d"}, "RATELIMIT BADARGS 51 limits; one call takes at most 50"},
		{"reset", "reset", 100, nil, nil, "RATELIMIT BADKEYS the number of keys is 101; reset takes at most 100"},
		{"block", "block", 100, []string{"1000"}, nil, "RATELIMIT BADKEYS the number of keys is 101; block takes at most 100"},
		{"unblock", "unblock", 100, nil, nil, "RATELIMIT BADKEYS the number of keys is 101; unblock takes at most 100"},
		{"override", "override", 100, []string{"3/s", "1000"}, nil, "RATELIMIT BADKEYS the number of keys is 101; override takes at most 100"},
		{"override_end", "override_end", 100, nil, nil, "RATELIMIT BADKEYS the number of keys is 101; override_end takes at most 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := offline{start(t)}
			call := func(keys int, args ...string) error {
				_, err := server.Do(slices.Concat([]string{"FCALL", "ratelimit_" + c.verb, strconv.Itoa(keys)}, names(keys), args)...)
				return err
			}
			if err := call(c.keys+1, append(c.args, c.beyond...)...); err == nil || err.Error() != c.want {
				t.Errorf("beyond the bound: got %v, want %s", err, c.want)
			}
			if held := everything(t, server); len(held) != 0 {
				t.Errorf("the refused call left %v", held)
			}
			for range 2 {
				if err := call(c.keys, c.args...); err != nil {
					t.Errorf("at the bound: %v", err)
				}
			}
		})
	}
}

// TestMostThatOneCallReads checks the bounds on reading. A call may read 2,500,000 bytes in total.
// Once it has read more than 6,000 buckets, it reads no further state. A limit of another algorithm
// counts the buckets, too. A value of exactly 2,500,000 bytes is read, but then rejected because no
// limiter wrote it.
func TestMostThatOneCallReads(t *testing.T) {
	for _, c := range []struct {
		limit  string
		values []string
		want   string
	}{
		{"token_bucket 1/d, 2/d", []string{"token_bucket:" + strings.Repeat("x", 2500000-13)}, "BADSTATE"},
		{"token_bucket 1/d, 2/d", []string{"token_bucket:" + strings.Repeat("x", 2500001-13)}, "BADKEYS"},
		{"sliding_window 1/d", append(slices.Repeat([]string{buckets(1000)}, 6), "sliding_window:1:1:1"), ""},
		{"sliding_window 1/d", append(slices.Repeat([]string{buckets(1000)}, 5), buckets(1001), "sliding_window:1:1:1"), "BADKEYS"},
		{"1/d", slices.Repeat([]string{buckets(1000)}, 6), ""},
		{"1/d", append(slices.Repeat([]string{buckets(1000)}, 6), "sliding_window:1:1:1"), "BADKEYS"},
	} {
		server := offline{start(t)}
		keys := names(len(c.values))
		for i, value := range c.values {
			must[any](t)(server.Do("SET", keys[i], value, "PX", "60000"))
		}
		_, err := server.Do(slices.Concat([]string{"FCALL", "ratelimit_peek", strconv.Itoa(len(keys))}, keys, slices.Repeat([]string{c.limit}, len(keys)))...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "RATELIMIT "+c.want+" ")) {
			t.Errorf("%d keys of %d bytes: got %v, want %s", len(keys), len(c.values[0]), err, c.want)
		}
	}
}

// buckets returns a sliding_window state with n counts.
func buckets(n int) string {
	return "sliding_window:1:1:" + strings.Repeat("0,", n-1) + "0"
}

// TestWhatIsRememberedIsBounded checks that the library's cache of parsed limits is bounded, so
// that a caller that varies a number in its limits cannot fill the memory.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	text := mutated(t, functions.Source()) + `
local read, memory = 0, {}
local remembered = numbers.remembered(function(text) read = read + 1 return text ~= 'wrong' and #text or nil, 'error' end, memory)
local numbered = {}
local of_numbers = numbers.remembered(function(n) return n end, numbered)
local function size(of) local n = 0 for _ in pairs(of) do n = n + 1 end return n end
redis.register_function('ratelimit_test', function(keys, args)
  local most, second, long = 0, 0, 0
  for i = 1, 12500 do
    remembered('text ' .. i)
    if i % 2500 <= 1 then most = math.max(most, size(memory.known)) end
    if i == 10000 then second = size(memory.known) end
  end
  local before = read
  remembered('text 12500')
  remembered('text 5001')
  remembered('text 5000')
  remembered('wrong')
  local value, err = remembered('wrong')
  local again = read - before
  for i = 1001, 2000 do
    remembered(string.rep('x', 4028) .. i)
    if i > 1400 then long = math.max(long, size(memory.known)) end
  end
  for i = 1, 6000 do of_numbers(i) end
  local known, parsed, checked = size(limits.known), 0, limits.checked
  limits.checked = function(...) parsed = parsed + 1 return checked(...) end
  for i = 1, 2500 do overrides.limit(i .. '/d,1/d,1/d,1/d,1/d') end
  local first = parsed
  overrides.limit('1/d,1/d,1/d,1/d,1/d')
  limits.checked = checked
  return { most, second, again, value == nil and 1 or 0, err, known, long, size(numbered.known), parsed - first > 0 and 1 or 0, size(limits.known) }
end)
`
	server := offline{embedded.Run(t, embedded.WithLibrary(text), embedded.WithTime(time.UnixMicro(1700000000000000)))}
	for i := 1; i <= 5300; i++ {
		must[any](t)(server.Do("FCALL", "ratelimit_take", "1", "k", fmt.Sprintf("%d/d", i)))
	}
	for i := range 400 {
		must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0", fmt.Sprintf("%d/h", i)))
	}
	got, err := server.Do("FCALL", "ratelimit_test", "0")
	if err != nil || fmt.Sprint(got) != "[5000 5000 3 1 error 300 79 1000 1 561]" {
		t.Errorf("got %v, %v; want 5000 texts in each of two generations, the last 5000 kept, one read again for each that cannot be read, 300 limits and none of info, 79 texts of 4032 bytes, 1000 of 6000 numbers, at most 10000 rates of overrides, and 561 of 2500 limits with 5 rates", got, err)
	}
}

// TestNumbersThatAreRemembered checks that the library remembers the numbers in texts and in the values of
// fixed_window if they are below 1000, and only then, so that a caller that varies a number cannot fill the
// memory. A number that is not remembered takes one operation on strings each time.
func TestNumbersThatAreRemembered(t *testing.T) {
	text := counted.Library(mutated(t, functions.Source())) + `
redis.register_function('parse', function(keys, args) return { numbers.parse(args[1]), numbers.parse(args[1]) } end)
redis.register_function('count', function(keys, args)
  local count = algorithms.fixed_window.holds
  return { count(args[1]), count(args[1]) }
end)
`
	server := offline{embedded.Run(t, embedded.WithLibrary(text))}
	for number, want := range map[int64]int64{1: 1, 999: 1, 1000: 2, 9007199254740991: 2} {
		for function, text := range map[string]string{"parse": strconv.FormatInt(number, 10), "count": fmt.Sprintf("400%016d", number)} {
			must[counted.Work](t)(counted.Read(server.Do))
			if got := textOf(server.Do("FCALL", function, "0", text)); got != fmt.Sprint([]int64{number, number}) {
				t.Errorf("%s %s: got %s", function, text, got)
			}
			if work := must[counted.Work](t)(counted.Read(server.Do)); work.Steps != want {
				t.Errorf("%s %s, twice: %d operations on strings, want %d", function, text, work.Steps, want)
			}
		}
	}
}

// TestLongKeys checks that no function takes a key of more than 65536 bytes, in any position and also if the
// limits are known or those of a policy with a canary, that such a call changes and counts nothing, and that
// shorter keys are fine.
func TestLongKeys(t *testing.T) {
	policy := func(name string, limits ...string) functions.Policy {
		p := functions.Policy{Name: name, Canary: &functions.Canary{Limits: limits, Share: 500}}
		for i, limit := range limits {
			p.Limits = append(p.Limits, functions.PolicyLimit{Key: fmt.Sprintf("key%d", i), Limit: limit})
		}
		return p
	}
	plain, seen, pool := policy("plain", "3/m"), policy("seen", "3/m"), policy("pool", "3/m", "3/m")
	plain.Canary, seen.Track, pool.Borrow = nil, true, true
	policies := []functions.Policy{plain, seen, pool, policy("one", "3/m"), policy("two", "3/m", "3/m"), policy("jobs", "concurrency 2 lease=30s")}
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())), embedded.WithTime(time.UnixMicro(1700000000000000)))}
	calls := func() string {
		return fmt.Sprint(respmap.Of(must[any](t)(server.Do("FCALL_RO", "ratelimit_info", "0")))["policy_calls"])
	}
	fits, long := "{v}"+strings.Repeat("k", 65533), "{v}"+strings.Repeat("k", 65534)
	for _, call := range []string{
		"take|1|K|3/m", "take|1|K|3/m|COST|2", "take|1|K|3/m|EACH", "peek|1|K|3/m", "refund|1|K|3/m", "take|2|{v}:a|K|3/m|3/m", "take|2|K|{v}:a|3/m|3/m|BORROW|50", "take|2|{v}:a|K|3/m|3/m|BORROW|50", "peek|2|K|{v}:a|3/m|3/m",
		"take|2|{v}:a|K|3/m|TRACK", "take|2|K|{v}:a|3/m|TRACK", "take|2|{v}:a|K|3/m|ONCE|1000", "refund|2|{v}:a|K|3/m|ONCE|1000",
		"acquire|1|K|concurrency 2 lease=30s|x", "renew|1|K|concurrency 2 lease=30s|x", "release|1|K|concurrency 2 lease=30s|x",
		"block|2|{v}:a|K|1000", "unblock|1|K", "override|1|K|3/m|1000", "override_end|1|K", "reset|2|{v}:a|K", "usage|1|K",

		"take|1|K|@plain", "peek|1|K|@plain", "refund|1|K|@plain", "take|1|K|@plain|COST|2",
		"take|1|K|@one", "take|1|K|@one|COST|2", "take|1|K|@one|EACH", "peek|1|K|@one", "refund|1|K|@one", "take|2|{v}:a|K|@one|@one", "take|2|K|{v}:a|@one|3/m",
		"take|2|{v}:a|K|@one|ONCE|1000", "take|2|K|{v}:a|@one|TRACK", "take|2|{v}:a|K|@one|TRACK", "refund|2|{v}:a|K|@one|ONCE|1000",
		"take|2|{v}:a|K|@two", "take|2|K|{v}:a|@two", "peek|2|{v}:a|K|@two", "peek|2|K|{v}:a|@two", "refund|2|{v}:a|K|@two", "refund|2|K|{v}:a|@two",
		"take|2|K|{v}:a|@seen", "take|2|{v}:a|K|@seen", "take|2|K|{v}:a|@pool", "take|2|{v}:a|K|@pool", "peek|2|K|{v}:a|@pool", "peek|2|{v}:a|K|@pool", "refund|2|K|{v}:a|@pool|PAID|1", "refund|2|{v}:a|K|@pool|PAID|2",
		"acquire|1|K|@jobs|x", "renew|1|K|@jobs|x", "release|1|K|@jobs|x",
	} {
		for range 2 { // in the second round, the limits are cached
			empty(t, server)
			words := append([]string{"FCALL"}, strings.Split("ratelimit_"+call, "|")...)
			at := slices.Index(words, "K")
			words[at] = fits
			if _, err := server.Do(words...); err != nil {
				t.Errorf("%s, with a key of 65536 bytes: %v", call, err)
			}
			empty(t, server)
			words[at] = long
			counts := calls()
			want := `RATELIMIT BADKEYS "` + long[:60] + `..." (65537 bytes): a key has at most 65536 bytes`
			if _, err := server.Do(words...); err == nil || err.Error() != want {
				t.Errorf("%s, with a key of 65537 bytes: %v, want %s", call, err, want)
			}
			if n := must[any](t)(server.Do("DBSIZE")); n != int64(0) {
				t.Errorf("%s, with a key of 65537 bytes: %v keys are left", call, n)
			}
			if got := calls(); got != counts {
				t.Errorf("%s, with a key of 65537 bytes: the counts of policies are %s, and were %s", call, got, counts)
			}
		}
	}
}

// TestManyLeasesAreCut checks that all leases of a key are shortened to the lease time, even if a
// single command cannot change so many.
func TestManyLeasesAreCut(t *testing.T) {
	server := offline{start(t)}
	words := []string{"ZADD", "k", "-30000", "length"}
	for i := range 1500 {
		words = append(words, "1700000060000", "lease:"+strconv.Itoa(i))
	}
	must[any](t)(server.Do(words...))
	must[any](t)(server.Do("PEXPIRE", "k", "60000"))
	if got, err := server.Do("FCALL", "ratelimit_acquire", "1", "k", "concurrency 5000 lease=30s", "0"); err != nil || fmt.Sprint(got) != "[1 5000 3500 0 30000 1 30000]" {
		t.Errorf("acquire: got %v, %v", got, err)
	}
	if cut, err := server.Do("ZCOUNT", "k", "1700000030000", "1700000030000"); err != nil || cut != int64(1500) {
		t.Errorf("%v leases lapse after 30 s, %v; want all 1500", cut, err)
	}
}

// TestManyLeasesAfterTheClockWasSetBack fills a key with the maximum number of leases. All but one
// expire too far in the future, as after the clock was set back. If all leases have the same
// length, a single call shortens them all. Otherwise, each call shortens 1000. The first call with
// another length also records the grant times of 500 leases.
func TestManyLeasesAfterTheClockWasSetBack(t *testing.T) {
	const most, hour = 4999, int64(3600000)
	server := offline{start(t)}
	now := server.Time().UnixMilli()
	do := func(words ...string) int64 {
		t.Helper()
		reply := must[any](t)(server.Do(words...))
		n, _ := reply.(int64)
		return n
	}
	between := func(from, to int64) int64 {
		t.Helper()
		return do("ZCOUNT", "k", fmt.Sprint(from), fmt.Sprint(to))
	}
	renew := func(lease string) {
		t.Helper()
		do("FCALL", "ratelimit_renew", "1", "k", "concurrency 5000 lease="+lease, "x")
	}
	fill := func(several bool) {
		t.Helper()
		words := []string{"ZADD", "k", fmt.Sprint(now + 10000), "lease:x", "-60000", "length"}
		for i := range most {
			lapses := now + hour + int64(i)
			words = append(words, fmt.Sprint(lapses), fmt.Sprintf("lease:%d", i))
			if several {
				words = append(words, fmt.Sprint(60000-lapses), fmt.Sprintf("given:%d", i))
			}
		}
		do("DEL", "k")
		do(words...)
		do("PEXPIRE", "k", fmt.Sprint(2*hour))
		if several {
			do("ZREM", "k", "length")
		}
	}
	fill(false)
	renew("1m")
	if n := between(now+60000, now+60000); n != most+1 {
		t.Errorf("one length: %d leases lapse in a minute, want %d", n, most+1)
	}
	fill(false)
	renew("30s")
	if n := between(now+60000, now+60000); n != most {
		t.Errorf("after a lease of a second length: %d leases lapse in a minute, want %d", n, most)
	}
	if n := between(-now, -now); n != 501 {
		t.Errorf("%d leases are recorded as given now, want 500 and x", n)
	}
	fill(true)
	for _, want := range []int64{1000, 2000, 3000, 4000, most, most} {
		renew("30s")
		if n := between(now+60000, now+60000); n != want {
			t.Errorf("%d leases lapse in a minute, want %d", n, want)
		}
	}
	server.SetTime((now + 60000) * 1000)
	do("FCALL", "ratelimit_acquire", "1", "k", "concurrency 5000 lease=30s", "y")
	if n := do("ZCARD", "k"); n != 2 {
		t.Errorf("%d members are left after all leases have lapsed, want y's lease and its length", n)
	}
	do("FCALL", "ratelimit_acquire", "1", "k", "concurrency 5000 lease=1m", "x")
	for i := range 3000 {
		lapses := now + 70000
		do("ZADD", "k", fmt.Sprint(lapses), fmt.Sprintf("lease:%d", i), fmt.Sprint(60000-lapses), fmt.Sprintf("given:%d", i))
	}
	server.SetTime((now + 70000) * 1000)
	renew("1m")
	if n := do("ZCARD", "k"); n != 4 {
		t.Errorf("%d members are left after 3000 leases of another length have lapsed, want 2 leases, and when they were given", n)
	}
}

// TestBucketsOfAnotherAlgorithm checks that a call reads at most 6,000 buckets of sliding_window for a
// limit with another algorithm.
func TestBucketsOfAnotherAlgorithm(t *testing.T) {
	server := offline{start(t)}
	peek := []string{"FCALL_RO", "ratelimit_peek", "6"}
	for _, key := range names(6) {
		value := fmt.Sprintf("sliding_window:1000:%d:1", server.Time().Unix()) + strings.Repeat(",1", 999)
		must[any](t)(server.Do("SET", key, value, "PX", "1000000"))
		peek = append(peek, key)
	}
	peek = append(peek, slices.Repeat([]string{"100000/d"}, 6)...)
	if got, want := textOf(server.Do(peek...)), "[1 100000 98999 0 864864 1]"; got != want {
		t.Errorf("6,000 buckets: got %s, want %s", got, want)
	}
	must[any](t)(server.Do("APPEND", names(1)[0], ",1"))
	if got, want := textOf(server.Do(peek...)), "BADKEYS the keys hold more than 6000 buckets"; !strings.Contains(got, want) {
		t.Errorf("6,001 buckets: got %s, want %s", got, want)
	}
}

// TestBucketsThatAreReadTwice checks that a call that reads its keys twice may read 6,000 buckets each
// time. A denied call reads the states again that it replaced by ones with room for its cost, and reports
// the room for a call of cost 1. A call with UPTO and a shadow policy decides twice.
func TestBucketsThatAreReadTwice(t *testing.T) {
	server := offline{withShadow(t, "2/s")}
	fill := func(value string) {
		empty(t, server)
		for _, key := range names(5) {
			must[any](t)(server.Do("SET", key, value, "PX", "1000000"))
		}
	}
	limits := slices.Repeat([]string{"sliding_window 10/s"}, 5)
	keys := slices.Concat([]string{"6"}, names(6))

	fill(fmt.Sprintf("sliding_window:1000:%d:1", server.Time().Unix()+100) + strings.Repeat(",1", 999))
	got := textOf(server.Do(slices.Concat([]string{"FCALL", "ratelimit_take"}, keys, limits, []string{"1/d", "COST", "2", "EACH"})...))
	if want := "[0 1 1 -1 2000 6 [" + strings.Repeat("[1 10 1 0 2000] ", 5) + "[0 1 1 -1 0]]]"; got != want {
		t.Errorf("a denied call: got %s, want %s", got, want)
	}

	fill(buckets(1000))
	got = textOf(server.Do(slices.Concat([]string{"FCALL", "ratelimit_take"}, keys, limits, []string{"@tried", "UPTO"})...))
	if want := "[1 10 9 0 2000 1 1 0 6]"; got != want {
		t.Errorf("UPTO: got %s, want %s", got, want)
	}
}
