//go:build unix

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest  = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`)
	namedError = regexp.MustCompile(`\bErr[A-Z]\w+`)
	sentence   = regexp.MustCompile(`"([^"]+)"`)
)

// rows returns the rows of the table below a heading, each as its cells. It leaves out the head of
// the table, and rows that only divide it.
func rows(text, heading string) (found [][]string) {
	_, section, _ := strings.Cut(text, "\n"+heading+"\n")
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); len(cells) > 1 && !strings.HasPrefix(line, "| **") {
			found = append(found, cells)
		}
	}
	return found[min(2, len(found)):]
}

// TestFailures checks that each row of the table of failures names tests that exist, or says that
// there is none, that the errors are those of package client, and that doctor says what it quotes.
func TestFailures(t *testing.T) {
	const document = "docs/operating.md"
	read := func(name string) string {
		return string(must[[]byte](t)(os.ReadFile(filepath.Join("../..", name))))
	}
	failures := rows(read(document), "## Failures")
	if len(failures) < 30 {
		t.Fatalf("%s has %d rows", document, len(failures))
	}
	classes, printed := read("client/errors.go"), read("cmd/ratelimit/internal/cli/testdata/messages.txt")
	for _, cells := range failures {
		event, last := strings.TrimSpace(cells[0]), cells[len(cells)-1]
		tests := namedTest.FindAllStringSubmatch(last, -1)
		if len(cells) != 6 || len(tests) == 0 && !strings.HasPrefix(last, " no test") {
			t.Errorf("%s: %d cells; no test in %q", event, len(cells), last)
		}
		for _, test := range tests {
			if file := path.Join(path.Dir(document), test[2]); !strings.Contains(read(file), "\nfunc "+test[1]+"(") {
				t.Errorf("%s: %s has no %s", event, file, test[1])
			}
		}
		for _, name := range namedError.FindAllString(cells[1], -1) {
			if !strings.Contains(classes, "\t"+name+" = ") {
				t.Errorf("%s: package client has no %s", event, name)
			}
		}
		for _, quoted := range sentence.FindAllStringSubmatch(cells[4], -1) {
			if !strings.Contains(printed, quoted[1]) {
				t.Errorf("%s: doctor does not print %q", event, quoted[1])
			}
		}
	}
}

func TestRows(t *testing.T) {
	text := "# A\n| x | y |\n|---|---|\n| 0 | 0 |\n## B\n\ntext\n\n| x | y |\n|---|---|\n| **part** | |\n| 1 | 2 |\n## C\n| x | y |\n|---|---|\n| 3 | 4 |\n"
	if got := rows(text, "## B"); len(got) != 1 || strings.Join(got[0], ",") != " 1 , 2 " {
		t.Errorf("%q", got)
	}
}
