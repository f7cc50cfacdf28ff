package policies

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// TestFile is a file of unit tests for the policies of one File: calls at given times, and their
// expected replies. docs/policies.md describes its format. A TestFile does not change after it is
// made, and several goroutines may run it at the same time.
type TestFile struct {
	Name     string
	Policies *File

	tests []test
}

type test struct {
	name  string
	at    *yaml.Node
	start time.Time
	calls []call
}

// call is one call of a test, made `times` times in a row.
type call struct {
	at     *yaml.Node
	after  time.Duration // time since the start of the test
	verb   string
	policy *Policy // nil for reset, block and unblock
	keys   []string
	lease  string
	costs  []string
	upTo   bool          // costs has the most units to take
	span   time.Duration // duration of block
	times  int64
	expect []expectation
}

// expectation is one expected field.
type expectation struct {
	at    *yaml.Node // the value
	field string
	want  int64  // a boolean as 1 or 0, a duration in ms (never: -1), or a number
	text  string // text of error, or the value as it was written
	count bool   // want is how many calls are allowed
}

// The arguments that each verb takes besides its keys.
var verbs = map[string]struct{ policy, lease, cost, upTo, span bool }{
	"take": {policy: true, cost: true, upTo: true}, "peek": {policy: true, cost: true, upTo: true}, "refund": {policy: true, cost: true},
	"acquire": {policy: true, lease: true}, "renew": {policy: true, lease: true}, "release": {policy: true, lease: true},
	"reset": {}, "block": {span: true}, "unblock": {},
}

var verbNames = []string{"take", "peek", "refund", "acquire", "renew", "release", "reset", "block", "unblock"}

// Limits for the times of one call, and for the calls of one file, because aliases can make a small
// file expand to a huge one.
const (
	mostTimes = 1_000_000
	mostCalls = 10_000_000
)

// ReadTests reads a file of tests and the policies file that it names, relative to itself. If one
// of the two files exists but is wrong, or one of the limits is, the error is Problems.
func ReadTests(name string) (*TestFile, error) {
	content, err := readFile(name)
	if err != nil {
		return nil, err
	}
	s := &source{name: name}
	file := &TestFile{Name: name}
	root := s.document(content, "policies: policies.yaml")
	if root == nil {
		return nil, s.err()
	}
	fields := s.known(root, "the file", "policies", "tests")
	policies, tests := fields["policies"], fields["tests"]
	if len(s.problems) == 0 && policies.value == nil {
		s.wrong(root, "the field policies is missing; name the file with the policies, relative to this one")
	}
	if len(s.problems) == 0 && tests.value == nil {
		s.wrong(root, "the field tests is missing; list the tests below it")
	}
	path := ""
	if len(s.problems) == 0 {
		path = s.text(policies.value, "policies")
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(name), path)
	}
	if file.Policies, err = Read(path); err != nil {
		return nil, err
	}
	found, err := file.Policies.Check()
	if err != nil {
		return nil, err
	}
	if len(found.Wrong) > 0 {
		return nil, found.Wrong
	}
	file.tests = s.tests(tests.value, file.Policies)
	if err := s.err(); err != nil {
		return nil, err
	}
	return file, nil
}

func (s *source) tests(n *yaml.Node, file *File) []test {
	var list []test
	named := map[string]*Policy{}
	for i := range file.Policies {
		named[file.Policies[i].Name] = &file.Policies[i]
	}
	calls := int64(0)
	items := s.items(n, "tests")
	if len(items) == 0 && len(s.problems) == 0 {
		s.wrong(n, "there is no test; a file without tests proves nothing")
	}
	for _, item := range items {
		if s.full() {
			break
		}
		fields := s.known(item, "a test", "name", "start", "calls")
		t := test{at: item, start: startOfTests}
		if f, ok := fields["name"]; ok {
			t.name = s.text(f.value, "the name")
		} else {
			s.wrong(item, "a test without a name; say what it shows")
		}
		if f, ok := fields["start"]; ok {
			t.start = s.time(f.value)
		}
		var steps []*yaml.Node
		if f, ok := fields["calls"]; ok {
			steps = s.items(f.value, "calls")
		}
		if len(steps) == 0 && !s.full() {
			s.wrong(item, "the test has no calls; list them below calls:")
		}
		after := time.Duration(0)
		for _, at := range steps {
			c := s.call(at, after, named, file.Name)
			after = c.after
			if calls += c.times; calls > mostCalls {
				s.wrong(at, "with this the file makes more than %d calls; give fewer times, or split the file", mostCalls)
				return nil
			}
			t.calls = append(t.calls, c)
		}
		list = append(list, t)
	}
	return list
}

