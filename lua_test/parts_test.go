package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestPartsOfTheLibrary tests parts of the library directly. Calls in the embedded engine cannot
// reach all their cases: the time does not change during a call, every user has all permissions,
// and tables keep their insertion order.
func TestPartsOfTheLibrary(t *testing.T) {
	text := mutated(t, functions.Source()) + `
algorithms.a_later_one = algorithms.gcra
redis.register_function{function_name = 'read_once', callback = function()
  clock.now = nil
  local now = clock.us()
  local is_kept = clock.now == now
  clock.now = 5
  return { is_kept and 1 or 0, clock.us() }
end}
redis.register_function{function_name = 'failed', callback = function(keys, args)
  return errors.failed('k', { err = args[1] }, 'is not a string')
end}
`
	server := offline{embedded.Run(t, embedded.WithLibrary(text))}
	for _, c := range []struct {
		name, want string
		call       []string
	}{
		{"the time is read once a call", "[1 5]", []string{"FCALL", "read_once", "0"}},
		{"an error of the server is passed on", "NOPERM this user has no permissions", []string{"FCALL", "failed", "0", "NOPERM this user has no permissions"}},
		{"a key of another type is named", `RATELIMIT BADSTATE key "k" is not a string; give the limiter a key of its own, or delete this one`,
			[]string{"FCALL", "failed", "0", "WRONGTYPE Operation against a key holding the wrong kind of value"}},
		{"names are sorted", `unknown algorithm "none"; there are a_later_one, concurrency, fixed_window, gcra,`, []string{"FCALL", "ratelimit_take", "1", "k", "none 1/s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := textOf(server.Do(c.call...)); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestTimePassesDuringACall checks that a key expires when it should although time passes during a call, as
// before Redis 7.2. The library gets a time that is 5 ms earlier than the server's. The first call of a key
// may set an expiry that is as much later.
func TestTimePassesDuringACall(t *testing.T) {
	first, rest, _ := strings.Cut(mutated(t, functions.Source()), "\n")
	server := offline{embedded.Run(t, embedded.WithTime(time.UnixMicro(1700000000000000)), embedded.WithLibrary(first+`
local function real_redis() return redis end -- not cached: redis is a different table while the library loads
local redis = {
  call = function(name, ...)
    local reply = real_redis().call(name, ...)
    if name == 'TIME' then reply[2] = reply[2] - 5000 end
    return reply
  end,
  pcall = function(...) return real_redis().pcall(...) end,
  register_function = redis.register_function, REDIS_VERSION_NUM = 0x00070000,
}
`+rest))}
	for _, c := range []struct {
		call string
		want []int64 // when the first key expires, after each call
	}{
		{"1|a|10/10s", []int64{1700000001000, 1700000002000}},
		{"2|a|b|10/10s|9/s", []int64{1700000001000, 1700000002000}},
		{"1|a|fixed_window 10/10s", []int64{1700000010000, 1700000010000}},
		{"1|a|fixed_window 10/15s align=clock", []int64{1700000010000, 1700000010000}},
		{"2|a|b|fixed_window 10/15s align=clock|9/s", []int64{1700000010000, 1700000010000}},
	} {
		empty(t, server)
		for i, want := range c.want {
			must[any](t)(server.Do(strings.Split("FCALL|ratelimit_take|"+c.call, "|")...))
			if got := must[any](t)(server.Do("PEXPIRETIME", "a")); got != want {
				t.Errorf("%s: after call %d, the key expires at %v, want %d", c.call, i+1, got, want)
			}
		}
	}
}

// textOf returns a reply or an error as a string.
func textOf(reply any, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(reply)
}
