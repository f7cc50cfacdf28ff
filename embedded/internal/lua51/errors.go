package lua51

import (
	"regexp"
	"strings"
)

// rewordings turn the messages of gopher-lua's machine into those of PUC.
// They are anchored at the end, after the position.
var rewordings = []struct {
	re   *regexp.Regexp
	with func(m []string) string
}{
	{regexp.MustCompile(`cannot perform \w+ operation between (\w+) and (\w+)$`), func(m []string) string {
		bad := m[1]
		if bad == "number" || bad == "string" {
			bad = m[2]
		}
		return "attempt to perform arithmetic on a " + bad + " value"
	}},
	{regexp.MustCompile(`attempt to compare (\w+) with (\w+)$`), func(m []string) string {
		if m[1] == m[2] {
			return "attempt to compare two " + m[1] + " values"
		}
		return m[0]
	}},
	{regexp.MustCompile(`attempt to call a non-function object$`), func([]string) string {
		return "attempt to call a table value"
	}},
	{regexp.MustCompile(`__unm undefined$`), func([]string) string {
		return "attempt to perform arithmetic on a table value"
	}},
	{regexp.MustCompile(`__len undefined$`), func([]string) string {
		return "attempt to get length of a userdata value"
	}},
	{regexp.MustCompile(`(?s)attempt to index a non-table object\((\w+)\) with key '.*'$`), func(m []string) string {
		return "attempt to index a " + m[1] + " value"
	}},
	{regexp.MustCompile(`too many recursions in (gettable|settable)$`), func(m []string) string {
		return "loop in " + m[1]
	}},
	{regexp.MustCompile(`registry overflow$`), func([]string) string { return "stack overflow" }},
}

func rewordError(s string) string {
	if !strings.Contains(s, "attempt to ") && !strings.Contains(s, "cannot perform") &&
		!strings.Contains(s, "undefined") && !strings.Contains(s, "recursions") && !strings.Contains(s, "overflow") {
		return s
	}
	for _, r := range rewordings {
		if i := r.re.FindStringSubmatchIndex(s); i != nil {
			return s[:i[0]] + r.with(r.re.FindStringSubmatch(s))
		}
	}
	return s
}
