package text

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Library describes the source code of a library. All fields are zero if there is no library. A
// field other than Digest is zero if the source code does not contain its value, as in an unrelated
// library.
type Library struct {
	Version  string `json:"version"`
	Contract int    `json:"contract"` // number of the contract, as in CALLS.md
	BuildID  string `json:"build_id"`
	Digest   string `json:"digest"` // SHA-256 of the source code, 64 hexadecimal digits
}

// IsOurs reports whether l is a build of the ratelimit library.
func (l Library) IsOurs() bool { return l.Version != "" && l.BuildID != "" }

// String describes the library for display.
func (l Library) String() string {
	switch {
	case l.Digest == "":
		return "no library"
	case !l.IsOurs():
		return "an unknown text " + l.Digest[:min(12, len(l.Digest))]
	}
	return fmt.Sprintf("%s build %s", l.Version, l.BuildID)
}

var (
	versionLine  = regexp.MustCompile(`(?m)^local VERSION = '([^']*)'`)
	contractLine = regexp.MustCompile(`(?m)^local CONTRACT = ([0-9]{1,9})\r?$`)
	buildIDLine  = regexp.MustCompile(`(?m)^local BUILD_ID = '([^']*)'`)

	// Each pattern begins with a literal word, so that the search is fast in a long library.
	functionNames = []*regexp.Regexp{
		regexp.MustCompile(`function_name\s*=\s*['"](\w+)['"]`), regexp.MustCompile(`redis\.register_function\(\s*['"](\w+)['"]`),
	}
)

// Describe reads a library's description from its source code. ratelimit_info returns the same
// description, but a deployer may lack permission to call it.
func Describe(code string) Library {
	if code == "" {
		return Library{}
	}
	contract, _ := strconv.Atoi(first(contractLine, code))
	return Library{
		Version: first(versionLine, code), Contract: contract, BuildID: first(buildIDLine, code),
		Digest: functions.Digest(code),
	}
}

// Functions lists the functions that a library registers, by name.
func Functions(code string) []string {
	var names []string
	for _, pattern := range functionNames {
		for _, m := range pattern.FindAllStringSubmatch(code, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// first returns the first group of the pattern's first match, or "" if there is no match.
func first(pattern *regexp.Regexp, text string) string {
	if m := pattern.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// files splits a library's source code at the lines that the build writes before each source file.
func files(code string) map[string]string {
	const mark = "\n--@ "
	parts := strings.Split(code, mark)
	found := map[string]string{"": parts[0]}
	for _, part := range parts[1:] {
		name, body, _ := strings.Cut(part, "\n")
		found[name] = body
	}
	return found
}

// Bodies returns the functions that a library registers, each with the source file that registers
// it.
func Bodies(code string) map[string]string {
	found := map[string]string{}
	for _, body := range files(code) {
		for _, name := range Functions(body) {
			found[name] = body
		}
	}
	return found
}

// Sources returns a library's source files, without those that register a function, and without the
// version and the policies.
func Sources(code string) map[string]string {
	if without, err := functions.Rebuild(code, nil); err == nil {
		code = without
	}
	found := files(code)
	maps.DeleteFunc(found, func(name, body string) bool {
		return name == "" || len(Functions(body)) > 0
	})
	for name, body := range found {
		if strings.Contains(body, "local BUILD_ID = ") {
			found[name] = buildIDLine.ReplaceAllString(versionLine.ReplaceAllString(body, ""), "")
		}
	}
	return found
}
