package loader

import (
	"strings"
	"testing"
)

func TestUnified(t *testing.T) {
	numbers := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n"
	for _, tt := range []struct{ name, a, b, want string }{
		{"equal", numbers, numbers, ""},
		{"two places", numbers, strings.Replace(strings.Replace(numbers, "\n3\n", "\nthree\n", 1), "\n18\n", "\n", 1),
			"--- old\n+++ new\n@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -15,6 +15,5 @@\n 15\n 16\n 17\n-18\n 19\n 20\n"},
		{"near each other", numbers, strings.Replace(strings.Replace(numbers, "\n3\n", "\n", 1), "\n9\n", "\n", 1),
			"--- old\n+++ new\n@@ -1,12 +1,10 @@\n 1\n 2\n-3\n 4\n 5\n 6\n 7\n 8\n-9\n 10\n 11\n 12\n"},
		{"added at the end", "1\n", "1\n2\n", "--- old\n+++ new\n@@ -1,1 +1,2 @@\n 1\n+2\n"},
		{"from nothing", "", "1\n", "--- old\n+++ new\n@@ -0,0 +1,1 @@\n+1\n"},
		{"without a line end", "1\n2", "1\n3", "--- old\n+++ new\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\n\\ No newline at end of file\n"},
	} {
		if got := unified("old", "new", tt.a, tt.b); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}
