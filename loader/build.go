package loader

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Build is the source code of a library to deploy: a functions.Build, which functions.New makes, or
// a [Text] from a file.
type Build interface {
	Text() string
}

// Text is a Build given by its source code, such as the content of a file that `ratelimit build -o`
// wrote. With it, a tested build can be stored, and later deployed byte for byte to several fleets.
type Text string

// Text returns t as it is.
func (t Text) Text() string { return string(t) }

// Library describes the source code of a library. All fields are zero if there is no library. A
// field other than Digest is zero if the source code does not contain its value, as in an unrelated
// library.
type Library struct {
	Version  string `json:"version"`
	Contract int    `json:"contract"` // number of the contract, as in CALLS.md
	BuildID  string `json:"build_id"`
	Digest   string `json:"digest"` // SHA-256 of the source code, 64 hexadecimal digits
}

// ours reports whether l is a build of the ratelimit library.
func (l Library) ours() bool { return l.Version != "" && l.BuildID != "" }

// String describes the library for display.
func (l Library) String() string {
	switch {
	case l.Digest == "":
		return "no library"
	case !l.ours():
		return "an unknown text " + l.Digest[:min(12, len(l.Digest))]
	}
	return fmt.Sprintf("%s build %s", l.Version, l.BuildID)
}

// artifact is the source code of a library to load, and its description.
type artifact struct {
	Library
	text string
}

// readBuild describes a Build, and returns an error if it is not the ratelimit library or has
// policies outside the Loader's namespace.
func (l *Loader) readBuild(build Build) (goal, error) {
	const remedy = "make one with functions.New"
	if build == nil || build.Text() == "" {
		return goal{}, &Error{Class: ErrBadBuild, Problem: "the build is empty", Remedy: remedy}
	}
	a := artifact{text: build.Text()}
	a.Library = describe(a.text)
	if first, _, _ := strings.Cut(a.text, "\n"); strings.TrimSpace(first) != "#!lua name="+functions.Name || !a.ours() {
		return goal{}, &Error{Class: ErrBadBuild, Problem: fmt.Sprintf("the text is not a build of the library %s: it begins with %.60q", functions.Name, first), Remedy: remedy}
	}
	return l.owns(a)
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

// describe reads a library's description from its source code. ratelimit_info returns the same
// description, but a deployer may lack permission to call it.
func describe(code string) Library {
	if code == "" {
		return Library{}
	}
	contract, _ := strconv.Atoi(first(contractLine, code))
	return Library{
		Version: first(versionLine, code), Contract: contract, BuildID: first(buildIDLine, code),
		Digest: functions.Digest(code),
	}
}

// first returns the first group of the pattern's first match, or "" if there is no match.
func first(pattern *regexp.Regexp, text string) string {
	if m := pattern.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// functionsOf lists the functions that a library registers, by name.
func functionsOf(code string) []string {
	var names []string
	for _, pattern := range functionNames {
		for _, m := range pattern.FindAllStringSubmatch(code, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// newer reports whether version a comes after b in semantic versioning. It returns false if one of
// them cannot be parsed.
func newer(a, b string) bool {
	a, b = "v"+a, "v"+b
	return semver.IsValid(b) && semver.Compare(a, b) > 0 // an invalid version comes before a valid one
}
