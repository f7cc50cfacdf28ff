package cli

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

// Output may contain text from servers, logs and files. All output goes through printf, printLines,
// table or printJSON, which escape terminal control characters. The exceptions are text with
// styles, such as bold, and output that must be exact byte for byte.

func (a *app) printJSON(v any) error { return a.encode(v, "  ") }

func (a *app) printJSONLine(v any) error { return a.encode(v, "") }

func (a *app) encode(v any, indent string) error {
	text, err := printable.Encode(v, indent)
	if err != nil && a.unwritten == nil {
		a.unwritten = err
	}
	return a.write(printable.JSON(text))
}

// printf escapes newlines in its arguments, so only the format can start a new line.
func (a *app) printf(format string, args ...any) error {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = printable.Line(arg)
		case error:
			args[i] = printable.Line(arg.Error())
		case fmt.Stringer:
			args[i] = printable.Line(arg.String())
		}
	}
	return a.printLines(fmt.Sprintf(format, args...))
}

func (a *app) printLines(text string) error { return a.write(printable.Lines(text)) }

// write writes text unchanged. After an error, it writes nothing more and returns the same error,
// which run also returns at the end. Therefore callers need to check the error only if they
// continue with other work.
func (a *app) write(text string) error {
	if a.unwritten == nil {
		_, err := io.WriteString(a.stdout, text)
		a.unwritten = written(err)
	}
	return a.unwritten
}

// reportFile describes the file into which a command writes a report, and the flag that names it.
type reportFile struct{ flag, name, what, begin string }

func page(name string) reportFile { return reportFile{"--html", name, "page", "<!DOCTYPE html>"} }

// check returns an error if the report's file cannot be written. An existing file is replaced only
// if it begins like a report of this kind: a typo must not destroy a log or a policies file.
// Callers must call check before they do the work, so that a bad file name does not waste the work.
func (f reportFile) check() error {
	if f.name == "" {
		return nil
	}
	if info, err := os.Stat(f.name); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		old, err := os.Open(f.name)
		if err != nil {
			return f.refuse(err)
		}
		head := make([]byte, len(f.begin))
		_, err = io.ReadFull(old, head)
		_ = old.Close()
		if err != nil || string(head) != f.begin {
			return f.refuse(fmt.Errorf("%s exists and is another kind of file, so it is not overwritten", f.name))
		}
	}
	return f.refuse(replace.Writable(f.name))
}

// write writes the report's file, if its flag was given.
func (f reportFile) write(write func(io.Writer) error) error {
	if f.name == "" {
		return nil
	}
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return f.refuse(err)
	}
	return f.refuse(replace.File(f.name, content.Bytes()))
}

// writePage writes the report as HTML if --html was given, and prints the name of the file.
func (a *app) writePage(html reportFile, write func(io.Writer) error) error {
	if err := html.write(write); err != nil || html.name == "" || a.json {
		return err
	}
	return a.printf("\nwrote %s\n", html.name)
}

// refuse returns an error that wraps err and names the flag for the report's file, or nil if err is
// nil.
func (f reportFile) refuse(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write the %s: %w; choose another file with %s", f.what, err, f.flag)
}

// written returns the error for a failed write to stdout, or nil if err is nil. Without the error,
// a script would mistake partial output for complete output.
func written(err error) error {
	if err != nil {
		return fmt.Errorf("cannot write the output (%w); check that its reader runs and that the disk is not full", err)
	}
	return nil
}

// table formats rows as columns separated by two spaces. All rows have the same number of cells,
// and the first row is the header.
func table(rows [][]string) string {
	var aligned, lines strings.Builder
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprint(columns, printable.Line(cell), "\t")
		}
		fmt.Fprintln(columns)
	}
	_ = columns.Flush() // writing to a strings.Builder does not fail
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(&lines, strings.TrimRight(line, " \n"))
	}
	return lines.String()
}

// human formats a duration for display: 0 ms, 850 ms, 1.25 s, 3 min 20 s, 2 h 5 min, 364 d 23 h. It
// rounds up, so the result is never less than d.
func human(d time.Duration) string {
	d = min(d, math.MaxInt64-24*time.Hour) // rounding up must not overflow
	ceil := func(unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }
	two := func(large, small time.Duration, largeName, smallName string) string {
		d := ceil(small)
		text := fmt.Sprintf("%d %s", d/large, largeName)
		if rest := d % large / small; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, smallName)
		}
		return text
	}
	switch {
	case ceil(time.Millisecond) < time.Second:
		return fmt.Sprintf("%d ms", ceil(time.Millisecond)/time.Millisecond)
	case ceil(10*time.Millisecond) < time.Minute:
		return strconv.FormatFloat(ceil(10*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case ceil(time.Second) < time.Hour:
		return two(time.Minute, time.Second, "min", "s")
	case ceil(time.Minute) < 24*time.Hour:
		return two(time.Hour, time.Minute, "h", "min")
	default:
		return two(24*time.Hour, time.Hour, "d", "h")
	}
}

var grouped = figures.Grouped

// plural returns text such as "1 key" or "2 keys".
func plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(int64(n)) + " " + noun + "s"
}

// visible returns a key as it is, or quoted if it contains unprintable characters.
var visible = printable.Key
