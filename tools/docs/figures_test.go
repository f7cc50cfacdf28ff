//go:build unix

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The table in docs/numbers.md is the source of all measured figures. A row has a name, the value,
// what was measured, and the command, or the tables of bench/README.md that have the value. A block
// of text is a number of lines without a blank line. Before it, a comment names its figures:
//
//	<!-- figures: gcra-allowed, library-memory, 20 ms -->
//
// An entry that begins with a digit is a number in the text that was not measured: a bound, a
// setting or an example.
var (
	figuresMark = regexp.MustCompile(`(?m)^ *<!-- figures: (.+) -->\n`)
	figureRow   = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| ([^|]+) \\| [^|]+ \\| ([^|]+) \\|\n")
	notProse    = regexp.MustCompile("(?ms)^ *```.*?^ *```$|^<!-- table: .*?^<!-- end of the table -->$|`(?:[^`\n]|\n[^`\n])*`")
	codeSpan    = regexp.MustCompile("`([^`]+)`")
	inDigits    = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	inWords     = strings.NewReplacer("half a megabyte", "0.5 MB", "two thirds", "0.7 times as", "half the time", "0.5 times as", "half of the time", "0.5 times as", "half as", "0.5 times as", "twice as", "2 times as")

	// speed matches numbers with the units of speed and memory. Bounds on memory are in MiB and KiB.
	speed = regexp.MustCompile(`\b(\d[\d,]*(?:\.\d+)?)(?: to (\d[\d,]*(?:\.\d+)?))? ?(µs|us|ms|KB|MB|GB|allocations|times (?:as|longer)|(?:[a-z]+ )?(?:a|per) second|[a-z]*/s)\b`)
)

// stated is a match of speed. A range has two numbers.
type stated struct {
	text, unit string
	numbers    []string
}

func statements(text string) (all []stated) {
	for _, m := range speed.FindAllStringSubmatch(inWords.Replace(text), -1) {
		unit, _, _ := strings.Cut(strings.Replace(m[3], "us", "µs", 1), " ")
		if strings.HasSuffix(m[3], "second") || strings.HasSuffix(m[3], "/s") {
			if unit = "/s"; number(m[1]) < 1000 {
				continue // a rate of an example
			}
		}
		all = append(all, stated{m[0], unit, slices.DeleteFunc(m[1:3], func(n string) bool { return n == "" })})
	}
	return all
}

func number(digits string) float64 {
	f, _ := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	return f
}

// rounds reports whether s states f, rounded to the decimal places that s shows.
func (s stated) rounds(f stated) bool {
	return s.unit == f.unit && slices.EqualFunc(s.numbers, f.numbers, func(shown, measured string) bool {
		_, fraction, _ := strings.Cut(shown, ".")
		return strconv.FormatFloat(number(measured), 'f', len(fraction), 64) == strings.ReplaceAll(shown, ",", "")
	})
}

// wrongFigures compares a document with the figures, whose values it gets by name. In a document
// that is not about speed, most times in ms are settings and need no comment.
func wrongFigures(text string, figures map[string]string, aboutSpeed bool) (wrong []string) {
	text = notProse.ReplaceAllStringFunc(figureRow.ReplaceAllString(text, ""), func(code string) string {
		return strings.Repeat("\n\n", min(1, strings.Count(code, "\n")))
	})
	for _, block := range strings.Split(text, "\n\n") {
		var entries []string
		for _, m := range figuresMark.FindAllStringSubmatch(block, -1) {
			entries = append(entries, strings.Split(m[1], ", ")...)
		}
		block = strings.Join(strings.Fields(figuresMark.ReplaceAllString(block, "")), " ")
		found := statements(block)
		explained := make([]bool, len(found))
		for _, entry := range entries {
			value, isFigure := figures[entry]
			if !isFigure {
				value = entry
			}
			of := statements(value)
			there := len(of) == 0 && strings.Contains(block, value)
			for i, s := range found {
				if len(of) > 0 && (isFigure && s.rounds(of[0]) || s.text == of[0].text) {
					explained[i], there = true, true
				}
			}
			if !there {
				wrong = append(wrong, fmt.Sprintf("%s (%s) is not in the block %.70q", entry, value, block))
			}
		}
		for i, s := range found {
			if !explained[i] && (s.unit != "ms" || aboutSpeed || entries != nil) {
				wrong = append(wrong, fmt.Sprintf("%q has no source. Write <!-- figures: NAME --> before the block %.70q, "+
					"with a name from docs/numbers.md, or with %[1]q if it was not measured", s.text, block))
			}
		}
	}
	return wrong
}

