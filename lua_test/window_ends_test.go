package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// slow is prepended to the library. It makes every relative expiry end one millisecond later. On a
// server before Redis 7.2, this happens if a millisecond passes between two commands of a call.
const slow = `
local real_redis = function() return redis end
local function later(...)
  local words = { ... }
  local at = words[1] == 'SET' and words[4] == 'PX' and 5 or (words[1] == 'PSETEX' or words[1] == 'PEXPIRE') and 3
  if at then words[at] = words[at] + 1 end
  return words
end
local redis = {
  call = function(...) return real_redis().call(unpack(later(...))) end, pcall = function(...) return real_redis().pcall(unpack(later(...))) end,
  error_reply = function(text) return real_redis().error_reply(text) end, register_function = redis.register_function, REDIS_VERSION_NUM = 0x00070000,
}
`

// TestWindowsOfTheClockEndOnTime checks that with align=clock every window ends at a whole multiple
// of the period, even if the time advances during a call.
func TestWindowsOfTheClockEndOnTime(t *testing.T) {
	first, rest, _ := strings.Cut(mutated(t, functions.Source()), "\n")
	server := offline{embedded.Run(t, embedded.WithLibrary(first+"\n"+slow+rest), embedded.WithTime(time.UnixMicro(1700000000123456)))}
	const limit = "fixed_window 3/7s align=clock"
	for _, calls := range [][]string{
		{"take|1|k|" + limit},
		{"take|1|k|" + limit + "|COST|3", "take|1|k|" + limit},
		{"take|2|k|other|" + limit + "|3/m"},
		{"take|1|k|" + limit + "|COST|2|UPTO"},
		{"take|1|k|3/m", "take|1|k|" + limit},
		{"take|1|k|fixed_window 3/d", "take|1|k|" + limit},
		{"take|1|k|" + limit + "|COST|2", "refund|1|k|" + limit},
		{"take|1|k|" + limit, "block|1|k|1000", "unblock|1|k", "take|1|k|" + limit},
		{"take|1|k|" + limit + ", 9/7s align=clock"},
	} {
		t.Run(strings.Join(calls, ", "), func(t *testing.T) {
			must[any](t)(server.Do("FLUSHALL"))
			for _, call := range calls {
				words := strings.Split(call, "|")
				if _, err := server.Do(append([]string{"FCALL", "ratelimit_" + words[0]}, words[1:]...)...); err != nil {
					t.Fatalf("%s: %v", call, err)
				}
			}
			if ends := fmt.Sprint(server.Do("PEXPIRETIME", "k")); ends != "1700000001000 <nil>" {
				t.Errorf("the window ends at %s ms, want 1700000001000", ends)
			}
		})
	}
}
