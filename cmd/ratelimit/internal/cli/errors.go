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

// suggested is a command line in a text of a package that knows neither this program nor the servers, or in one of ours.
var suggested = regexp.MustCompile(`\b(as in|\w+): ratelimit ([a-z]+)\b((?: --[a-z]+\b)*)`)

// goNames are what texts of other packages say to those who call them from Go, beside the flag or the URL.
var goNames = regexp.MustCompile(` \((?:To|AllowDowngrade|RemovePolicies|ReplaceForeign|WithPolicies|WaitForLease|MasterName|(?:SentinelUsername, )?SentinelPassword|` +
	`(?:or set )?[A-Za-z]+ of the TLSConfig)\)|, or Password in the options of the Redis client`)

// typable is text in which the commands that it suggests can be typed as they stand: they name this program, and with
// the flags that they have, the servers and the library that were named to it. Where no library was named, and the servers
// run policies, they say that the file of these is needed; and a deployment says what would refuse it, with the flag that
// allows it. After "as in" stands only an example. Names of the Go API are left out.
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
					_, _ = a.parseServers() // it fails before the servers are known; what is wrong with them is not asked here
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

// advised names the flag of what a take lacks.
func advised(text string) string {
	if strings.HasSuffix(text, ", and a usage key last") {
		text += ": --usage-key"
	}
	return text
}

// explained is the text of err as it goes out.
func (a *app) explained(err error) string {
	text := advised(a.typable(err.Error()))
	var call *client.Error
	var node *loader.NodeError
	if a.named.Alone && (errors.As(err, &call) && call.Code == "NOAUTH" || errors.As(err, &node) && node.Code == "NOAUTH") {
		text += "; in the URL, a password alone needs a colon before it"
	}
	return text
}

// explain puts the error of a node into the words in which it goes out.
func (a *app) explain(n *loader.Node) {
	if n.Err != nil {
		n.Err = errors.New(a.explained(n.Err))
	}
}

// oneLine is text after "ratelimit: ", with line ends and what else would upset a terminal made visible.
func oneLine(text string) string {
	text = strings.TrimPrefix(text, "ratelimit: ")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return "ratelimit: " + printable.Line(strings.Join(lines, " "))
}

// wrongUse is a command line that cannot be right: what is wrong, and the example of the command that was meant.
func wrongUse(example, format string, args ...any) error {
	return fmt.Errorf(format+"; as in: %s", append(args, example)...)
}