// time parses a time. The library's states hold 16 digits of microseconds, so times begin after
// 2001.
func (s *source) time(n *yaml.Node) time.Time {
	text := s.text(n, "the start")
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 2002 || t.Year() > 2200 {
		s.wrong(n, "the start is %s; write a time of the years 2002 to 2200, such as 2026-01-01T00:00:00Z", shown(text))
		return startOfTests
	}
	return t
}

// call parses one entry of calls. before is the time of the preceding call.
func (s *source) call(n *yaml.Node, before time.Duration, policies map[string]*Policy, file string) call {
	c := call{at: n, after: before, times: 1}
	fields := s.known(n, "a call", append([]string{"at", "cost", "up_to", "for", "times", "expect"}, verbNames...)...)
	for _, verb := range verbNames {
		if f, ok := fields[verb]; ok {
			if c.verb != "" {
				s.wrong(f.key, "a call is one thing, and this one is %s and %s", c.verb, verb)
				return c
			}
			c.verb = verb
		}
	}
	if c.verb == "" {
		if len(fields) > 0 {
			s.wrong(n, "a call that calls nothing; give it one of %s", strings.Join(verbNames, ", "))
		}
		return c
	}
	if f, ok := fields["at"]; ok {
		c.after = s.span(f.value, "at")
		if c.after < before {
			s.wrong(f.value, "at %s is before the call above, at %s; time goes on", f.value.Value, spanText(before.Milliseconds()))
			c.after = before
		}
	}
	takes := verbs[c.verb]
	s.words(&c, fields[c.verb].value, policies, file)
	if f, ok := fields["cost"]; ok {
		if !takes.cost {
			s.wrong(f.key, "%s has no cost", c.verb)
		}
		c.costs = s.callCosts(f.value)
	}
	if f, ok := fields["up_to"]; ok {
		switch {
		case !takes.upTo:
			s.wrong(f.key, "%s has no up_to", c.verb)
		case c.costs != nil:
			s.wrong(f.key, "a call has cost, all or nothing, or up_to, as many as fit, and this one has both")
		}
		c.costs, c.upTo = []string{strconv.FormatInt(s.number(f.value, "up_to", 0), 10)}, true
	}
	f, ok := fields["for"]
	switch {
	case ok && !takes.span:
		s.wrong(f.key, "for is how long block denies the keys; %s has none", c.verb)
	case ok:
		c.span = s.span(f.value, "for")
	case takes.span:
		s.wrong(n, "block without for; say how long, as in for: 10m")
	}
	if f, ok := fields["times"]; ok {
		c.times = s.number(f.value, "times", 1)
		if c.times > mostTimes {
			s.wrong(f.value, "times is %d; give at most %d", c.times, mostTimes)
		}
	}
	if f, ok := fields["expect"]; ok {
		c.expect = s.expectations(f.value, &c)
	}
	return c
}

// words parses [policy, key, ..., lease id], as far as the verb takes them.
func (s *source) words(c *call, n *yaml.Node, policies map[string]*Policy, file string) {
	takes := verbs[c.verb]
	form := "keys"
	if takes.policy {
		form = "policy, key"
	}
	if takes.lease {
		form = "policy, key, lease id"
	}
	var words []string
	items := s.items(n, c.verb)
	for _, item := range items {
		words = append(words, s.text(item, "a part of "+c.verb))
	}
	least := 1 + strings.Count(form, ",")
	if len(words) < least {
		if n := resolve(n); n.Kind == yaml.SequenceNode {
			s.wrong(n, "%s takes a list of %s, and this one has %d", c.verb, form, len(words))
		}
		return
	}
	if takes.lease {
		c.lease = words[len(words)-1]
		words = words[:len(words)-1]
	}
	if takes.policy {
		c.policy = policies[strings.TrimPrefix(words[0], "@")]
		if c.policy == nil {
			s.wrong(items[0], "no policy %s in %s%s", shown(words[0]), file, namesOf(policies))
		}
		words = words[1:]
	}
	c.keys = words
}

// namesOf lists the existing policies, if they are few.
func namesOf(policies map[string]*Policy) string {
	if len(policies) == 0 || len(policies) > 10 {
		return ""
	}
	var names []string
	for name := range policies {
		names = append(names, name)
	}
	slices.Sort(names)
	return "; there are " + strings.Join(names, ", ")
}

func (s *source) callCosts(n *yaml.Node) []string {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = s.items(n, "cost")
	}
	var costs []string
	for _, item := range items {
		s.number(item, "a cost", 0)
		costs = append(costs, item.Value)
	}
	return costs
}

func (s *source) span(n *yaml.Node, what string) time.Duration {
	text := s.text(n, what)
	d, err := span.Parse(text)
	if err != nil && text != "" {
		s.wrong(n, "%s: %v", what, err)
	}
	return d
}
