package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// exitCode ends a command whose output already says everything.
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

// suggested matches a command line in an error text, mostly one from a package that does not know
// this program's name or the servers.
var suggested = regexp.MustCompile(`\b(as in|\w+): ratelimit ([a-z]+)\b((?: --[a-z]+\b)*)`)

// goNames matches the Go names that other packages' texts give, in addition to the flag or the URL.
var goNames = regexp.MustCompile(` \((?:To|AllowDowngrade|RemovePolicies|ReplaceForeign|WithPolicies|WaitForLease|MasterName|(?:SentinelUsername, )?SentinelPassword|` +
	`(?:or set )?[A-Za-z]+ of the TLSConfig)\)|, or Password in the options of the Redis client`)

// typable returns text with suggested commands that can be typed as they are. The commands get this
// program's name, and the flags for the servers and the library that were given. If no library was
// given and the servers run policies, the text adds that the command needs the policies file. For a
// deployment it also adds what would refuse it, with the flag that allows it. Commands after "as
// in" are only examples. Names of the Go API are removed.
func (a *app) typable(text string) string {
	text = suggested.ReplaceAllStringFunc(text, func(found string) string {
		words := suggested.FindStringSubmatch(found)
		line, note := words[1]+": "+a.program+" "+words[2], ""
		for _, cmd := range a.commands {
			switch {
			case cmd.Name() != words[2]:
				continue
			case words[1] == "as in":
				return line + words[3]
			}
			asks := cmd.Flags().Lookup("redis") != nil
			if asks {
				if a.named.again == "" {
					_, _ = a.parseServers() // fails before the servers are known; other commands report that error
				}
				line += a.named.again
			}
			if cmd.Flags().Lookup("library") != nil {
				var flags string
				flags, note = a.libraryAgain(words[2], asks)
				line += flags
			}
			return line + words[3] + note
		}
		return found
	})
	return goNames.ReplaceAllString(text, "")
}

// advised adds the name of the flag that a take lacks.
func advised(text string) string {
	if strings.HasSuffix(text, ", and a usage key last") {
		text += ": --usage-key"
	}
	return text
}

// explained returns the text of err for output.
func (a *app) explained(err error) string {
	text := advised(a.typable(err.Error()))
	var call *client.Error
	var node *loader.NodeError
	if a.named.Alone && (errors.As(err, &call) && call.Code == "NOAUTH" || errors.As(err, &node) && node.Code == "NOAUTH") {
		text += "; in the URL, a password alone needs a colon before it"
	}
	return text
}

// explain replaces the error of a node with its text for output.
func (a *app) explain(n *loader.Node) {
	if n.Err != nil {
		n.Err = errors.New(a.explained(n.Err))
	}
}

// oneLine returns text after "ratelimit: ", with line ends and other control characters made
// visible.
func oneLine(text string) string {
	text = strings.TrimPrefix(text, "ratelimit: ")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return "ratelimit: " + printable.Line(strings.Join(lines, " "))
}

// wrongUse returns the error for an invalid command line: what is wrong, and an example of the
// command.
func wrongUse(example, format string, args ...any) error {
	return fmt.Errorf(format+"; as in: %s", append(args, example)...)
}
