package loader_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each rule of PROTOCOL.md names the function that follows it, and the comment of that function names
// the rule.
func TestRulesAreFunctions(t *testing.T) {
	code := ""
	for _, path := range slices.Concat(must[[]string](t)(filepath.Glob("*.go")), must[[]string](t)(filepath.Glob("text/*.go"))) {
		code += string(must[[]byte](t)(os.ReadFile(path)))
	}
	rules := regexp.MustCompile(`(?m)^(\d+)\. \*\*\w+\.\*\* \(\W(\w+)\W\) `).FindAllStringSubmatch(string(must[[]byte](t)(os.ReadFile("PROTOCOL.md"))), -1)
	for i, rule := range rules {
		name := rule[2]
		if rule[1] != strconv.Itoa(i+1) || !regexp.MustCompile(`(?m)^// `+name+` is rule `+rule[1]+`: [^\n]*\n(//[^\n]*\n)*func (\(\w+ \*?\w+\) )?`+name+`\(`).MatchString(code) {
			t.Errorf("rule %s: no function %s whose comment begins with %q", rule[1], name, strings.Join([]string{name, "is rule", rule[1]}, " "))
		}
	}
	if len(rules) != 12 {
		t.Errorf("PROTOCOL.md has %d rules with the name of a function", len(rules))
	}
}
