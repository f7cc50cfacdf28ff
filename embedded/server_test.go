package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lib returns a library with one function f.
func lib(body string) string {
	return "#!lua name=t\nredis.register_function('f', function(keys, args) " + body + "\nend)"
}

func client(t *testing.T, s *Server, change func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: s.Addr(), MaxRetries: -1}
	if change != nil {
		change(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDo(t *testing.T) {
	s := Run(t)
	for _, tc := range []struct {
		args []any
		want any
	}{
		{[]any{"SET", "k", 5}, "OK"},
		{[]any{"INCRBY", "k", int64(2)}, int64(7)},
		{[]any{"GET", []byte("k")}, "7"},
		{[]any{"GET", "none"}, nil},
		{[]any{"APPEND", "k", 1.5}, int64(4)},
		{[]any{"SET", "b", true}, "OK"},
		{[]any{"MGET", "k", "none", "b"}, []any{"71.5", nil, "1"}},
	} {
		got, err := s.Do(tc.args...)
		if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", tc.want) {
			t.Errorf("Do(%v) = %#v, %v; want %#v", tc.args, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		args []any
		want string
	}{
		{nil, "ERR Do needs a command"},
		{[]any{"GET"}, "ERR wrong number of arguments for 'get' command"},
		{[]any{"LPUSH", "k", "x"}, "WRONGTYPE Operation against a key holding the wrong kind of value"},
		{[]any{"SET", "k", struct{}{}}, "ERR Do cannot send an argument of type struct {}: give a string, []byte, number or bool"},
		{[]any{"MULTI"}, "ERR MULTI belongs to a connection: use a client on the server's address, not Do"},
		{[]any{"EVAL", "return 1", 0}, "ERR this command is not supported by the embedded server: it runs Redis Functions: use FUNCTION LOAD and FCALL"},
		{[]any{"DUMP", "k"}, "ERR this command is not supported by the embedded server: its payloads would not be those of Redis"},
	} {
		_, err := s.Do(tc.args...)
		var reply Error
		if !errors.As(err, &reply) || err.Error() != tc.want {
			t.Errorf("Do(%v): %v, want %s", tc.args, err, tc.want)
		}
	}
}

func TestStartFails(t *testing.T) {
	taken := Run(t)
	for _, tc := range []struct {
		opts []Option
		want string
	}{
		{[]Option{WithAddr(taken.Addr())}, "embedded: cannot listen on " + taken.Addr()},
		{[]Option{nil}, "embedded: an option is nil; leave it out"},
		{[]Option{WithLibrary("return 1")}, "embedded: the library given to WithLibrary does not load: ERR Missing library metadata"},
		{[]Option{WithTime(time.Unix(-5, 0))}, "embedded: the clock cannot be set to "},
	} {
		s, err := Start(tc.opts...)
		if err == nil {
			s.Close()
			t.Errorf("started; want %s", tc.want)
		} else if !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}

func TestCloseTwiceAndUseAfter(t *testing.T) {
	s := Run(t)
	require(t, s.Close())
	require(t, s.Close())
	if _, err := s.Do("PING"); err == nil || err.Error() != "ERR the embedded server is closed" {
		t.Errorf("Do after Close: %v", err)
	}
}

func TestClock(t *testing.T) {
	start := time.UnixMicro(1_700_000_000_000_999)
	s := Run(t, WithTime(start))
	do := func(want any, args ...any) {
		t.Helper()
		got, err := s.Do(args...)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v = %v, %v; want %v", args, got, err, want)
		}
	}
	do("[1700000000 999]", "TIME")
	do("OK", "SET", "k", "v", "PX", 600)
	do(600, "PTTL", "k") // the clock's milliseconds are rounded down
	s.Advance(time.Microsecond)
	do(599, "PTTL", "k")
	s.Advance(599 * time.Millisecond)
	do(0, "PTTL", "k") // a key still exists in its last millisecond
	do("v", "GET", "k")
	s.Advance(999 * time.Microsecond)
	do(1, "EXISTS", "k")
	s.Advance(time.Microsecond)
	do(-2, "PTTL", "k")
	do(0, "DBSIZE")

	// If the clock is set back, unexpired keys stay.
	do("OK", "SET", "k", "v", "PX", 1000)
	s.SetTime(start)
	do(1601, "PTTL", "k")

	// After the clock is set back by a year, keys keep their expiry, and stream IDs still grow.
	do("OK", "SET", "k", "v", "PX", 1000)
	s.SetTime(start)
	do("1700000000000-0", "XADD", "x", "*", "a", 1)
	s.SetTime(start.AddDate(-1, 0, 0))
	do("v", "GET", "k")
	do(int64(365*24*time.Hour/time.Millisecond)+1000, "PTTL", "k")
	do("OK", "SET", "new", "v", "PX", 1000)
	do("1700000000000-1", "XADD", "x", "*", "a", 1)
	s.Advance(1001 * time.Millisecond)
	do(-2, "PTTL", "new")
	do("v", "GET", "k")
	s.SetTime(start.Add(time.Hour))
	do(-2, "PTTL", "k")

	s = Run(t) // with a running clock
	do("OK", "SET", "now", "v", "PX", 1)
	for n := any(int64(1)); n != int64(0); {
		n, _ = s.Do("EXISTS", "now")
	}
}

// TestClientsSetTheTime checks DEBUG SET-TIME, which clients use instead of SetTime.
func TestClientsSetTheTime(t *testing.T) {
	s := Run(t, WithLibrary(lib("return redis.call('DEBUG', 'SET-TIME', '1')")))
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { _ = client.Close() }()
	for _, step := range []struct {
		call []any
		want string
	}{
		{[]any{"DEBUG", "SET-TIME", "1700000000000000"}, "OK"},
		{[]any{"TIME"}, "[1700000000 0]"},
		{[]any{"SET", "k", "v", "PX", 1000}, "OK"},
		{[]any{"debug", "set-time", 1700000001000999}, "OK"},
		{[]any{"PTTL", "k"}, "0"},
		{[]any{"DEBUG", "SET-TIME", 1700000001001000}, "OK"},
		{[]any{"EXISTS", "k"}, "0"},
		{[]any{"DEBUG", "SET-TIME", 1600000000000000}, "OK"},
		{[]any{"TIME"}, "[1600000000 0]"},
		{[]any{"DEBUG", "SET-TIME", 0}, "ERR embedded: the clock cannot be set to 1970-01-01T00:00:00Z: give a time after 1970-01-01 UTC"},
		{[]any{"DEBUG", "SET-TIME", "now"}, "ERR value is not an integer or out of range"},
		{[]any{"DEBUG", "SET-TIME"}, "ERR wrong number of arguments for 'debug|set-time' command"},
		{[]any{"DEBUG", "SLEEP", 1}, "ERR DEBUG SLEEP is not supported by the embedded server: only DEBUG SET-TIME is"},
		{[]any{"TIME"}, "[1600000000 0]"},
	} {
		reply, err := client.Do(t.Context(), step.call...).Result()
		if err != nil {
			reply = err
		}
		if got := fmt.Sprint(reply); got != step.want {
			t.Errorf("%v: %s, want %s", step.call, got, step.want)
		}
	}
	if _, err := s.Do("FCALL", "f", 0); err == nil || !strings.Contains(err.Error(), "This Redis command is not allowed from script") {
		t.Errorf("a function sets the clock: %v", err)
	}
}

func TestTimeStandsStillDuringACall(t *testing.T) {
	s := Run(t, WithLibrary(lib(`
		local a = redis.call('TIME')
		for i = 1, 200000 do end
		local b = redis.call('TIME')
		return {a[1], a[2], b[1], b[2]}`)))
	r := must[any](t)(s.Do("FCALL", "f", 0))
	if v := r.([]any); v[0] != v[2] || v[1] != v[3] {
		t.Errorf("TIME moved during a call: %v", v)
	}
}

// TestCallsAreAtomic checks that a function's commands are not interleaved with those of other
// connections.
func TestCallsAreAtomic(t *testing.T) {
	s := Run(t, WithLibrary(lib(`
		local before = redis.call('GET', keys[1])
		for i = 1, 50 do redis.call('INCR', keys[2]) end
		return before == redis.call('GET', keys[1]) and 1 or 0`)))
	ctx := context.Background()
	done := make(chan struct{})
	var writers sync.WaitGroup
	for range 3 {
		c := client(t, s, nil)
		writers.Add(1)
		go func() {
			defer writers.Done()
			for {
				select {
				case <-done:
					return
				default:
					c.Incr(ctx, "{k}a")
					c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Incr(ctx, "{k}a"); p.Decr(ctx, "{k}a"); return nil })
				}
			}
		}()
	}
	c := client(t, s, nil)
	for range 200 {
		if same, err := c.FCall(ctx, "f", []string{"{k}a", "{k}b"}).Int(); err != nil || same != 1 {
			t.Errorf("another connection wrote during a call: %v, %v", same, err)
			break
		}
	}
	close(done)
	writers.Wait()
	if n, err := s.Do("GET", "{k}b"); err != nil || n != "10000" {
		t.Errorf("%v increments, %v; want 10000", n, err)
	}
}

func TestProtocols(t *testing.T) {
	s := Run(t)
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			c := client(t, s, func(o *redis.Options) { o.Protocol = protocol })
			require(t, c.FunctionLoadReplace(ctx, lib("return {1, 'two', false, {3}}")).Err())
			r, err := c.FCall(ctx, "f", nil).Result()
			if err != nil || fmt.Sprint(r) != "[1 two <nil> [3]]" {
				t.Errorf("FCall: %v, %v", r, err)
			}
			list, err := c.FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result()
			if err != nil || len(list) != 1 || list[0].Name != "t" || len(list[0].Functions) != 1 || !strings.HasPrefix(list[0].Code, "#!lua") {
				t.Errorf("FunctionList: %+v, %v", list, err)
			}
			stats, err := c.FunctionStats(ctx).Result()
			if err != nil || len(stats.Engines) != 1 || stats.Engines[0].FunctionsCount != 1 {
				t.Errorf("FunctionStats: %+v, %v", stats, err)
			}
			c.HSet(ctx, "h", "a", 1)
			if h, err := c.HGetAll(ctx, "h").Result(); err != nil || h["a"] != "1" {
				t.Errorf("HGetAll: %v, %v", h, err)
			}
			if v, err := c.HIncrByFloat(ctx, "h", fmt.Sprint("new", protocol), 1.5).Result(); err != nil || v != 1.5 {
				t.Errorf("HIncrByFloat of a new field: %v, %v", v, err)
			}
			c.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"})
			if z, err := c.ZRangeWithScores(ctx, "z", 0, -1).Result(); err != nil || len(z) != 1 || z[0].Score != 1.5 {
				t.Errorf("ZRangeWithScores: %v, %v", z, err)
			}
			if _, err := c.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
				t.Errorf("Get of nothing: %v", err)
			}
			cmds, err := c.Command(ctx).Result()
			if err != nil || cmds["get"] == nil || !cmds["get"].ReadOnly {
				t.Errorf("Command: %v, %v", cmds["get"], err)
			}
		})
	}
}

