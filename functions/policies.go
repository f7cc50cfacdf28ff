package functions

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/luastring"
)

// Policy is a name for a limit, or for several limits over as many keys, that is deployed with the library: callers
// write @name in place of the limits.
//
// It is a plain value. Package policies reads policies from a file and has the library itself check their limits.
type Policy struct {
	Name   string        // 1 to 64 of a-z 0-9 _ . -
	Limits []PolicyLimit // one for each key that the policy takes, in their order; 1 to 16
	Shadow bool          // decides, and never denies; the reply says what it would have said
	Track  bool          // ratelimit_take takes one more key, the last, as with TRACK
}

// PolicyLimit is the limit of one key of a policy.
type PolicyLimit struct {
	Key   string // what the key stands for, as in "consumer": for people, and for errors. A lone limit may have none
	Limit string // as in "100/m", at most 1024 bytes; not another policy
}

// Bounds of what a build takes. A server gives a library half a second to load; this is far below it.
const (
	MostPolicies     = 10000
	MostPolicyLimits = 16

	mostText = 2 << 20 // bytes of the library with its policies
)

const (
	policiesMark  = "--[[@POLICIES@]]"
	policiesBegin = "local POLICIES = {"
	longestLimit  = 1024
)

var policyName = regexp.MustCompile(`^[a-z0-9_.-]{1,64}$`)

// Option changes what New builds.
type Option func(*options)

type options struct{ policies []Policy }

// WithPolicies writes policies into the library's text. Given several times, it adds to those before. The order of the
// policies changes neither the text nor the build id.
func WithPolicies(policies ...Policy) Option {
	return func(o *options) { o.policies = append(o.policies, policies...) }
}

// Fault is one thing that keeps a policy out of a build.
type Fault struct {
	Limit int    // the place in Limits of what is wrong, from 0; -1: the policy itself
	Key   bool   // of that limit: its key
	Text  string // as in "an empty limit; give one such as 100/m"
}

// Faults returns what keeps the policy out of a build, nothing if it can be built. Whether a limit can be read is for the
// library to say.
func (p Policy) Faults() []Fault {
	var faults []Fault
	wrong := func(limit int, key bool, format string, args ...any) {
		faults = append(faults, Fault{limit, key, fmt.Sprintf(format, args...)})
	}
	if !policyName.MatchString(p.Name) {
		wrong(-1, false, "the policy name %q is not 1 to 64 of a-z 0-9 _ . -", cut(p.Name))
	}
	if len(p.Limits) == 0 || len(p.Limits) > MostPolicyLimits {
		wrong(-1, false, "policy %s has %d limits; give it 1 to %d", cut(p.Name), len(p.Limits), MostPolicyLimits)
		return faults
	}
	seen := map[string]bool{}
	for i, limit := range p.Limits {
		switch {
		case limit.Key == "" && len(p.Limits) > 1:
			wrong(i, true, "a limit of several has no key name; name what each is for")
		case limit.Key != "" && !policyName.MatchString(limit.Key):
			wrong(i, true, "the key name %q is not 1 to 64 of a-z 0-9 _ . -", cut(limit.Key))
		case seen[limit.Key]:
			wrong(i, true, "the key name %q is given twice", limit.Key)
		}
		seen[limit.Key] = true
		switch text := strings.TrimSpace(limit.Limit); {
		case text == "":
			wrong(i, false, "an empty limit; give one such as 100/m")
		case len(limit.Limit) > longestLimit:
			wrong(i, false, "a limit of %d bytes; it has at most %d", len(limit.Limit), longestLimit)
		case text[0] == '@':
			wrong(i, false, "the limit %q is a policy; a policy is made of limits such as 100/m", cut(text))
		}
	}
	return faults
}

// check is the first of the faults as an error, or nil.
func (p Policy) check() error {
	faults := p.Faults()
	if len(faults) == 0 {
		return nil
	}
	text := faults[0].Text
	if faults[0].Limit >= 0 {
		text = "policy " + p.Name + ": " + text
	}
	return errors.New("functions: " + text)
}

