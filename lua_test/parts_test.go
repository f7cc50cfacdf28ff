package lua_test

import (
	"fmt"
	"strings"
	"testing"

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

// textOf returns a reply or an error as a string.
func textOf(reply any, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(reply)
}
