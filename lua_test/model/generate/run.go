package generate

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Wanted is how many generated steps a test is to run: so many as RATELIMIT_SOAK says, drawn anew in each run; or usual, which are
// the same in each run, so that a test fails for what has changed and not for what was drawn. It has rapid go on until the
// property of its one check does nothing any more, having done as many. Call it before tests run in parallel.
func Wanted(t testing.TB, usual int) int {
	t.Helper()
	seed, wanted := "1", usual
	if asked := os.Getenv("RATELIMIT_SOAK"); asked != "" {
		var err error
		if wanted, err = strconv.Atoi(asked); err != nil || wanted < 1 {
			t.Fatalf("RATELIMIT_SOAK=%q is not a number of steps, such as 100000", asked)
		}
		seed = "0" // by the clock
	}
	for name, value := range map[string]string{"rapid.seed": seed, "rapid.checks": strconv.Itoa(wanted)} { // a sequence has one step at least
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	return wanted
}
