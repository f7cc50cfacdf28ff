package policies

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// File is the content of a policies.yaml. It is a plain value that goroutines may share as long as
// none changes it.
type File struct {
	Name     string // name given to Read or Parse, for messages
	Policies []Policy
}

// Policy is a policy in a file. It keeps its position for the messages of Check.
type Policy struct {
	functions.Policy
	Description string  // for people; it is not part of the build
	Costs       []int64 // largest cost of a call that should pass: none, one for all limits, or one for each

	at           *yaml.Node
	keys, limits []*yaml.Node // one for each limit; the key of a single limit is nil
}

const example = "policies:"

// Read reads a file. If the file exists but is wrong, the error is Problems. Read does not check
// the limits themselves: see File.Check.
func Read(name string) (*File, error) {
	content, err := readFile(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, content)
}

// Parse is like Read for content that was already read. name is for messages.
func Parse(name string, content []byte) (*File, error) {
	s := &source{name: name}
	file := &File{Name: name}
	if root := s.document(content, example); root != nil {
		list := s.known(root, "the file", "policies")["policies"]
		if list.value != nil {
			file.Policies = s.policies(list.value)
		}
		switch {
		case len(s.problems) > 0:
		case list.value == nil:
			s.wrong(root, "the field policies is missing; name policies below it")
		case len(file.Policies) == 0:
			s.wrong(list.key, "policies is empty; write a policy below it, as in api: 100/m. A library without policies needs no file")
		default:
			if _, err := file.Build(); err != nil { // too large, because of aliases
				s.wrong(list.key, "%s", strings.TrimPrefix(err.Error(), "functions: "))
			}
		}
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// Build returns the library text with these policies.
func (f *File) Build() (functions.Build, error) {
	list := make([]functions.Policy, len(f.Policies))
	for i, policy := range f.Policies {
		list[i] = policy.Policy
	}
	return functions.New(functions.WithPolicies(list...))
}

func (s *source) policies(n *yaml.Node) []Policy {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil // "policies:" alone
	}
	fields := s.fields(n, "policies")
	if len(fields) > functions.MostPolicies {
		s.wrong(n, "%d policies; a build has at most %d", len(fields), functions.MostPolicies)
		return nil
	}
	list := make([]Policy, 0, len(fields))
	for _, f := range fields {
		if s.full() {
			break
		}
		policy := Policy{Policy: functions.Policy{Name: f.key.Value}, at: f.key}
		before := len(s.problems)
		s.policy(&policy, f.value)
		if len(s.problems) == before { // the policy was parsed without a problem
			s.faults(policy)
		}
		list = append(list, policy)
	}
	return list
}

// faults reports what keeps a policy out of a build, at its position in the file.
func (s *source) faults(policy Policy) {
	for _, fault := range policy.Faults() {
		at := policy.at
		switch {
		case fault.Limit >= 0 && fault.Key:
			at = policy.keys[fault.Limit]
		case fault.Limit >= 0:
			at = policy.limits[fault.Limit]
		}
		s.wrong(at, "%s", fault.Text)
	}
}

// policy parses `name: limit`, or a mapping.
func (s *source) policy(policy *Policy, n *yaml.Node) {
	what := "policy " + policy.Name
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		s.limit(policy, nil, n)
		return
	}
	before := len(s.problems)
	fields := s.known(n, what, "description", "limit", "limits", "cost", "shadow", "track")
	if f, ok := fields["description"]; ok {
		policy.Description = s.text(f.value, "the description")
	}
	if f, ok := fields["shadow"]; ok {
		policy.Shadow = s.flag(f.value, "shadow")
	}
	if f, ok := fields["track"]; ok {
		policy.Track = s.flag(f.value, "track")
	}
	one, several := fields["limit"], fields["limits"]
	switch {
	case one.value != nil && several.value != nil:
		s.wrong(several.key, "%s has limit and limits; keep one of them", what)
	case one.value != nil:
		s.limit(policy, nil, one.value)
	case several.value != nil:
		s.limits(policy, several.value)
	case len(s.problems) == before:
		s.wrong(n, "%s has no limit; write limit: 100/m, or limits: and a list", what)
	}
	if f, ok := fields["cost"]; ok {
		s.costs(policy, f.value)
	}
}

// limits parses a list of `key: limit`. It is a list rather than a mapping because callers give the
// keys in this order.
func (s *source) limits(policy *Policy, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		s.wrong(n, "limits is a mapping, which has no order; make it a list, each limit with a dash, as in - consumer: 100/m")
		return
	}
	items := s.items(n, "limits")
	for _, item := range items {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			s.wrong(item, "a limit of several is %s; write the name of its key and the limit, as in consumer: 100/m", kind(item))
			continue
		}
		s.limit(policy, resolve(item.Content[0]), resolve(item.Content[1]))
	}
}

func (s *source) limit(policy *Policy, key, value *yaml.Node) {
	name := ""
	if key != nil {
		name = s.text(key, "the name of a key")
	}
	policy.Limits = append(policy.Limits, functions.PolicyLimit{Key: name, Limit: strings.TrimSpace(s.text(value, "a limit"))})
	policy.keys = append(policy.keys, key)
	policy.limits = append(policy.limits, value)
}

// costs parses `cost: 5` or `cost: [5, 1]`.
func (s *source) costs(policy *Policy, n *yaml.Node) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = s.items(n, "cost")
		if len(items) != len(policy.Limits) {
			s.wrong(n, "%d costs and %d limits; give one cost for all, or one for each", len(items), len(policy.Limits))
			return
		}
	}
	for _, item := range items {
		policy.Costs = append(policy.Costs, s.number(item, "a cost", 0))
	}
}

// largest is 2^53, the largest number that the library accepts.
const largest = 1 << 53

// number returns a whole number in decimal digits.
func (s *source) number(n *yaml.Node, what string, from int64) int64 {
	n = resolve(n)
	number, err := strconv.ParseUint(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || number > largest || number < uint64(from) {
		s.wrong(n, "%s is %s; give a whole number from %d to %d", what, kind(n), from, largest)
		return from
	}
	return int64(number)
}
