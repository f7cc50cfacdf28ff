package generate

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Wanted returns how many generated steps a test has to run. If RATELIMIT_SOAK is set, Wanted
// returns its value, and the steps differ in each run. Otherwise Wanted returns usual, and the
// steps are the same in each run, so that a test fails because of a code change and not because of
// the random values. Wanted configures rapid to repeat its check as many times; the check must do
// nothing after enough steps. Call Wanted before tests run in parallel.
func Wanted(t testing.TB, usual int) int {
	t.Helper()
	seed, wanted := "1", usual
	if asked := os.Getenv("RATELIMIT_SOAK"); asked != "" {
		var err error
		if wanted, err = strconv.Atoi(asked); err != nil || wanted < 1 {
			t.Fatalf("RATELIMIT_SOAK=%q is not a number of steps, such as 100000", asked)
		}
		seed = "0" // seeded by the clock
	}
	for name, value := range map[string]string{"rapid.seed": seed, "rapid.checks": strconv.Itoa(wanted)} { // each sequence has at least one step
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	return wanted
}
