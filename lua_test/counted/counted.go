// Package counted counts the work that calls to the library cause on a server, so that tests can
// check bounds on it without measuring time.
package counted

import (
	_ "embed"
	"fmt"
	"strings"
)

// Work is the work that one or more calls cause.
type Work struct {
	Commands int64 // commands that the library called
	Bytes    int64 // bytes in the arguments and replies of these commands
	Steps    int64 // operations on strings
}

// Within reports whether no field of w exceeds the same field of bound.
func (w Work) Within(bound Work) bool {
	return w.Commands <= bound.Commands && w.Bytes <= bound.Bytes && w.Steps <= bound.Steps
}

//go:embed counted.lua
var counting string

// Library returns text, the library's source code, with added code that counts the library's work.
func Library(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	return first + "\n" + counting + rest
}

// Read returns the work since the last Read. It calls do to run a command on the server.
func Read(do func(words ...string) (any, error)) (Work, error) {
	reply, err := do("FCALL", "ratelimit_counted", "0")
	if err != nil {
		return Work{}, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != 3 {
		return Work{}, fmt.Errorf("ratelimit_counted returns %v, want three numbers", reply)
	}
	return Work{list[0].(int64), list[1].(int64), list[2].(int64)}, nil
}
