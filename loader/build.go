package loader

import (
	"fmt"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
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

// artifact is the source code of a library to load, and its description.
type artifact struct {
	text.Library
	text string
}

// readBuild describes a Build, and returns an error if it is not the ratelimit library or has
// policies outside the Loader's namespace.
func (l *Loader) readBuild(build Build) (goal, error) {
	const remedy = "make one with functions.New"
	if build == nil || build.Text() == "" {
		return goal{}, &nodes.Error{Class: ErrBadBuild, Problem: "the build is empty", Remedy: remedy}
	}
	a := artifact{text: build.Text()}
	a.Library = text.Describe(a.text)
	if first, _, _ := strings.Cut(a.text, "\n"); strings.TrimSpace(first) != "#!lua name="+functions.Name || !a.IsOurs() {
		return goal{}, &nodes.Error{Class: ErrBadBuild, Problem: fmt.Sprintf("the text is not a build of the library %s: it begins with %.60q", functions.Name, first), Remedy: remedy}
	}
	return l.owns(a)
}

// newer reports whether version a comes after b in semantic versioning. It returns false if one of
// them cannot be parsed.
func newer(a, b string) bool {
	a, b = "v"+a, "v"+b
	return semver.IsValid(b) && semver.Compare(a, b) > 0 // an invalid version comes before a valid one
}
