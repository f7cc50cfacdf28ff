package cli

import (
	"errors"
	"fmt"
	"strings"
)

// exitCode ends a command whose output has already said everything.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// report writes err as one line and returns the exit code.
func (a *app) report(err error) int {
	var code exitCode
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(a.stderr, oneLine(err.Error()))
	return exitError
}

// oneLine is text after "ratelimit: ", with line ends and what else would upset a terminal made visible.
func oneLine(text string) string {
	text = strings.TrimPrefix(text, "ratelimit: ")
	var line strings.Builder
	for _, r := range strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ") {
		if r < ' ' || r == 0x7f {
			fmt.Fprintf(&line, `\x%02x`, r)
		} else {
			line.WriteRune(r)
		}
	}
	return "ratelimit: " + line.String()
}

// wrongUse is a command line that cannot be right: what is wrong, and the example of the command that was meant.
func wrongUse(example, format string, args ...any) error {
	return fmt.Errorf(format+"; as in: %s", append(args, example)...)
}
