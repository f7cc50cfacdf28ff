package policies

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/functions"

	"github.com/ratelimit-functions/ratelimit/internal/span"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// File is the content of a policies.yaml, or of several. Goroutines may share it as long as none
// modifies it.
type File struct {
	Name      string // name given to Read or Parse, for messages; several are separated by commas
	Namespace string // the namespace that the files name, or ""; In puts the policies into it
	Policies  []Policy
}

// Policy is a policy in a file, with the positions of its parts for the messages of File.Findings.
type Policy struct {
	functions.Policy
	Description string  // for display; it is not part of the build
	Costs       []int64 // largest cost of a call that should be allowed, one for all limits or one for each limit; may be empty

	// Tenants is how many callers have a guarantee, or 0 if the file does not say. It is not part of the
	// build; Findings compares the guarantees with the pool.
	Tenants int64

	file         string // name of the file, or "" if the policy is not from a file
	at           *yaml.Node
	keys, limits []*yaml.Node // one for each limit; the key of a single limit is nil
	tenantsAt    *yaml.Node   // the position of Tenants, or nil
	canary       *Policy      // the positions of the canary and of its limits; nil if there is no canary
}

// Parse is like Read, but takes the content of a file. name is for messages.
func Parse(name string, content []byte) (*File, error) {
	s := newSource(name)
	file := &File{Name: name}
	if root := s.Document(content, "policies:"); root != nil {
		var f struct {
			Namespace *yaml.Node `yaml:"namespace"`
			Policies  *yaml.Node `yaml:"policies"`
		}
		given := s.Decode(root, "the file", &f)["policies"]
		if f.Namespace != nil {
			file.Namespace = s.Text(f.Namespace, "namespace")
			if err := functions.CheckNamespace(file.Namespace); err != nil {
				s.Wrong(f.Namespace, "%s", strings.TrimPrefix(err.Error(), "functions: "))
			}
		}
		if f.Policies != nil {
			file.Policies = s.policies(f.Policies)
		}
		switch {
		case f.Policies == nil && root.Kind == yaml.MappingNode: // if the policies are not indented, they are fields of the document
			s.Mistakes = nil
			s.Wrong(root, "the field policies is missing; a policies file begins with policies:, and the policies are indented below it")
		case isTests(root):
			s.Mistakes = nil
			s.Wrong(root, "this is a file of tests; name its policies, such as policies.yaml, or run the tests with the command test")
		case len(s.Mistakes) > 0:
			s.refused(file)
		case len(file.Policies) == 0:
			s.Wrong(given.Key, "policies is empty; write a policy below it, as in api: 100/m. A library without policies needs no file")
		default:
			if _, err := file.build(); err != nil { // the build is too large because of aliases
				s.Wrong(given.Key, "%s", strings.TrimPrefix(err.Error(), "functions: "))
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

// isTests reports whether the file has the field tests. Only a file of tests has it; such a file
// may have the field policies, too.
func isTests(root *yaml.Node) bool {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "tests" {
			return root.Kind == yaml.MappingNode
		}
	}
	return false
}

// refused adds the problems of limits that the library rejects, so that the user sees them together
// with the file's other problems.
func (s *source) refused(file *File) {
	if _, err := file.build(); err != nil || len(file.Policies) == 0 {
		return
	}
	if found, err := file.Findings(); err == nil {
		for _, problem := range found.Wrong {
			s.Wrong(&yaml.Node{Line: problem.Line, Column: problem.Column}, "%s", problem.Text)
		}
	}
}

// Build checks the file's policies, and builds the library with them. If the library rejects a
// policy, the error is of type Mistakes, as in Findings.Wrong.
func (f *File) Build() (functions.Build, error) {
	found, err := f.Findings()
	if err != nil {
		return functions.Build{}, err
	}
	if len(found.Wrong) > 0 {
		return functions.Build{}, found.Wrong
	}
	return f.build()
}

// build is like Build, but checks no limits.
func (f *File) build() (functions.Build, error) {
	list := make([]functions.Policy, len(f.Policies))
	for i, policy := range f.Policies {
		list[i] = policy.Policy
	}
	return functions.New(functions.WithPolicies(list...))
}

// policies decodes the policies. It leaves out policies that have a problem.
func (s *source) policies(n *yaml.Node) []Policy {
	if yamlfile.Null(n) {
		return nil // the field "policies:" is empty
	}
	entries := s.Entries(n, "policies")
	if len(entries) > functions.MostPolicies {
		s.Wrong(n, "%d policies; a build has at most %d", len(entries), functions.MostPolicies)
		return nil
	}
	list := make([]Policy, 0, len(entries))
	for _, e := range entries {
		before := len(s.Mistakes)
		policy := s.policy(e)
		if len(s.Mistakes) == before {
			s.faults(policy)
		}
		if len(s.Mistakes) == before {
			list = append(list, policy)
		}
	}
	return list
}

// faults records the reasons why a build cannot contain a policy, at their positions in the file.
func (s *source) faults(policy Policy) {
	for _, fault := range policy.Faults() {
		of := policy
		if fault.Canary {
			of = *policy.canary
		}
		at := of.at
		switch {
		case fault.Limit >= 0 && fault.Key:
			at = of.keys[fault.Limit]
		case fault.Limit >= 0:
			at = of.limits[fault.Limit]
		}
		s.Wrong(at, "%s", fault.Text)
	}
}

// policy decodes `name: limit`, or a mapping.
func (s *source) policy(e yamlfile.Entry) Policy {
	policy := Policy{Policy: functions.Policy{Name: e.Key.Value}, file: s.Name, at: e.Key}
	if namespace, name, found := strings.Cut(policy.Name, "/"); found {
		s.Wrong(e.Key, "the policy name %s contains a slash; write %s, and name the namespace once, above policies: namespace: %s",
			yamlfile.Shown(policy.Name), yamlfile.Shown(name), namespace)
	}
	if e.Value.Kind == yaml.ScalarNode && !yamlfile.Null(e.Value) {
		s.limit(&policy, nil, e.Value)
		return policy
	}
	var f struct {
		Description string     `yaml:"description"`
		Limit       *yaml.Node `yaml:"limit limits"`
		Costs       []int64    `yaml:"cost"`
		Shadow      bool       `yaml:"shadow"`
		Track       bool       `yaml:"track"`
		Canary      *yaml.Node `yaml:"canary"`
		Classes     *yaml.Node `yaml:"classes"`
		Guarantee   *yaml.Node `yaml:"guarantee"`
		Pool        *yaml.Node `yaml:"pool"`
		Floor       *yaml.Node `yaml:"floor"`
		Tenants     *yaml.Node `yaml:"tenants"`
		Penalty     *yaml.Node `yaml:"penalty"`
		Forget      *yaml.Node `yaml:"forget"`
		Warn        *yaml.Node `yaml:"warn"`
	}
	what := "policy " + policy.Name
	before := len(s.Mistakes)
	given := s.Decode(e.Value, what, &f)
	policy.Description, policy.Costs, policy.Shadow, policy.Track = f.Description, f.Costs, f.Shadow, f.Track
	if s.guarantee(&policy, f.Guarantee, f.Pool, f.Floor, e.Value, what); !policy.Borrow {
		s.limitOrLimits(&policy, f.Limit, given)
	} else if f.Limit != nil {
		s.Wrong(e.Value, "%s has a guarantee and a limit; keep one of them", what)
	}
	if f.Limit == nil && !policy.Borrow && len(s.Mistakes) == before {
		s.Wrong(e.Value, "%s has no limit; write limit: 100/m, or limits: and a list", what)
	}
	switch {
	case f.Tenants == nil:
	case !policy.Borrow:
		s.Wrong(f.Tenants, "%s has tenants without a guarantee and a pool; tenants is the number of callers with a guarantee", what)
	default:
		before := len(s.Mistakes)
		policy.Tenants, policy.tenantsAt = s.Number(f.Tenants, "tenants"), f.Tenants
		if (policy.Tenants < 1 || policy.Tenants > 1e9) && len(s.Mistakes) == before {
			s.Wrong(f.Tenants, "tenants is %d; write how many callers have a guarantee, from 1 to 1000000000", policy.Tenants)
		}
	}
	if f.Canary != nil {
		s.canary(&policy, f.Canary, given["canary"].Key, what)
	}
	if f.Classes != nil {
		s.classes(&policy, f.Classes)
	}
	s.penalty(&policy, f.Penalty, f.Forget, what)
	if f.Warn != nil {
		before := len(s.Mistakes)
		if n := s.Number(f.Warn, "warn"); (n < 50 || n > 100) && len(s.Mistakes) == before {
			s.Wrong(f.Warn, "warn is %d; write the percentage of the limit from which on callers are warned, from 50 to 100", n)
		} else if len(s.Mistakes) == before {
			policy.Warn = int(n)
		}
	}
	if cost, ok := given["cost"]; ok && cost.Value.Kind == yaml.SequenceNode && len(s.Mistakes) == before && policy.Borrow {
		s.Wrong(cost.Value, "cost is a list; a guarantee and a pool are charged the same, so give one cost")
	} else if ok && cost.Value.Kind == yaml.SequenceNode && len(s.Mistakes) == before && len(f.Costs) != len(policy.Limits) {
		s.Wrong(cost.Value, "the number of costs is %d and the number of limits %d; give one cost for all, or one for each", len(f.Costs), len(policy.Limits))
	}
	return policy
}

// classes decodes "any", or a mapping of names to percentages.
func (s *source) classes(policy *Policy, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Value == "any" {
		policy.AnyClass = true
		return
	}
	if n.Kind != yaml.MappingNode {
		s.Wrong(n, "classes is %s; write the percentage that each class keeps free, as in {critical: 0, batch: 50}, or any", yamlfile.Kind(n))
		return
	}
	if len(n.Content) == 0 {
		s.Wrong(n, "classes is an empty mapping; leave it out, or write any")
	}
	policy.Classes = map[string]int{}
	for _, e := range s.Entries(n, "classes") {
		percent, err := strconv.Atoi(e.Value.Value)
		if e.Value.Kind != yaml.ScalarNode || e.Value.ShortTag() != "!!int" || err != nil || percent < 0 || percent > 100 {
			s.Wrong(e.Value, "the class %s is %s; write the percentage that it keeps free, from 0 to 100", yamlfile.Shown(e.Key.Value), yamlfile.Kind(e.Value))
			continue
		}
		policy.Classes[e.Key.Value] = percent
	}
}

// penalty decodes `penalty: 1m..1h` and `forget: 1d`, if a policy has them.
func (s *source) penalty(policy *Policy, penalty, forget *yaml.Node, what string) {
	switch {
	case penalty == nil && forget == nil:
		return
	case forget == nil:
		s.Wrong(penalty, "%s has a penalty without forget; write after how long a block is forgotten, as in forget: 1d", what)
		return
	case penalty == nil:
		s.Wrong(forget, "%s has forget without a penalty; write the first and the longest block, as in penalty: 1m..1h", what)
		return
	}
	first, longest, found := strings.Cut(penalty.Value, "..")
	if penalty.Kind != yaml.ScalarNode || !found {
		s.Wrong(penalty, "penalty is %s; write the first and the longest block, as in 1m..1h", yamlfile.Kind(penalty))
		return
	}
	policy.Penalty = &functions.Penalty{First: s.length(penalty, "penalty", first), Max: s.length(penalty, "penalty", longest),
		Forget: s.length(forget, "forget", s.Text(forget, "forget"))}
}

// length decodes a duration in the text of n.
func (s *source) length(n *yaml.Node, what, text string) time.Duration {
	d, err := span.Parse(text)
	if err != nil {
		s.Wrong(n, "%s: %v", what, err)
	}
	return d
}

// guarantee decodes a guarantee and a pool, if a policy or a canary has them. at is the mapping.
func (s *source) guarantee(policy *Policy, guarantee, pool, floor, at *yaml.Node, what string) {
	switch {
	case (guarantee == nil) != (pool == nil):
		s.Wrong(at, "%s has only one of guarantee and pool; write both, as in {guarantee: 80/s, pool: 1000/s, floor: 80}", what)
		return
	case guarantee == nil && floor != nil:
		s.Wrong(floor, "%s has a floor without a guarantee and a pool; for calls that leave a part to others, write classes", what)
		return
	case guarantee == nil:
		return
	}
	policy.Borrow = true
	for i, n := range []*yaml.Node{guarantee, pool} {
		s.limit(policy, nil, n)
		policy.Limits[i].Key = []string{"guarantee", "pool"}[i]
		policy.keys[i] = n
	}
	if floor != nil {
		if policy.Floor = int(s.Number(floor, "floor")); policy.Floor > 100 {
			s.Wrong(floor, "floor is %d; write the percentage of the pool that borrowers leave, from 0 to 100", policy.Floor)
		}
	}
}

// limitOrLimits decodes n, the value of the field limit or limits. n is nil if there is neither.
func (s *source) limitOrLimits(policy *Policy, n *yaml.Node, given map[string]yamlfile.Entry) {
	if _, several := given["limits"]; several {
		s.limits(policy, n)
	} else if n != nil {
		s.limit(policy, nil, n)
	}
}

// canary decodes n, the canary of a policy whose other fields are decoded already. key is the key
// of n in the policy's mapping.
func (s *source) canary(policy *Policy, n, key *yaml.Node, what string) {
	var f struct {
		Limit     *yaml.Node `yaml:"limit limits"`
		Share     *yaml.Node `yaml:"share"`
		Shadow    bool       `yaml:"shadow"`
		Guarantee *yaml.Node `yaml:"guarantee"`
		Pool      *yaml.Node `yaml:"pool"`
		Floor     *yaml.Node `yaml:"floor"`
	}
	what = "the canary of " + what
	before := len(s.Mistakes)
	given := s.Decode(n, what, &f)
	of := &Policy{at: key}
	of.Floor = policy.Floor
	if s.guarantee(of, f.Guarantee, f.Pool, f.Floor, n, what); !of.Borrow {
		s.limitOrLimits(of, f.Limit, given)
	}
	switch {
	case len(s.Mistakes) > before:
	case of.Borrow != policy.Borrow:
		s.Wrong(n, "%s: give both a guarantee and a pool, or neither", what)
	case f.Limit == nil && !of.Borrow:
		s.Wrong(n, "%s has no limit; write limit: 60/m, or limits: and a list", what)
	case f.Share == nil:
		s.Wrong(n, "%s has no share; write how many of the keys it decides over, as in share: 5%%", what)
	}
	canary := &functions.Canary{Shadow: f.Shadow, Floor: of.Floor}
	if _, ok := given["shadow"]; !ok {
		canary.Shadow = policy.Shadow
	}
	if f.Share != nil {
		canary.Share = s.share(f.Share)
	}
	for i, limit := range of.Limits {
		if i < len(policy.Limits) && limit.Key != "" && policy.Limits[i].Key != "" && limit.Key != policy.Limits[i].Key {
			s.Wrong(of.keys[i], "the canary's limit %d is for the key %s, and the policy's for %s; give the canary the same keys in the same order",
				i+1, yamlfile.Shown(limit.Key), yamlfile.Shown(policy.Limits[i].Key))
		}
		canary.Limits = append(canary.Limits, limit.Limit)
	}
	policy.Canary, policy.canary = canary, of
}

var percentage = regexp.MustCompile(`^([0-9]{1,3})(?:\.([0-9]))?%$`)

// share decodes a percentage as thousandths.
func (s *source) share(n *yaml.Node) int {
	share := 0
	if parts := percentage.FindStringSubmatch(n.Value); n.Kind == yaml.ScalarNode && parts != nil {
		share, _ = strconv.Atoi(parts[1] + cmp.Or(parts[2], "0"))
	}
	if share < 1 || share > 1000 {
		s.Wrong(n, "share is %s; give 0.1%% to 100%%, in steps of 0.1%%, such as 5%%", yamlfile.Kind(n))
	}
	return share
}

// limits decodes a list of `key: limit`. It is a list rather than a mapping because callers give the
// keys in this order.
func (s *source) limits(policy *Policy, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		s.Wrong(n, "limits is a mapping, which has no order; make it a list, as in - consumer: 100/m")
		return
	}
	for _, item := range s.Items(n, "limits") {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			s.Wrong(item, "an item of limits is %s; write the name of its key and the limit, as in consumer: 100/m", yamlfile.Kind(item))
			continue
		}
		if pair := s.Contents(item, yaml.MappingNode, "", ""); pair != nil {
			s.limit(policy, pair[0], pair[1])
		}
	}
}

func (s *source) limit(policy *Policy, key, value *yaml.Node) {
	name := ""
	if key != nil {
		if name = s.Text(key, "the name of a key"); key.Kind == yaml.ScalarNode && key.Value == "" && !yamlfile.Null(key) {
			s.Wrong(key, "a limit has an empty key name; name what the key is for")
		}
	}
	policy.Limits = append(policy.Limits, functions.PolicyLimit{Key: name, Limit: strings.TrimSpace(s.Text(value, "a limit"))})
	policy.keys = append(policy.keys, key)
	policy.limits = append(policy.limits, value)
}
