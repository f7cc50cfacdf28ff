package integration_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/lua_test/counted"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/agree"
	"github.com/ratelimit-functions/ratelimit/lua_test/worst"
)

// limitsForStates lists limits of every algorithm. Each limit writes states, and the other limits
// read them.
var limitsForStates = []string{
	"3/3s", "100/h", "7/s", "100000007/d", "2/s, 3/m", "1000000/s", "leaky_bucket 2/s burst=3", "leaky_bucket 1/s, 1/h",
	"token_bucket 5/10s", "token_bucket 2/s, 3/10s", "fixed_window 3/10s", "fixed_window 5/m align=clock", "fixed_window 2/s, 3/10s",
	"fixed_window 3/mo align=clock from=31", "fixed_window 5/w align=clock zone=+05:30, 9/y align=clock",
	"sliding_window 10/10s", "sliding_window 10/10s buckets=5", "sliding_window 9007199254740992/2s buckets=2",
	"sliding_window 9007199254740992/20s", "sliding_window 1000/1000s, 1000/1000s, 1000/1000s", "sliding_window 10/1000s buckets=100",
	"sliding_log 3/10s", "sliding_log 2/s, 3/10s", "sliding_log 2000/h", "sliding_log 1000/h, 1000/d",
}

// largeStates lists states of the maximum size that limits can store.
var largeStates = []worst.Text{
	worst.One("sliding_log", worst.Log(100000, time.Hour)),
	worst.Several("sliding_log", worst.Log(9990, time.Hour), worst.Log(89990, 24*time.Hour)),
	worst.One("sliding_window", worst.Buckets("1")),
	worst.Several("sliding_window", slices.Repeat([]worst.Text{worst.Buckets("8000000000000")}, 5)...),
	worst.Several("fixed_window", slices.Repeat([]worst.Text{func(now time.Time) string { return fmt.Sprintf("3:%d", now.UnixMilli()+50000) }}, 16)...),
}

// largeLimits contains, for each element of largeStates, a limit that reads much of it.
var largeLimits = []string{
	"sliding_log 2000/h", "sliding_log 1000/h, 1000/d", "sliding_window 10/1000s buckets=100",
	"sliding_window 1000/1000s, 1000/1000s, 1000/1000s", "fixed_window 2/s, 3/10s",
}

// verbsForStates lists calls, each written as a verb and the arguments after the limits.
var verbsForStates = []string{
	"take", "peek", "refund", "take COST 0", "take COST 2 UPTO", "peek COST 9007199254740992", "refund COST 9007199254740992",
	"block", "unblock", "override", "override_end", "reset", "acquire", "renew", "release",
}

// states is a server with two databases and a clock that the test sets.
type states struct {
	databases [2]*redis.Client
	clock     *clock.File
	now       time.Time
	content   string // digest after the last call, or "" if a key may have changed since then
	memory    int64  // bytes in the Lua state before the first call
}

func startStates(f *testing.F) *states {
	f.Helper()
	dir := f.TempDir()
	shim := must[string](f)(clock.Build(dir))
	s := &states{clock: must[*clock.File](f)(clock.Create(filepath.Join(dir, "clock")))}
	server := must[*redistest.Server](f)(redistest.Start("env", "LD_PRELOAD="+shim, clock.Env+"="+s.clock.Path(), "redis-server", "--enable-debug-command", "yes"))
	f.Cleanup(server.Stop)
	for i := range s.databases {
		s.databases[i] = redis.NewClient(&redis.Options{Addr: server.Addr, DB: i, Protocol: 2, MaxRetries: -1, ReadTimeout: time.Minute})
		f.Cleanup(func() { _ = s.databases[i].Close() })
	}
	require(f, s.databases[0].FunctionLoadReplace(context.Background(), counted.Library(functions.Source())).Err())
	must[any](f)(s.do(0, "DEBUG", "SET-ACTIVE-EXPIRE", "0"))
	s.memory = luaMemory(f, s.databases[0])
	return s
}

