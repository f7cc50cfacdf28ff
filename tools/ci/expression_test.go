package ci

import (
	"regexp"
	"strings"
	"testing"
)

// lookup returns the value of a name such as inputs.policies. Like GitHub, it returns "" for a name
// that is not set.
type lookup func(name string) string

var marked = regexp.MustCompile(`\$\{\{(.*?)\}\}`)

// expand replaces the expressions in text by their values.
func expand(t *testing.T, text string, get lookup) string {
	t.Helper()
	return marked.ReplaceAllStringFunc(text, func(found string) string {
		return evaluate(t, marked.FindStringSubmatch(found)[1], get)
	})
}

// evaluate evaluates an expression of GitHub's language. It supports what our files use: names,
// strings, ||, == and !=, success() and failure().
func evaluate(t *testing.T, expression string, get lookup) string {
	t.Helper()
	if left, right, found := strings.Cut(expression, "||"); found {
		if value := evaluate(t, left, get); value != "" && value != "false" {
			return value
		}
		return evaluate(t, right, get)
	}
	if left, right, found := strings.Cut(expression, "=="); found {
		return word(evaluate(t, left, get) == evaluate(t, right, get))
	}
	if left, right, found := strings.Cut(expression, "!="); found {
		return word(evaluate(t, left, get) != evaluate(t, right, get))
	}
	expression = strings.TrimSpace(expression)
	if text, found := strings.CutPrefix(expression, "'"); found {
		return strings.TrimSuffix(text, "'")
	}
	if !regexp.MustCompile(`^[a-zA-Z][a-zA-Z_.-]*(\(\))?$`).MatchString(expression) {
		t.Fatalf("this expression is not understood here: %s", expression)
	}
	return get(expression)
}

func word(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func expandAll(t *testing.T, values map[string]string, get lookup) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, value := range values {
		all[name] = expand(t, value, get)
	}
	return all
}
