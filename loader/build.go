package loader

import (
	"errors"
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

// readBuild returns the goal to deploy a build. It returns an error if the build is not the ratelimit
// library, or has a policy outside the Loader's namespace.
func (l *Loader) readBuild(build Build) (goal, error) {
	bad := func(class error, remedy, problem string, args ...any) (goal, error) {
		return goal{}, &nodes.Error{Class: class, Problem: fmt.Sprintf(problem, args...), Remedy: remedy}
	}
	const remedy = "make one with functions.New"
	if build == nil || build.Text() == "" {
		return bad(ErrBadBuild, remedy, "the build is empty")
	}
	own := artifact{text.Describe(build.Text()), build.Text()}
	if first, _, _ := strings.Cut(own.text, "\n"); strings.TrimSpace(first) != "#!lua name="+functions.Name || !own.IsOurs() {
		return bad(ErrBadBuild, remedy, "the text is not a build of the library %s: it begins with %.60q", functions.Name, first)
	}
	namespace := l.config.Namespace
	list, err := functions.ReadPolicies(own.text)
	code, err2 := functions.Rebuild(own.text, nil)
	if err := errors.Join(err, err2); err != nil && namespace != "" {
		return goal{}, &nodes.Error{Class: ErrBadBuild, Problem: "the policies of the build cannot be read", Remedy: "make it with functions.New", Err: err}
	}
	if text.Sorted(own.text) != own.text { // a text with policies of namespaces would have another value
		return bad(ErrBadBuild, "make it with functions.New", "the policies of the build are not in the order and form in which functions.New writes them")
	}
	for _, p := range list {
		switch found := p.Namespace(); {
		case found == namespace:
		case namespace == "":
			return bad(ErrNamespace, "deploy the policies of a namespace with Config.Namespace, and the library without them",
				"the build has the policy %s of the namespace %s", p.Name, found)
		default:
			return bad(ErrNamespace, "deploy it without the policies of others", "the build has the policy %s, which is not in the namespace %s", p.Name, namespace)
		}
	}
	return goal{own: own, values: func(joined text.Text) map[string]string {
		switch {
		case namespace == "":
			return map[string]string{"": own.text}
		case joined.Parts[""].Value == "":
			return map[string]string{namespace: text.ValueOf(list), "": code}
		}
		return map[string]string{namespace: text.ValueOf(list)}
	}}, nil
}

// newer reports whether version a comes after b in semantic versioning. It returns false if one of
// them cannot be parsed.
func newer(a, b string) bool {
	a, b = "v"+a, "v"+b
	return semver.IsValid(b) && semver.Compare(a, b) > 0 // an invalid version comes before a valid one
}
