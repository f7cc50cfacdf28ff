package policies

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/internal/span"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// TestFile is a file of unit tests for the policies of one File: calls at given times, and their
// expected replies. docs/policies.md describes its format. A TestFile is safe for concurrent use.
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

// call is one call in a test, made `times` times in a row.
type call struct {
	at     *yaml.Node
	after  time.Duration // time since the start of the test
	verb   string
	policy *Policy // nil for the verbs that take only keys
	keys   []string
	lease  string
	costs  []int64
	upTo   bool          // costs contains the maximum number of units to take
	force  bool          // the cost is charged even if it does not fit
	floor  *int64        // the percentage that the call keeps free; nil if it gives none
	class  string        // the class of the call, or ""
	paid   int64         // who paid for what a refund gives back: 1 or 2; 0 if the call does not say
	side   string        // "canary" or "policy"; "" if the key selects the side
	limit  string        // limit of override
	span   time.Duration // duration of block or override
	times  int64
	expect []expectation
}

type expectation struct {
	at    *yaml.Node // the value
	field string
	key   string // name of the key if the expectation is in the field "each"; otherwise ""
	index int64  // number of this key, from 1
	want  int64  // a number, a duration in ms (-1 for never), or 1 for true and 0 for false
	text  string // the beginning of an error
	count bool   // whether want is the number of allowed calls
}

// verbs lists what each verb takes besides its keys, and whether its reply can have EACH. A verb
// with "changed" returns the number of changed keys instead of a decision.
var verbs = map[string][]string{
	"take": {"policy", "canary", "cost", "up_to", "force", "floor", "class", "each"}, "peek": {"policy", "canary", "cost", "up_to", "floor", "class", "each"},
	"refund":  {"policy", "canary", "cost", "paid", "each"},
	"acquire": {"policy", "canary", "lease", "floor", "class"}, "renew": {"policy", "canary", "lease"}, "release": {"policy", "canary", "lease", "changed"},
	"reset": {"changed"}, "block": {"for", "changed"}, "unblock": {"changed"},
	"override": {"limit", "for", "changed"}, "override_end": {"changed"},
}

// has reports whether verbs lists the property for the call's verb.
func (c *call) has(property string) bool { return slices.Contains(verbs[c.verb], property) }

// maxTimes limits how often one call is repeated, and maxCalls the number of calls in one file,
// because aliases can make a small file expand to a huge one.
const (
	maxTimes = 1_000_000
	maxCalls = 10_000_000
)

