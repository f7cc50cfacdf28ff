package policies

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// File is what a policies.yaml holds. It is a plain value: share it as long as nobody changes it.
type File struct {
	Name     string // as it was given to Read or Parse, for messages
	Policies []Policy
}

// Policy is a policy as it stands in a file. Where it stands is kept for the messages of Check.
type Policy struct {
	functions.Policy
	Description string  // for people; it is not part of the build
	Costs       []int64 // the largest cost of a call that is meant to pass: none, one for all limits, or one for each

	at     *yaml.Node
	limits []*yaml.Node
}

const example = "policies:"

// Read reads a file. The error is Problems if the file is there, and wrong. What the limits say is not looked at: see
// File.Check.
func Read(name string) (*File, error) {
	content, err := readFile(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, content)
}

// Parse is Read for what was read already. name is for messages.
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
			if _, err := file.Build(); err != nil { // too large, through aliases
				s.wrong(list.key, "%s", strings.TrimPrefix(err.Error(), "functions: "))
			}
		}
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// Build makes the library text that has these policies.
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
		s.named(f.key, "policy")
		policy := Policy{Policy: functions.Policy{Name: f.key.Value}, at: f.key}
		s.policy(&policy, f.value)
		list = append(list, policy)
	}
	return list
}

// named refuses what cannot name a policy or a key.
func (s *source) named(n *yaml.Node, of string) {
	if !functions.ValidPolicyName(n.Value) {
		s.wrong(n, "the %s name %s is not 1 to 64 of a-z 0-9 _ . -", of, shown(n.Value))
	}
}

// policy reads `name: limit`, or a mapping.
func (s *source) policy(policy *Policy, n *yaml.Node) {
	what := "policy " + policy.Name
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		s.limit(policy, "", n)
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
		s.limit(policy, "", one.value)
	case several.value != nil:
		s.limits(policy, several.value)
	case len(s.problems) == before:
		s.wrong(n, "%s has no limit; write limit: 100/m, or limits: and a list", what)
	}
	if f, ok := fields["cost"]; ok {
		s.costs(policy, f.value)
	}
}

// limits reads a list of `key: limit`. It is a list, and no mapping, since callers give the keys in this order.
func (s *source) limits(policy *Policy, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		s.wrong(n, "limits is a mapping, which has no order; make it a list, each limit with a dash: - %s: ...", firstKey(n))
		return
	}
	items := s.items(n, "limits")
	if items == nil {
		return
	}
	if len(items) == 0 || len(items) > functions.MostPolicyLimits {
		s.wrong(n, "policy %s has %d limits; give it 1 to %d", policy.Name, len(items), functions.MostPolicyLimits)
		return
	}
	seen := map[string]int{}
	for _, item := range items {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			s.wrong(item, "a limit of several is %s; write the name of its key and the limit, as in consumer: 100/m", kind(item))
			continue
		}
		key, value := resolve(item.Content[0]), resolve(item.Content[1])
		s.named(key, "key")
		if line, twice := seen[key.Value]; twice {
			s.wrong(key, "the key name %s is given twice; the first is in line %d", shown(key.Value), line)
		}
		seen[key.Value] = key.Line
		s.limit(policy, key.Value, value)
	}
}

func firstKey(n *yaml.Node) string {
	if len(n.Content) > 0 && n.Content[0].Kind == yaml.ScalarNode && functions.ValidPolicyName(n.Content[0].Value) {
		return n.Content[0].Value
	}
	return "name"
}

func (s *source) limit(policy *Policy, key string, n *yaml.Node) {
	text := strings.TrimSpace(s.text(n, "a limit"))
	switch {
	case n.Kind == yaml.ScalarNode && text == "" && n.ShortTag() != "!!null":
		s.wrong(n, "an empty limit; give one such as 100/m")
	case len(text) > 1024:
		s.wrong(n, "a limit of %d bytes; it has at most 1024", len(text))
	case strings.HasPrefix(text, "@"):
		s.wrong(n, "the limit %s is a policy; a policy is made of limits such as 100/m", shown(text))
	}
	policy.Limits = append(policy.Limits, functions.PolicyLimit{Key: key, Limit: text})
	policy.limits = append(policy.limits, n)
}

// costs reads `cost: 5` or `cost: [5, 1]`.
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

// largest is 2^53, up to which the library takes numbers.
const largest = 1 << 53

// number answers a whole number in decimal digits.
func (s *source) number(n *yaml.Node, what string, from int64) int64 {
	n = resolve(n)
	number, err := strconv.ParseUint(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || number > largest || number < uint64(from) {
		s.wrong(n, "%s is %s; give a whole number from %d to %d", what, kind(n), from, largest)
		return from
	}
	return int64(number)
}
