package client_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client"
)

// TestErrorsInCalls checks that CALLS.md says the same as this package about each error of a server:
// whether the call was executed.
func TestErrorsInCalls(t *testing.T) {
	text := string(must[[]byte](t)(os.ReadFile("../functions/CALLS.md")))
	_, section, _ := strings.Cut(text, "\n### Errors of the server\n")
	section, _, _ = strings.Cut(section, "\n## ")
	first := strings.LastIndex(section, "\n| ")
	last := first + 1 + strings.Index(section[first+1:], "\n")
	table, rest := section[:last], section[last:]
	var inTable []string
	for _, line := range strings.Split(table, "\n") {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") {
			for _, name := range strings.Split(strings.TrimPrefix(cells[0], "| "), ", ") {
				inTable = append(inTable, strings.Trim(name, "`"))
			}
		}
	}
	notExecuted, unknown := client.ServerErrors()
	slices.Sort(inTable)
	slices.Sort(notExecuted)
	if !slices.Equal(inTable, notExecuted) {
		t.Errorf("CALLS.md has %q, and this package %q", inTable, notExecuted)
	}
	for _, prefix := range unknown {
		if !strings.Contains(strings.ReplaceAll(rest, "\n", " "), "`"+prefix+"`") {
			t.Errorf("CALLS.md does not say that %q leaves the outcome unknown", prefix)
		}
	}
}
