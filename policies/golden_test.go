package policies

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the texts of problems in testdata; their positions stay as they are")

// position matches the position of a problem at the beginning of a line.
var position = regexp.MustCompile(`^(?:\w+\.yaml(?::\d+:\d+)?|\d+:\d+)\b`)

// golden calls the function run with the input of each case in a file in testdata. It compares the
// lines that the function returns with the lines of the case that begin with "=> ".
func golden(t *testing.T, name string, run func(t *testing.T, text string) []string) {
	name = filepath.Join("testdata", name)
	content := must[[]byte](t)(os.ReadFile(name))
	cases := strings.Split(strings.TrimPrefix(string(content), "== "), "\n\n== ")
	for i, c := range cases {
		title, text, _ := strings.Cut(c, "\n")
		t.Run(title, func(t *testing.T) {
			input, wants := "", []string(nil)
			for line := range strings.Lines(text) {
				if want, ok := strings.CutPrefix(line, "=> "); ok {
					wants = append(wants, strings.TrimSpace(want))
				} else {
					input += line
				}
			}
			got := run(t, input)
			places := func(a, b string) bool { return position.FindString(a) == position.FindString(b) }
			switch {
			case slices.Equal(got, wants):
			case *update && slices.EqualFunc(got, wants, places):
				cases[i] = title + "\n" + input + "=> " + strings.Join(got, "\n=> ")
			default:
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(wants, "\n"))
			}
		})
	}
	if *update {
		require(t, os.WriteFile(name, []byte("== "+strings.TrimSpace(strings.Join(cases, "\n\n== "))+"\n"), 0o600))
	}
}

// lines returns the problems, one per line. If err is not Mistakes, it returns err as a string.
func lines(err error) []string {
	var problems Mistakes
	if !errors.As(err, &problems) {
		return []string{err.Error()}
	}
	var list []string
	for _, problem := range problems {
		list = append(list, problem.Error())
	}
	return list
}
