package loader

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// For any texts, the kept and the removed lines form the old one, and the kept and the added lines
// the new one.
func TestCompareLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n", "e\n", "f\n", "\n", "last"})
		a, b := rapid.SliceOfN(line, 0, 30).Draw(t, "a"), rapid.SliceOfN(line, 0, 30).Draw(t, "b")
		var before, after []string
		for _, e := range compare(a, b) {
			if e.a != len(before) || e.b != len(after) {
				t.Fatalf("%+v comes after %d and %d lines", e, len(before), len(after))
			}
			if e.kind != '+' {
				before = append(before, e.line)
			}
			if e.kind != '-' {
				after = append(after, e.line)
			}
		}
		if strings.Join(before, "") != strings.Join(a, "") || strings.Join(after, "") != strings.Join(b, "") {
			t.Fatalf("%q and %q became %q and %q", a, b, before, after)
		}
	})
}

func TestUnified(t *testing.T) {
	numbers := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n"
	for _, tt := range []struct{ name, a, b, want string }{
		{"equal", numbers, numbers, ""},
		{"two places", numbers, strings.Replace(strings.Replace(numbers, "\n3\n", "\nthree\n", 1), "\n18\n", "\n", 1),
			"--- old\n+++ new\n@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -15,6 +15,5 @@\n 15\n 16\n 17\n-18\n 19\n 20\n"},
		{"near each other", numbers, strings.Replace(strings.Replace(numbers, "\n3\n", "\n", 1), "\n10\n", "\n", 1),
			"--- old\n+++ new\n@@ -1,13 +1,11 @@\n 1\n 2\n-3\n 4\n 5\n 6\n 7\n 8\n 9\n-10\n 11\n 12\n 13\n"},
		{"added at the end", "1\n", "1\n2\n", "--- old\n+++ new\n@@ -1,1 +1,2 @@\n 1\n+2\n"},
		{"from nothing", "", "1\n", "--- old\n+++ new\n@@ -0,0 +1,1 @@\n+1\n"},
		{"without a line end", "1\n2", "1\n3", "--- old\n+++ new\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\n\\ No newline at end of file\n"},
	} {
		if got := unified("old", "new", tt.a, tt.b); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}