// ReadTests reads a file of tests and the policies files that it names. Their names are relative to
// the file of tests. If namespace is not "", the policies get the names that they have in a
// deployment of the namespace. If a file exists but is invalid, or if a limit is invalid, the error
// is of type Mistakes.
func ReadTests(name, namespace string) (*TestFile, error) {
	content, err := yamlfile.ReadFile(name, maxBytes)
	if err != nil {
		return nil, err
	}
	s := newSource(name)
	file := &TestFile{Name: name}
	root := s.Document(content, "policies: policies.yaml")
	if root == nil {
		return nil, s.Err()
	}
	var f struct {
		Policies *yaml.Node `yaml:"policies"`
		Tests    *yaml.Node `yaml:"tests"`
	}
	s.Decode(root, "the file", &f)
	var paths []string
	switch {
	case len(s.Mistakes) > 0:
	case f.Policies == nil:
		s.Wrong(root, "the field policies is missing; name the file with the policies, relative to this one")
	case f.Tests == nil && f.Policies.Kind == yaml.MappingNode:
		s.Wrong(root, "this is a file of policies; name its tests, such as policies_test.yaml")
	case f.Tests == nil:
		s.Wrong(root, "the field tests is missing; list the tests below it")
	case f.Policies.Kind == yaml.SequenceNode:
		for _, item := range s.Items(f.Policies, "policies") {
			paths = append(paths, s.Text(item, "an item of policies"))
		}
		if len(paths) == 0 {
			s.Wrong(f.Policies, "policies is an empty list; name the file with the policies, relative to this one")
		}
	default:
		paths = []string{s.Text(f.Policies, "policies")}
	}
	if slices.Contains(paths, "") && len(s.Mistakes) == 0 {
		s.Wrong(f.Policies, "policies has an empty name; name the file with the policies, relative to this one")
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	for i, path := range paths {
		if !filepath.IsAbs(path) {
			paths[i] = filepath.Join(filepath.Dir(name), path)
		}
	}
	if file.Policies, err = Read(paths...); err != nil {
		return nil, err
	}
	if file.Policies, err = file.Policies.In(namespace); err != nil {
		return nil, err
	}
	file.tests = s.tests(f.Tests, file.Policies)
	if err := s.Err(); err != nil {
		return nil, err
	}
	found, err := file.Policies.Findings()
	if err != nil {
		return nil, err
	}
	if len(found.Wrong) > 0 {
		return nil, found.Wrong
	}
	return file, nil
}

func (s *source) tests(n *yaml.Node, file *File) []test {
	policies := map[string]*Policy{}
	for i := range file.Policies { // test files name policies without the namespace
		_, name, inNamespace := strings.Cut(file.Policies[i].Name, "/")
		if !inNamespace {
			name = file.Policies[i].Name
		}
		policies[name] = &file.Policies[i]
	}
	items := s.Items(n, "tests")
	if len(items) == 0 && len(s.Mistakes) == 0 {
		s.Wrong(n, "the file has no tests; add one")
	}
	var list []test
	calls := int64(0)
	for _, item := range items {
		if s.Full() {
			break
		}
		var f struct {
			Name  string       `yaml:"name"`
			Start *yaml.Node   `yaml:"start"`
			Calls []*yaml.Node `yaml:"calls"`
		}
		if _, ok := s.Decode(item, "a test", &f)["name"]; !ok {
			s.Wrong(item, "the test has no name; give it one")
		}
		t := test{name: f.Name, at: item, start: startOfTests}
		if f.Start != nil {
			t.start = s.time(f.Start)
		}
		if len(f.Calls) == 0 && !s.Full() {
			s.Wrong(item, "the test has no calls; list them below calls:")
		}
		after := time.Duration(0)
		for _, at := range f.Calls {
			c := s.call(at, after, policies, file.Name)
			after = c.after
			if calls += c.times; calls > maxCalls {
				s.Wrong(at, "with this call the file makes more than %d calls; give fewer times, or split the file", maxCalls)
				return nil
			}
			t.calls = append(t.calls, c)
		}
		list = append(list, t)
	}
	return list
}

// time parses a time. The library's states hold times as 16 digits of microseconds, so times before
// 2002 are refused.
func (s *source) time(n *yaml.Node) time.Time {
	t, err := time.Parse(time.RFC3339Nano, n.Value)
	if err != nil || t.Year() < 2002 || t.Year() > 2200 {
		s.Wrong(n, "start is %s; write a time of the years 2002 to 2200, such as 2026-01-01T00:00:00Z", yamlfile.Kind(n))
		return startOfTests
	}
	return t
}

// call decodes one element of the field calls. before is the time of the previous call.
func (s *source) call(n *yaml.Node, before time.Duration, policies map[string]*Policy, file string) call {
	var f struct {
		At     time.Duration `yaml:"at"`
		Costs  []int64       `yaml:"cost up_to"`
		Force  bool          `yaml:"force"`
		Floor  *yaml.Node    `yaml:"floor"`
		Class  string        `yaml:"class"`
		Paid   *yaml.Node    `yaml:"paid"`
		Canary bool          `yaml:"canary"`
		Limit  string        `yaml:"limit"`
		For    time.Duration `yaml:"for"`
		Times  int64         `yaml:"times"`
		Expect *yaml.Node    `yaml:"expect"`
		Words  []*yaml.Node  `yaml:"take peek refund acquire renew release reset block unblock override override_end"`
	}
	given := s.Decode(n, "a call", &f)
	c := call{at: n, after: before, costs: f.Costs, force: f.Force, class: f.Class, limit: f.Limit, span: f.For, times: 1}
	for verb := range verbs {
		if _, ok := given[verb]; ok {
			c.verb = verb
		}
	}
	if c.verb == "" {
		if len(given) > 0 {
			s.Wrong(n, "the call has no function; add one, as in take: [policy, key]")
		}
		return c
	}
	for _, field := range []string{"canary", "cost", "up_to", "force", "floor", "class", "paid", "limit", "for"} {
		if e, ok := given[field]; ok && !c.has(field) {
			s.Wrong(e.Key, "%s takes no %s", c.verb, field)
		}
	}
	if at, ok := given["at"]; ok {
		if c.after = f.At; c.after < before {
			s.Wrong(at.Value, "at: %s is before the previous call, at %s", at.Value.Value, span.Text(before))
			c.after = before
		}
	}
	upTo, ok := given["up_to"]
	if c.upTo = ok; ok && upTo.Value.Kind == yaml.SequenceNode {
		s.Number(upTo.Value, "up_to")
	}
	if ok && c.force {
		s.Wrong(given["force"].Key, "a call has up_to and force; keep one of them")
	}
	if f.Floor != nil {
		floor := s.Number(f.Floor, "floor")
		c.floor = &floor
	}
	if e, ok := given["class"]; ok && c.class == "" && e.Value.Kind == yaml.ScalarNode {
		s.Wrong(e.Value, "class is empty; write the name of a class, or leave the field out")
	}
	for _, pair := range [][2]string{{"floor", "class"}, {"floor", "force"}, {"class", "force"}} {
		if e, ok := given[pair[0]]; ok && given[pair[1]].Key != nil && (pair[1] == "class" || c.force) {
			s.Wrong(e.Key, "a call has %s and %s; keep one of them", pair[0], pair[1])
		}
	}
	if _, ok := given["for"]; !ok && c.has("for") {
		s.Wrong(n, "%s needs a duration, as in for: 10m", c.verb)
	}
	if _, ok := given["limit"]; !ok && c.has("limit") {
		s.Wrong(n, "%s needs a limit, as in limit: 500/m", c.verb)
	}
	if times, ok := given["times"]; ok {
		if c.times = f.Times; c.times < 1 || c.times > maxTimes {
			s.Wrong(times.Value, "times is %s; give a whole number from 1 to %d", yamlfile.Kind(times.Value), maxTimes)
			c.times = 1
		}
	}
	s.words(&c, given[c.verb].Value, f.Words, policies, file)
	if f.Paid != nil {
		c.paid = s.index(f.Paid, "paid", &c)
	}
	if e, ok := given["canary"]; ok {
		c.side = map[bool]string{true: "canary", false: "policy"}[f.Canary]
		if c.policy != nil && c.policy.Canary == nil {
			s.Wrong(e.Key, "policy %s has no canary; leave the field out", c.policy.Name)
		}
	}
	if f.Expect != nil {
		c.expect = s.expectations(f.Expect, &c)
	}
	return c
}

// words decodes the arguments of a verb, which are policy, keys and lease ID.
func (s *source) words(c *call, n *yaml.Node, items []*yaml.Node, policies map[string]*Policy, file string) {
	form := "keys"
	switch {
	case c.has("lease"):
		form = "policy, key, lease id"
	case c.has("policy"):
		form = "policy, key"
	}
	var words []string
	for _, item := range items {
		words = append(words, s.Text(item, "an item of "+c.verb))
	}
	if len(words) < 1+strings.Count(form, ",") {
		if n.Kind == yaml.SequenceNode {
			s.Wrong(n, "%s needs a list of %s, and this one has %d", c.verb, form, len(words))
		}
		return
	}
	if c.has("lease") {
		c.lease = words[len(words)-1]
		words = words[:len(words)-1]
	}
	if c.has("policy") {
		c.policy = policies[strings.TrimPrefix(words[0], "@")]
		if c.policy == nil {
			names := slices.Sorted(maps.Keys(policies))
			text := ""
			if len(names) <= 10 {
				text = "; it has " + strings.Join(names, ", ")
			}
			s.Wrong(items[0], "no policy %s in %s%s", yamlfile.Shown(words[0]), file, text)
		}
		words = words[1:]
	}
	c.keys = words
}
