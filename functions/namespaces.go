package functions

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// namespaceName matches a namespace: the part of a policy's name before the slash, such as
// "payments" in "payments/api". Each team deploys the policies of its own namespace. The owner of
// the library deploys the policies without a namespace.
var namespaceName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// CheckNamespace returns an error unless name is a valid namespace.
func CheckNamespace(name string) error {
	if namespaceName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("the namespace %q is not 1 to 64 of a-z 0-9 _ . -, with a letter or a digit at the beginning", cut(name))
}

// Namespace returns the policy's namespace, or "" if it has none.
func (p Policy) Namespace() string {
	namespace, _, found := strings.Cut(p.Name, "/")
	if !found {
		return ""
	}
	return namespace
}

// Rebuild returns a library's source code with the given policies instead of its own. It accepts
// any code that New built, even in another version, and changes only the policies and the build ID.
// If the policies are the code's own, the result is the same code.
func Rebuild(text string, policies []Policy) (string, error) {
	begin, _, end, ok := cutPolicies(text)
	if !ok {
		return "", errNoPolicies
	}
	head, rest, found := strings.Cut(begin, "\n"+buildIDBegin)
	_, tail, closed := strings.Cut(rest, "'")
	if !found || !closed {
		return "", errors.New("functions: the text has no build ID in the form that New writes")
	}
	head += "\n" + buildIDBegin
	_, entries, err := bake(policies, mostText-len(head)-len(buildIDMark)-len(tail)-len(end)-1)
	if err != nil {
		return "", err
	}
	tail = "'" + tail + entries + end
	id := Digest(head + buildIDMark + tail)[:12]
	return head + id + tail, nil
}

// cutPolicies splits a library's source code into the parts before, in, and after the table of
// policies.
func cutPolicies(text string) (begin, table, end string, ok bool) {
	begin, rest, found := strings.Cut(text, "\n"+policiesBegin)
	if !found {
		return "", "", "", false
	}
	begin += "\n" + policiesBegin
	if strings.HasPrefix(rest, "}\n") {
		return begin, "", rest, true
	}
	table, _, found = strings.Cut(rest, "\n}\n")
	if !found || !strings.HasPrefix(table, "\n") {
		return "", "", "", false
	}
	return begin, table[1:], rest[len(table)+1:], true
}