func TestClusterRules(t *testing.T) {
	s := Run(t, WithClusterRules(), WithLibrary(lib("return #keys")))
	const refused = "CROSSSLOT Keys in request don't hash to the same slot"
	if _, err := s.Do("FCALL", "f", 2, "a", "b"); err == nil || err.Error() != refused {
		t.Errorf("FCALL over two slots: %v", err)
	}
	if _, err := s.Do("MSET", "a", 1, "b", 2); err == nil || err.Error() != refused {
		t.Errorf("MSET over two slots: %v", err)
	}
	if n, err := s.Do("FCALL", "f", 2, "{x}a", "{x}b"); err != nil || n != int64(2) {
		t.Errorf("FCALL in one slot: %v, %v", n, err)
	}
	// These slots come from the Redis documentation.
	for key, slot := range map[string]uint16{"foo": 12182, "{user1000}.following": 3443, "foo{}{bar}": 8363, "123456789": 12739} {
		if got := keySlot(key); got != slot {
			t.Errorf("slot of %q is %d, want %d", key, got, slot)
		}
	}
}

var maxArrayAtImport = lua.MaxArrayIndex

// A program may use gopher-lua itself, so importing this package must not change its settings. The
// first server does, as doc.go says.
func TestGopherLuaKeepsItsSettings(t *testing.T) {
	if maxArrayAtImport != 67108864 {
		t.Errorf("MaxArrayIndex is %d", maxArrayAtImport)
	}
	s := Run(t)
	if _, err := s.Do("FUNCTION", "LOAD", lib("local t = {} t[60000000] = 1 return 1")); err != nil {
		t.Fatal(err)
	}
	if n := lua.MaxArrayIndex; n != 1<<22 {
		t.Errorf("with a server, MaxArrayIndex is %d", n)
	}
}

// INFO tells the port also for an IPv6 address.
func TestPortInInfo(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		s, err := Start(WithAddr(addr))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(s.Addr())
		if info := fmt.Sprint(must[any](t)(s.Do("INFO", "server"))); !strings.Contains(info, "\r\ntcp_port:"+port+"\r\n") {
			t.Errorf("%s: %q", s.Addr(), info)
		}
		s.Close()
	}
}
