package protocol

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// The rules have the same numbers and names in both documents and in the model, which has a comment
// where it follows a rule. Each is broken in the model's searches that the table lists.
func TestRulesAreTheSameEverywhere(t *testing.T) {
	find := func(file, pattern string) [][]string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
	}
	for _, file := range []string{"../PROTOCOL.md", "../../docs/deploying.md"} {
		found := find(file, `(?m)^([0-9]+)\. \*\*([A-Z][a-z]+)\.?\*\*`)
		if len(found) != len(rules) {
			t.Errorf("%s has %d rules, and the table has %d", file, len(found), len(rules))
		}
		for i, line := range found {
			if n := rule(i + 1); line[1] != strconv.Itoa(i+1) || line[2] != rules[n].name {
				t.Errorf("%s has the rule %s, %s; the table has %d, %s", file, line[1], line[2], n, rules[n].name)
			}
		}
	}
	followed := map[rule]bool{}
	for _, line := range find("../../tools/deployments/deployments.pml", `\brule ([0-9]+), ([A-Z][a-z]+)\b`) {
		n, _ := strconv.Atoi(line[1])
		if followed[rule(n)] = true; line[2] != rules[rule(n)].name {
			t.Errorf("the model has the rule %d, %s; the table has %q", n, line[2], rules[rule(n)].name)
		}
	}
	for n := range rules {
		if !followed[n] {
			t.Errorf("the model does not say where it follows rule %d, %s", n, rules[n].name)
		}
	}
	variants := map[rule][]string{}
	for _, line := range find("../../tools/deployments/check.sh", `(?m)^check fails "(.*) \(rule ([0-9]+)\)"`) {
		n, _ := strconv.Atoi(line[2])
		variants[rule(n)] = append(variants[rule(n)], line[1])
	}
	for n := range rules {
		if len(variants[n]) == 0 || !slices.Equal(variants[n], rules[n].variants) {
			t.Errorf("rule %d is broken in the searches %q; the table has %q", n, variants[n], rules[n].variants)
		}
	}
}
