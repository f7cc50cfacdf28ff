package policies

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// File is the content of a policies.yaml. Goroutines may share it as long as none modifies it.
type File struct {
	Name     string // name given to Read or Parse, for messages
	Policies []Policy
}

// Policy is a policy in a file. It keeps its position, for the messages of Check.
type Policy struct {
	functions.Policy
	Description string  // for people; it is not part of the build
	Costs       []int64 // largest cost of a call that should be allowed: none, one for all limits, or one for each

	at           *yaml.Node
	keys, limits []*yaml.Node // one for each limit; the key of a single limit is nil
}

// Read reads a file. If the file exists but is invalid, the error is of type Problems. Read checks
// the limits only if the file has other problems; otherwise File.Check does so.
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
	if root := s.document(content, "policies:"); root != nil {
		var f struct {
			Policies *yaml.Node `yaml:"policies"`
		}
		given := s.decode(root, "the file", &f)["policies"]
		if f.Policies != nil {
			file.Policies = s.policies(f.Policies)
		}
		switch {
		case f.Policies == nil && root.Kind == yaml.MappingNode: // policies that are not indented are fields of the file
			s.problems = nil
			s.wrong(root, "the field policies is missing; a policies file begins with policies:, and the policies are indented below it")
		case len(s.problems) > 0:
			s.refused(file)
		case len(file.Policies) == 0:
			s.wrong(given.key, "policies is empty; write a policy below it, as in api: 100/m. A library without policies needs no file")
		default:
			if _, err := file.Build(); err != nil { // aliases made it too large
				s.wrong(given.key, "%s", strings.TrimPrefix(err.Error(), "functions: "))
			}
		}
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// refused adds the problems of limits that the library refuses, so that the user sees them together
// with the other problems of the file.
func (s *source) refused(file *File) {
	if _, err := file.Build(); err != nil || len(file.Policies) == 0 {
		return
	}
	if found, err := file.Check(); err == nil {
		for _, problem := range found.Wrong {
			s.wrong(&yaml.Node{Line: problem.Line, Column: problem.Column}, "%s", problem.Text)
		}
	}
}

// Build returns the library text with these policies.
func (f *File) Build() (functions.Build, error) {
	list := make([]functions.Policy, len(f.Policies))
	for i, policy := range f.Policies {
		list[i] = policy.Policy
	}
	return functions.New(functions.WithPolicies(list...))
}

// policies decodes the policies. It leaves out those that have a problem.
func (s *source) policies(n *yaml.Node) []Policy {
	if null(n) {
		return nil // "policies:" alone
	}
	entries := s.entries(n, "policies")
	if len(entries) > functions.MostPolicies {
		s.wrong(n, "%d policies; a build has at most %d", len(entries), functions.MostPolicies)
		return nil
	}
	list := make([]Policy, 0, len(entries))
	for _, e := range entries {
		before := len(s.problems)
		policy := s.policy(e)
		if len(s.problems) == before {
			s.faults(policy)
		}
		if len(s.problems) == before {
			list = append(list, policy)
		}
	}
	return list
}

// faults records the reasons why a build cannot contain a policy, at their positions in the file.
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

// policy decodes `name: limit`, or a mapping.
func (s *source) policy(e entry) Policy {
	policy := Policy{Policy: functions.Policy{Name: e.key.Value}, at: e.key}
	if e.value.Kind == yaml.ScalarNode && !null(e.value) {
		s.limit(&policy, nil, e.value)
		return policy
	}
	var f struct {
		Description string     `yaml:"description"`
		Limit       *yaml.Node `yaml:"limit limits"`
		Costs       []int64    `yaml:"cost"`
		Shadow      bool       `yaml:"shadow"`
		Track       bool       `yaml:"track"`
	}
	what := "policy " + policy.Name
	before := len(s.problems)
	given := s.decode(e.value, what, &f)
	policy.Description, policy.Costs, policy.Shadow, policy.Track = f.Description, f.Costs, f.Shadow, f.Track
	switch _, several := given["limits"]; {
	case several:
		s.limits(&policy, f.Limit)
	case f.Limit != nil:
		s.limit(&policy, nil, f.Limit)
	case len(s.problems) == before:
		s.wrong(e.value, "%s has no limit; write limit: 100/m, or limits: and a list", what)
	}
	if cost, ok := given["cost"]; ok && cost.value.Kind == yaml.SequenceNode && len(s.problems) == before && len(f.Costs) != len(policy.Limits) {
		s.wrong(cost.value, "the number of costs is %d and the number of limits %d; give one cost for all, or one for each", len(f.Costs), len(policy.Limits))
	}
	return policy
}

// limits decodes a list of `key: limit`. It is a list rather than a mapping because callers give the
// keys in this order.
func (s *source) limits(policy *Policy, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		s.wrong(n, "limits is a mapping, which has no order; make it a list, as in - consumer: 100/m")
		return
	}
	for _, item := range s.items(n, "limits") {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			s.wrong(item, "an item of limits is %s; write the name of its key and the limit, as in consumer: 100/m", kind(item))
			continue
		}
		if pair := s.contents(item, yaml.MappingNode, "", ""); pair != nil {
			s.limit(policy, pair[0], pair[1])
		}
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
