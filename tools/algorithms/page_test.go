package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var docs = filepath.Join("..", "..", "docs")

// TestThePageHasWhatTheLibraryDecides checks that the table of docs/algorithms.md and its pictures
// are the command's output.
func TestThePageHasWhatTheLibraryDecides(t *testing.T) {
	folder := t.TempDir()
	page := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(docs, "algorithms.md")))
	redistest.Require(t, os.WriteFile(filepath.Join(folder, "algorithms.md"), page, 0o600))
	redistest.Require(t, run(folder))
	names := []string{"algorithms.md"}
	for _, traffic := range traffics {
		if traffic.file == "" {
			continue
		}
		names = append(names, traffic.file)
		if !strings.Contains(string(page), "]("+traffic.file+")") {
			t.Errorf("the page does not show %s", traffic.file)
		}
	}
	for _, name := range names {
		written := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(folder, name)))
		if shown, err := os.ReadFile(filepath.Join(docs, name)); err != nil || string(shown) != string(written) {
			t.Errorf("docs/%s is not what the command writes (%v); run make algorithms, and read whether the text around it still holds", name, err)
		}
	}
}

// TestEveryAlgorithmTakesPart checks that the command and the page's advice cover each algorithm of
// the library.
func TestEveryAlgorithmTakesPart(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "functions", "src", "algorithms", "*.lua"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	page := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(docs, "algorithms.md")))
	advice, _, _ := strings.Cut(string(page), "<!-- table")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		if !slices.ContainsFunc(algorithms, func(limit string) bool { return strings.HasPrefix(limit, name+" ") }) {
			t.Errorf("no limit of %s in traffic.go", name)
		}
		if !strings.Contains(advice, "| `"+name) {
			t.Errorf("docs/algorithms.md does not say when to take %s", name)
		}
	}
}

func TestAMinuteIsHalfOpen(t *testing.T) {
	o := outcome{ahead: []int64{0, 1, 1, minute - 1, minute, 2 * minute}}
	for at, want := range map[int64]int{0: 1, 1: 3, minute - 1: 4, minute: 4, minute + 1: 2, 2*minute - 1: 1, 2 * minute: 1, 3 * minute: 0} {
		if got := o.within(at); got != want {
			t.Errorf("%d calls in the minute up to %d ms, not %d", got, at, want)
		}
	}
	if o.most() != 4 {
		t.Errorf("at most %d in a minute, not 4", o.most())
	}
	if o.pause() != minute {
		t.Errorf("the longest pause is %d ms, not a minute", o.pause())
	}
}

// TestMarks checks that seconds 1 and 2 form one mark, that second 5 has its own mark, and that a
// call at the end has no mark.
func TestMarks(t *testing.T) {
	got := marks([]int64{second, 2*second + 1, 2*second + 2, 5 * second, length}, 10)
	if strings.Count(got, "z") != 2 || !strings.HasPrefix(got, "M76.2 10.0H80.6") {
		t.Errorf("%q", got)
	}
}
