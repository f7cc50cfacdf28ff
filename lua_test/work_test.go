package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/counted"
	"github.com/ratelimit-functions/ratelimit/lua_test/worst"
)

// TestWorkOfTheWorstCalls checks that no call in worst.Calls causes more work than worst.Bound. It
// skips the calls with Large, which take too long. The library may reject the calls with Beyond.
// `bench --only worst` measures how long all these calls take.
func TestWorkOfTheWorstCalls(t *testing.T) {
	server := offline{embedded.Run(t, embedded.WithLibrary(counted.Library(mutated(t, functions.Source()))),
		embedded.WithTime(time.UnixMicro(1700000000000000)))}
	do := func(t *testing.T, words ...string) {
		t.Helper()
		if _, err := server.Do(words...); err != nil {
			t.Fatalf("%.100q: %v", words, err)
		}
	}
	for _, c := range worst.Calls() {
		if c.Large {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			do(t, "FLUSHALL")
			for _, words := range c.Prepare(server.Time()) {
				do(t, words...)
			}
			must[counted.Work](t)(counted.Read(server.Do))
			_, err := server.Do(c.Words()...)
			if err != nil && (!c.Beyond || !strings.HasPrefix(err.Error(), "RATELIMIT ")) {
				t.Error(err)
			}
			work := must[counted.Work](t)(counted.Read(server.Do))
			if !work.Within(worst.Bound) {
				t.Errorf("the call causes %+v, more than %+v", work, worst.Bound)
			}
		})
	}
}

// TestWorkOfTracking checks that TRACK examines a usage record only in the first call of a minute that is
// allowed, and the first that is denied. Later calls need four commands for the record: one for the time,
// two that read and one that writes.
func TestWorkOfTracking(t *testing.T) {
	server := offline{embedded.Run(t, embedded.WithLibrary(counted.Library(mutated(t, functions.Source()))))}
	for _, c := range []struct {
		cost  string
		limit int64 // commands for the limit
	}{{"1", 3}, {"1000", 1}} {
		for i := range 3 {
			must[any](t)(server.Do("FCALL", "ratelimit_take", "2", "{v}:"+c.cost, "{v}:usage"+c.cost, "100/d", "COST", c.cost, "TRACK"))
			work := must[counted.Work](t)(counted.Read(server.Do))
			if want := c.limit + 4; i > 0 && work.Commands != want {
				t.Errorf("call %d of cost %s: %d commands, want %d", i+1, c.cost, work.Commands, want)
			}
		}
	}
}
