package conformance

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Section is a difference between the embedded server and Redis, as documented in docs/offline.md.
type Section struct {
	Name     string
	Examples []Example
}

// Example is the body of a function, and the replies to a call to the function as JSON, in the
// format of Case.Run.
type Example struct{ Lua, Redis, Here string }

var example = regexp.MustCompile("(?s)```lua\n(.*?)\n```\n(?:\nRedis: `([^\n]*)`  \nHere: `([^\n]*)`\n)?")

// LoadPage returns the sections of a page. Each section must have a unique name and an example.
func LoadPage(path string) ([]Section, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var sections []Section
	names := map[string]bool{}
	for _, part := range strings.Split(string(text), "\n### ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		s := Section{Name: heading}
		for _, m := range example.FindAllStringSubmatch(body, -1) {
			s.Examples = append(s.Examples, Example{m[1], m[2], m[3]})
		}
		if names[s.Name] || len(s.Examples) == 0 {
			return nil, fmt.Errorf("%s: the section %s is duplicate or has no example", path, s.Name)
		}
		names[s.Name] = true
		sections = append(sections, s)
	}
	if len(sections) == 0 {
		return nil, fmt.Errorf("%s has no sections", path)
	}
	return sections, nil
}

// Case returns the example as a case to run.
func (e Example) Case() *Case { return &Case{Lua: strings.ReplaceAll(e.Lua, "\n", " ")} }