func (s *states) do(database int, words ...string) (any, error) {
	return moved{ctx: context.Background(), node: s.databases[database]}.Do(words...)
}

// digest returns a digest of the content of all databases, including which keys have an expiry.
func (s *states) digest(t *testing.T) string {
	t.Helper()
	digest := must[any](t)(s.do(0, "DEBUG", "DIGEST"))
	return digest.(string)
}

// move moves the clock by us microseconds. It then reads the keys, so that the server removes
// expired keys.
func (s *states) move(t *testing.T, us int64, keys []string) {
	t.Helper()
	s.now = s.now.Add(time.Duration(us) * time.Microsecond)
	require(t, s.clock.Set(s.now.UnixMicro()))
	for database := range s.databases {
		must[any](t)(s.do(database, append([]string{"EXISTS", "{v}:none"}, keys...)...))
	}
}

// write stores states in the keys of a database. writer selects a limit, a large state, leases, or
// the record of ONCE or TRACK. block selects whether the keys are overridden and whether they are
// blocked, for 1 ms or for 20 s.
func (s *states) write(t *testing.T, database int, writer, block uint8, keys []string) {
	t.Helper()
	must := func(words ...string) {
		t.Helper()
		if _, err := s.do(database, words...); err != nil {
			t.Fatalf("%.200q: %v", words, err)
		}
	}
	at := int(writer) % (len(limitsForStates) + len(largeStates) + 3)
	switch large := at - len(limitsForStates); {
	case large < 0:
		for range 2 {
			for _, key := range keys {
				must(worst.FCall("take", []string{key}, limitsForStates[at], "COST", "2", "UPTO")...)
			}
		}
	case large < len(largeStates):
		must("SET", keys[0], largeStates[large](s.now), "PX", "50000")
		for _, key := range keys[1:] { // a copy is faster than sending up to 2.4 MB again
			must("COPY", keys[0], key)
		}
	case large == len(largeStates):
		for _, key := range keys {
			must(worst.FCall("acquire", []string{key}, "concurrency 5 lease=30s", "x")...)
		}
	case large == len(largeStates)+1:
		must(worst.FCall("take", []string{"{v}:none", keys[0]}, "3/m", "ONCE", "50000")...)
	default:
		must(worst.FCall("take", []string{"{v}:none", keys[0]}, "3/m", "TRACK")...)
	}
	if block%3 > 0 && len(keys) <= 2 {
		ms := []string{"1", "20000"}[block%3-1]
		for _, key := range keys { // one call can block at most 1.25 MB of several keys
			_, _ = s.do(database, worst.FCall("block", []string{key}, ms)...) // some states cannot be blocked
		}
	}
	if block/9%3 > 0 {
		limit, ms := limitsForStates[(int(writer)+int(block))%len(limitsForStates)], []string{"1", "20000"}[block/9%3-1]
		for _, key := range keys {
			_, _ = s.do(database, worst.FCall("override", []string{key}, limit, ms)...) // some states cannot be overridden
		}
	}
}

// ask makes a call, and checks its result and that the server's work stays within worst.Bound. It
// returns the reply or the library's error.
func (s *states) ask(t *testing.T, database int, verb string, keys []string, args ...string) string {
	t.Helper()
	if s.content == "" {
		s.content = s.digest(t)
	}
	count := func() counted.Work {
		t.Helper()
		work := must[counted.Work](t)(counted.Read(func(words ...string) (any, error) { return s.do(0, words...) }))
		return work
	}
	count()
	reply, err := s.do(database, worst.FCall(verb, keys, args...)...)
	work, said := count(), fmt.Sprint(reply)
	var refused agree.Refusal
	if errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "RATELIMIT BAD") {
		said = refused.Error()
	} else if err != nil {
		t.Fatalf("%s of %d keys, %.100q: %v", verb, len(keys), args, err)
	}
	wrong := func(what string) {
		t.Helper()
		t.Errorf("database %d, %s of %d keys, %.100q: %s: %s", database, verb, len(keys), slices.Compact(slices.Clone(args)), said, what)
	}
	if !work.Within(worst.Bound) {
		wrong(fmt.Sprintf("it causes %+v, more than %+v", work, worst.Bound))
	}
	if fields, ok := reply.([]any); ok {
		f := [6]int64{}
		for i := range min(6, len(fields)) {
			f[i], _ = fields[i].(int64)
		}
		size := 6
		if verb == "acquire" || verb == "renew" {
			size = 7 // with lease_ms
		}
		if len(fields) != size || f[0] < 0 || f[1] < 1 || f[2] < 0 || f[2] > f[1] || f[3] < -1 || f[4] < 0 || f[5] < 1 {
			wrong("it is not a decision")
		}
	}
	before := s.content
	s.content = ""
	if err != nil || verb == "peek" || verb == "take" && strings.HasPrefix(said, "[0 ") {
		if s.content = s.digest(t); s.content != before {
			wrong("a key has changed")
		}
	}
	return said
}

