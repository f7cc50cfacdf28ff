package lua_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// mutated returns text, the library's source code. If tools/mutate runs the tests, mutated applies
// the mutation in the environment variable RATELIMIT_MUTANT.
func mutated(t testing.TB, text string) string {
	t.Helper()
	var change struct {
		File, Old, New string
		Nth            int
	}
	asked := os.Getenv("RATELIMIT_MUTANT")
	if asked == "" {
		return text
	}
	if err := json.Unmarshal([]byte(asked), &change); err != nil {
		t.Fatalf("RATELIMIT_MUTANT: %v", err)
	}
	if change.File == "" {
		return text
	}
	at := strings.Index(text, "\n--@ "+change.File+"\n")
	for n := 0; at >= 0 && n <= change.Nth; n++ {
		next := strings.Index(text[at+1:], "\n"+change.Old+"\n")
		if next < 0 {
			t.Fatalf("RATELIMIT_MUTANT: the library has no such lines: %s", asked)
		}
		at += next + 1
	}
	return text[:at+1] + change.New + text[at+1+len(change.Old):]
}
