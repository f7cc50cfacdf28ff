package loader

import (
	"fmt"
	"slices"
	"strings"
)

// unified returns the difference between two texts as `diff -u` shows it, with three lines around
// each change, or "" if they are equal.
func unified(oldName, newName, oldText, newText string) string {
	if oldText == newText {
		return ""
	}
	a, b := split(oldText), split(newText)
	edits := compare(a, b)
	const around = 3
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", oldName, newName)
	for i := 0; i < len(edits); {
		if edits[i].kind == ' ' {
			i++
			continue
		}
		// A hunk ends when enough lines are equal for the next change to have its own hunk.
		from, to, equal := max(0, i-around), i, 0
		for to < len(edits) && equal <= 2*around {
			if edits[to].kind == ' ' {
				equal++
			} else {
				equal = 0
			}
			to++
		}
		to -= max(0, equal-around)
		hunk(&out, edits[from:to])
		i = to
	}
	return out.String()
}

func hunk(out *strings.Builder, edits []edit) {
	count := func(kind byte) int {
		n := 0
		for _, e := range edits {
			if e.kind == ' ' || e.kind == kind {
				n++
			}
		}
		return n
	}
	span := func(at, n int) string {
		if n == 0 {
			return fmt.Sprintf("%d,0", at)
		}
		return fmt.Sprintf("%d,%d", at+1, n)
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(edits[0].a, count('-')), span(edits[0].b, count('+')))
	for _, e := range edits {
		out.WriteByte(e.kind)
		out.WriteString(e.line)
		if !strings.HasSuffix(e.line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// edit is a line of both texts (' '), of the old one ('-') or of the new one ('+'), with the number
// of lines of each that come before it.
type edit struct {
	kind byte
	line string
	a, b int
}

// compare aligns the lines that two texts share. It matches their common beginning and end, then
// the lines that each text has exactly once, in the longest run that has the same order in both,
// and repeats this between the matches. It takes nearly linear time for any texts.
func compare(a, b []string) []edit {
	var edits []edit
	add := func(kind byte, line string, i, j int) { edits = append(edits, edit{kind, line, i, j}) }
	var walk func(a, b []string, i, j int)
	walk = func(a, b []string, i, j int) {
		for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
			add(' ', a[0], i, j)
			a, b, i, j = a[1:], b[1:], i+1, j+1
		}
		end := 0
		for end < len(a) && end < len(b) && a[len(a)-1-end] == b[len(b)-1-end] {
			end++
		}
		head, tail := a[:len(a)-end], a[len(a)-end:]
		other := b[:len(b)-end]
		pairs := anchors(head, other)
		if len(pairs) == 0 {
			for k, line := range head {
				add('-', line, i+k, j)
			}
			for k, line := range other {
				add('+', line, i+len(head), j+k)
			}
		} else {
			x, y := 0, 0
			for _, p := range append(pairs, [2]int{len(head), len(other)}) {
				walk(head[x:p[0]], other[y:p[1]], i+x, j+y)
				x, y = p[0], p[1]
			}
		}
		for k, line := range tail {
			add(' ', line, i+len(head)+k, j+len(other)+k)
		}
	}
	walk(a, b, 0, 0)
	return edits
}

// anchors pairs the lines that both texts have exactly once, and returns the longest run of pairs
// in the same order in both.
func anchors(a, b []string) [][2]int {
	type seen struct{ a, b, countA, countB int }
	lines := map[string]*seen{}
	for i, line := range a {
		if lines[line] == nil {
			lines[line] = &seen{}
		}
		lines[line].a = i
		lines[line].countA++
	}
	for j, line := range b {
		if s := lines[line]; s != nil {
			s.b = j
			s.countB++
		}
	}
	var pairs [][2]int
	for i, line := range a {
		if s := lines[line]; s.countA == 1 && s.countB == 1 {
			pairs = append(pairs, [2]int{i, s.b})
		}
	}
	// Find the longest increasing run of the second numbers: ends[n] is the pair that ends the best
	// run of n+1 pairs.
	var ends []int
	before := make([]int, len(pairs))
	for i, p := range pairs {
		n, _ := slices.BinarySearchFunc(ends, p[1], func(end, b int) int { return pairs[end][1] - b })
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	var run [][2]int
	for i := ends[len(ends)-1]; i >= 0; i = before[i] {
		run = append(run, pairs[i])
	}
	slices.Reverse(run)
	return run
}