// FuzzStatesOfOtherLimits makes each limit read the states of the others, in two databases of a
// server. It checks that a take returns the same reply as the peek before it, that no call exceeds
// the bounds on its work and on the memory that it leaves in the Lua state, and that a call that is
// denied or returns an error changes nothing.
func FuzzStatesOfOtherLimits(f *testing.F) {
	for writer := range len(limitsForStates) + len(largeStates) + 3 {
		for reader := range limitsForStates {
			if (writer+reader)%2 == 0 {
				verb := (writer + reader/2) % len(verbsForStates)
				f.Add(uint8(writer), uint8(writer+reader), uint8(reader), uint8(verb), uint8(reader/2%2), uint8(writer/3+reader), int64(1000*writer*reader))
			}
		}
	}
	for large := range largeStates {
		writer := uint8(len(limitsForStates) + large)
		for i, limit := range []string{"3/3s", "fixed_window 3/10s", largeLimits[large]} {
			f.Add(writer, uint8(i), uint8(slices.Index(limitsForStates, limit)), uint8(i), uint8(2), uint8(0), int64(0))
		}
		for _, limit := range largeLimits {
			f.Add(writer, writer, uint8(slices.Index(limitsForStates, limit)), uint8(0), uint8(0), uint8(large), int64(1))
		}
	}
	s := startStates(f)
	f.Fuzz(func(t *testing.T, writer, second, reader, verb, many, block uint8, later int64) {
		keys := worst.Keys([]int{1, 2, 50}[many%3])
		s.now, s.content = time.UnixMicro(1700000000123456), ""
		s.move(t, 0, keys)
		must[any](t)(s.do(0, "FLUSHALL"))
		s.write(t, 0, writer, block, keys)
		s.move(t, later%30000000, keys)
		s.write(t, 1, second, block/3, keys)
		s.move(t, later%1000, keys)
		limits := slices.Repeat([]string{limitsForStates[int(reader)%len(limitsForStates)]}, len(keys))
		if len(keys) == 2 {
			limits[1] = limitsForStates[int(reader+verb)%len(limitsForStates)]
		}
		name, rest, _ := strings.Cut(verbsForStates[int(verb)%len(verbsForStates)], " ")
		args := append(limits, strings.Fields(rest)...)
		for _, database := range []int{0, 1, 0, 1} {
			switch name {
			case "block":
				s.ask(t, database, name, keys, "1000")
			case "override":
				s.ask(t, database, name, keys, limits[0], "1000")
			case "unblock", "override_end", "reset":
				s.ask(t, database, name, keys)
			case "acquire", "renew", "release":
				s.ask(t, database, name, keys[:1], "concurrency 2 lease=30s", "y")
			case "take":
				if peeked, taken := s.ask(t, database, "peek", keys, args...), s.ask(t, database, name, keys, args...); peeked != taken {
					t.Errorf("database %d, %.100q: the peek returned %s, the take after it %s", database, args, peeked, taken)
				}
			default:
				s.ask(t, database, name, keys, args...)
			}
		}
		falls(t, s.databases[0], s.memory+1<<20)
	})
}
