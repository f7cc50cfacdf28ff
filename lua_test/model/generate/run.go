package generate

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Wanted returns how many generated steps a test should run: RATELIMIT_SOAK if that is set,
// otherwise usual. With RATELIMIT_SOAK, the steps differ in each run. Without it, they are always
// the same, so that only a code change can make a test fail. Wanted also sets rapid's flags so that
// rapid runs its check often enough. After the wanted number of steps, the check must do nothing.
// Call Wanted before tests run in parallel.
func Wanted(t testing.TB, usual int) int {
	t.Helper()
	seed, wanted := "1", usual
	if asked := os.Getenv("RATELIMIT_SOAK"); asked != "" {
		var err error
		if wanted, err = strconv.Atoi(asked); err != nil || wanted < 1 {
			t.Fatalf("RATELIMIT_SOAK=%q is not a number of steps, such as 100000", asked)
		}
		seed = "0" // 0 makes rapid use the clock as seed
	}
	for name, value := range map[string]string{"rapid.seed": seed, "rapid.checks": strconv.Itoa(wanted)} { // each sequence has at least one step
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	return wanted
}
