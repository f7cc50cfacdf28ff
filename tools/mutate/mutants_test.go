package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestFind checks that find finds every kind of change, within a line and across lines. Mutants of
// equal lines must have different values of Nth.
func TestFind(t *testing.T) {
	const text = `-- 1 < 2
local a = 10
if a < 2 and
  b == '3 < 4' then return nil end
f(a)
f(a)
return nil
`
	var got []string
	for _, m := range find("src/x.lua", text) {
		got = append(got, m.String()+" | "+flat(m.New))
	}
	want := []string{
		"functions/src/x.lua:2: 10 -> 11 in: local a = 10 | local a = 11",
		"functions/src/x.lua:2: 10 -> 9 in: local a = 10 | local a = 9",
		"functions/src/x.lua:3: < -> <= in: if a < 2 and | if a <= 2 and",
		"functions/src/x.lua:3: 2 -> 3 in: if a < 2 and | if a < 3 and",
		"functions/src/x.lua:3: 2 -> 1 in: if a < 2 and | if a < 1 and",
		"functions/src/x.lua:3: and -> or in: if a < 2 and | if a < 2 or",
		"functions/src/x.lua:4: == -> ~= in: b == '3 < 4' then return nil end | b ~= '3 < 4' then return nil end",
		"functions/src/x.lua:3: condition -> not in: if a < 2 and b == '3 < 4' then return nil end | if not (a < 2 and b == '3 < 4') then return nil end",
		"functions/src/x.lua:3: statement -> nothing in: if a < 2 and b == '3 < 4' then return nil end | ",
		"functions/src/x.lua:5: statement -> nothing in: f(a) | ",
		"functions/src/x.lua:6: statement -> nothing in: f(a) | ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	all := find("src/x.lua", text)
	if first, second := all[len(all)-2], all[len(all)-1]; first.Nth != 0 || second.Nth != 1 {
		t.Errorf("of two equal lines the first is number %d, the second %d", first.Nth, second.Nth)
	}
}

// TestEquivalents checks that a line of equivalent.tsv matches its mutant as long as the function
// contains the changed line, at any position.
func TestEquivalents(t *testing.T) {
	const text = `local function f(a)
  if a < 2 and
    a > 0 then
    g(a)
  end
end
`
	ids := func(text string) []string {
		var all []string
		for _, m := range find("src/x.lua", text) {
			all = append(all, m.id().String())
		}
		return all
	}
	got, moved := ids(text), ids("local b = a\n"+strings.Replace(text, "g(a)", "h(a)", 1))
	for _, want := range []string{
		"src/x.lua f\tif a < 2 and\tif a <= 2 and",
		"src/x.lua f\tif a < 2 and\tif not (a < 2 and",
		"src/x.lua f\tif a < 2 and\t",
		"src/x.lua f\tg(a)\t",
	} {
		known, err := equivalents(want + "\ta reason\n")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(got, want) || len(known) != 1 || !known[idOf(want)] {
			t.Errorf("%q is none of the mutants %q, or is read as %v", want, got, known)
		}
		if isMoved := slices.Contains(moved, want); isMoved != !strings.Contains(want, "g(a)") {
			t.Errorf("%q is a mutant of the changed text: %v", want, isMoved)
		}
	}
	for _, line := range []string{"src/x.lua f\told\tnew", "src/x.lua f\told\tnew\t", "src/x.lua f\told\tnew\treason\tmore"} {
		if _, err := equivalents(line + "\n"); err == nil {
			t.Errorf("%q is read without an error", line)
		}
	}
}

func idOf(line string) id {
	fields := strings.Split(line, "\t")
	return id{fields[0], fields[1], fields[2]}
}

// TestTheBuildHasTheMutants checks that the lines of every mutant are in the build, which has no
// comments, as often as its number says.
func TestTheBuildHasTheMutants(t *testing.T) {
	text := functions.Source()
	for _, pattern := range []string{"src/*.lua", "src/*/*.lua"} {
		paths, err := filepath.Glob("../../functions/" + pattern)
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file := strings.TrimPrefix(filepath.ToSlash(path), "../../functions/")
			_, built, _ := strings.Cut(text, "\n--@ "+file+"\n")
			built, _, _ = strings.Cut(built, "\n--@ ")
			for _, m := range find(file, string(source)) {
				if appearances(built, m.Old) <= m.Nth {
					t.Errorf("%s: the build has these lines %d times: %q", m, appearances(built, m.Old), m.Old)
				}
			}
		}
	}
}

// TestOwnVectors checks that the files in own, and their vectors, exist.
func TestOwnVectors(t *testing.T) {
	for file, vectors := range own {
		if _, err := os.Stat("../../functions/" + file); err != nil {
			t.Error(err)
		}
		for name := range strings.SplitSeq(vectors, "|") {
			if _, err := os.Stat("../../functions/vectors/" + name + ".json"); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
