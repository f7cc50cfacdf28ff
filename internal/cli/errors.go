package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/loader"
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
	fmt.Fprintln(a.stderr, oneLine(a.explained(err)))
	return exitError
}

// suggested is a command line in an error of a package that knows neither this program nor the servers.
var suggested = regexp.MustCompile(`\b(run|with): ratelimit (deploy|status|dev|verify)\b`)

// explained is the text of err, in which the commands that it suggests can be typed as they stand.
func (a *app) explained(err error) string {
	text := suggested.ReplaceAllStringFunc(err.Error(), func(found string) string {
		words := suggested.FindStringSubmatch(found)
		line := words[1] + ": " + a.program + " " + words[2]
		if words[2] == "deploy" || words[2] == "status" {
			line += a.named.again
		}
		return line
	})
	var call *client.Error
	var node *loader.NodeError
	if a.named.alone && (errors.As(err, &call) && call.Code == "NOAUTH" || errors.As(err, &node) && node.Code == "NOAUTH") {
		text += "; in the URL, a password alone needs a colon before it"
	}
	return text
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