// inTables returns the least and greatest number in the cells of page that names select: in the
// tables and rows below a line or bold cell that begins with names[0], the rows that begin with
// names[1], and of these the column names[2] or, without it, all bold numbers.
func inTables(page string, names []string) (least, most string) {
	var group, previous string
	var header, found []string
	for _, line := range strings.Split(block.ReplaceAllString(page, ""), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		row := strings.TrimLeft(strings.Join(cells, " "), "#· *")
		switch {
		case strings.HasPrefix(line, "|--"):
			header = strings.Split(strings.Trim(previous, "| "), " | ")
		case strings.HasPrefix(line, "| **"), line != "" && line[0] != '|' && line[0] != '<':
			group = row
		}
		if previous = line; !strings.HasPrefix(line, "|") || !strings.HasPrefix(group, names[0]) || !strings.HasPrefix(row, names[1]) {
			continue
		}
		for i, cell := range cells[1:] {
			_, bold, isBold := strings.Cut(cell, "**")
			if len(names) == 2 && isBold || len(names) > 2 && i+1 < len(header) && header[i+1] == names[2] {
				found = append(found, inDigits.FindString(map[bool]string{true: bold, false: cell}[isBold]))
			}
		}
	}
	if found == nil {
		return "", ""
	}
	slices.SortFunc(found, func(a, b string) int { return int(1e6 * (number(a) - number(b))) })
	return found[0], found[len(found)-1]
}

func TestFigures(t *testing.T) {
	const root = "../.."
	read := func(name string) string {
		text := must[[]byte](t)(os.ReadFile(filepath.Join(root, name)))
		return string(text)
	}
	measured, figures := read("bench/README.md"), map[string]string{}
	for _, row := range figureRow.FindAllStringSubmatch(read("docs/numbers.md"), -1) {
		name, value, from := row[1], row[2], row[3]
		if figures[name] != "" {
			t.Errorf("docs/numbers.md has %s twice", name)
		}
		figures[name] = value
		if !strings.HasPrefix(from, "[bench](") {
			continue
		}
		var names []string
		for _, span := range codeSpan.FindAllStringSubmatch(from, -1) {
			names = append(names, span[1])
		}
		numbers := inDigits.FindAllString(value, -1)
		if least, most := inTables(measured, names); least != numbers[0] || most != numbers[len(numbers)-1] {
			t.Errorf("%s is %s in docs/numbers.md, but %s to %s in the tables of bench/README.md %q", name, value, least, most, names)
		}
	}
	if len(figures) == 0 {
		t.Fatal("docs/numbers.md has no figures")
	}
	for _, pattern := range []string{"README.md", "docs/*.md", "functions/*.md"} {
		for _, file := range must[[]string](t)(filepath.Glob(filepath.Join(root, pattern))) {
			name := must[string](t)(filepath.Rel(root, file))
			for _, wrong := range wrongFigures(read(name), figures, slices.Contains([]string{"README.md", "docs/numbers.md", "docs/scale.md"}, name)) {
				t.Errorf("%s: %s", name, wrong)
			}
		}
	}
}

func TestWrongFigures(t *testing.T) {
	figures := map[string]string{"call": "3.89 µs", "ratio": "0.99 to 1.22 times as long", "size": "150 bytes", "half": "0.51 MB"}
	for _, test := range []struct {
		text string
		want int
	}{
		{"A call takes 4 µs.", 1},
		{"In `4 µs`:\n```sh\n4 µs\n```\nno speed: 5/s, 100 calls a second.", 0},
		{"<!-- figures: call, ratio -->\nA call takes 4 µs,\n1.0 to 1.2 times as long.", 0},
		{"<!-- figures: call -->\nA call takes 5 µs.", 2}, // the figure is not there, and 5 µs has no source
		{"<!-- figures: call -->\nA call takes 4 µs.\n\nIt takes 4 µs.", 1},
		{"<!-- figures: ratio -->\nIt takes 1.0 times as long.", 2},
		{"<!-- figures: size, half -->\nA key takes 150 bytes, and the library half a megabyte.", 0},
		{"<!-- figures: size -->\nA key takes 140 bytes.", 1},
		{"<!-- figures: other -->\nNothing.", 1},
		{"<!-- figures: 20 µs -->\nAt most 20 µs.", 0},
		{"It answers after 5 ms, at 2,000 calls a second.", 2},
	} {
		if got := wrongFigures(test.text, figures, true); len(got) != test.want {
			t.Errorf("%q: %d differences, want %d: %q", test.text, len(got), test.want, got)
		}
	}
	if got := wrongFigures("A timeout of 5 ms.", figures, false); got != nil {
		t.Errorf("a setting in ms: %q", got)
	}
}