// bake checks policies and returns them sorted by name, and as entries of a Lua table; "" for none. The entries have at
// most room bytes: beyond that nothing more is written, and only the sizes are taken, for the error.
func bake(policies []Policy, room int) ([]Policy, string, error) {
	if len(policies) == 0 {
		return nil, "", nil
	}
	if len(policies) > MostPolicies {
		return nil, "", fmt.Errorf("functions: %d policies; a build has at most %d", len(policies), MostPolicies)
	}
	policies = clonePolicies(policies)
	slices.SortStableFunc(policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	var text, line []byte
	sizes, size := make([]int, len(policies)), 1
	for i, policy := range policies {
		if err := policy.check(); err != nil {
			return nil, "", err
		}
		if i > 0 && policies[i-1].Name == policy.Name {
			return nil, "", fmt.Errorf("functions: two policies are named %s", policy.Name)
		}
		line = policy.appendLua(append(line[:0], "\n  "...))
		sizes[i] = len(line)
		if size += len(line); size <= room {
			text = append(text, line...)
		}
	}
	if size > room {
		return nil, "", tooLarge(policies, sizes, mostText-room+size)
	}
	return policies, string(text) + "\n", nil
}

// tooLarge names the policies that take most of a text of so many bytes.
func tooLarge(policies []Policy, sizes []int, total int) error {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	var largest []string
	for _, i := range order[:min(3, len(order))] {
		largest = append(largest, fmt.Sprintf("%s (%d bytes)", policies[i].Name, sizes[i]))
	}
	return fmt.Errorf("functions: the library would have %d bytes with these policies, and a build has at most %d; the largest are %s: "+
		"shorten their limits, or take policies out", total, mostText, strings.Join(largest, ", "))
}

func clonePolicies(policies []Policy) []Policy {
	clone := slices.Clone(policies)
	for i := range clone {
		clone[i].Limits = slices.Clone(clone[i].Limits)
	}
	return clone
}

// appendLua writes the policy as an entry of src/45_policies.lua's table, one line; readPolicy is its inverse.
func (p Policy) appendLua(b []byte) []byte {
	b = append(luastring.Append(append(b, '['), p.Name), "] = { "...)
	keys := false
	for i, limit := range p.Limits {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = luastring.Append(b, limit.Limit)
		keys = keys || limit.Key != ""
	}
	if keys {
		b = append(b, ", keys = { "...)
		for i, limit := range p.Limits {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = luastring.Append(b, limit.Key)
		}
		b = append(b, " }"...)
	}
	if p.Shadow {
		b = append(b, ", shadow = true"...)
	}
	if p.Track {
		b = append(b, ", track = true"...)
	}
	return append(b, " },"...)
}

var (
	bakedLine = regexp.MustCompile(`^  \['([^']*)'\] = \{ (.*) \},$`)
	bakedKeys = regexp.MustCompile(`, keys = \{ ([^{}]*) \}`)
)

var errNoPolicies = errors.New("functions: the text has no table of policies in the form that New writes")

// ReadPolicies returns the policies that a library text built by New holds, sorted by name, so that what a server runs
// can be compared with what is about to be deployed. Any other text is an error.
func ReadPolicies(text string) ([]Policy, error) {
	_, rest, found := strings.Cut(text, "\n"+policiesBegin)
	if !found {
		return nil, errNoPolicies
	}
	if strings.HasPrefix(rest, "}\n") {
		return nil, nil
	}
	rest, _, found = strings.Cut(rest, "\n}\n")
	if !found || !strings.HasPrefix(rest, "\n") {
		return nil, errNoPolicies
	}
	var policies []Policy
	for _, line := range strings.Split(rest[1:], "\n") {
		policy, ok := readPolicy(line)
		if !ok {
			return nil, errNoPolicies
		}
		policies = append(policies, policy)
	}
	return policies, nil
}

func readPolicy(line string) (Policy, bool) {
	match := bakedLine.FindStringSubmatch(line)
	if match == nil {
		return Policy{}, false
	}
	policy := Policy{Name: match[1]}
	fields := match[2]
	fields, policy.Track = strings.CutSuffix(fields, ", track = true")
	fields, policy.Shadow = strings.CutSuffix(fields, ", shadow = true")
	var keys []string
	if match := bakedKeys.FindStringSubmatch(fields); match != nil {
		keys = literals(match[1])
		fields = strings.TrimSuffix(fields, match[0])
	}
	for i, limit := range literals(fields) {
		policy.Limits = append(policy.Limits, PolicyLimit{Limit: limit})
		if i < len(keys) {
			policy.Limits[i].Key = keys[i]
		}
	}
	// What is not of the form that lua writes does not come out of it again.
	return policy, policy.check() == nil && string(policy.appendLua([]byte("  "))) == line
}

// literals returns the strings of Lua in text.
func literals(text string) []string {
	var list []string
	for {
		_, literal, _ := strings.Cut(text, "'")
		value, rest, ok := luastring.Cut("'" + literal)
		if !ok {
			return list
		}
		list, text = append(list, value), rest
	}
}

// cut shortens a refused value for an error.
func cut(text string) string {
	const most = 60
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
