package functions

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
)

const (
	policiesMark  = "--[[@POLICIES@]]"
	policiesBegin = "local POLICIES = {"
	longestLimit  = 1024
)

var policyName = regexp.MustCompile(`^[a-z0-9_.-]{1,64}$`)

// ValidPolicyName tells whether a policy, or a key of one, can have this name.
func ValidPolicyName(name string) bool { return policyName.MatchString(name) }

// Option changes what New builds.
type Option func(*options)

type options struct{ policies []Policy }

// WithPolicies writes policies into the library's text. Given several times, it adds to those before. The order of the
// policies changes neither the text nor the build id.
func WithPolicies(policies ...Policy) Option {
	return func(o *options) { o.policies = append(o.policies, policies...) }
}

// check refuses what could not be asked for or could not be written. What a limit may be is for the library to say.
func (p Policy) check() error {
	if !ValidPolicyName(p.Name) {
		return fmt.Errorf("the policy name %q is not 1 to 64 of a-z 0-9 _ . -", cut(p.Name))
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("policy %s: "+format, append([]any{p.Name}, args...)...)
	}
	if len(p.Limits) == 0 || len(p.Limits) > MostPolicyLimits {
		return wrong("it has %d limits; give it 1 to %d", len(p.Limits), MostPolicyLimits)
	}
	seen := map[string]bool{}
	for _, limit := range p.Limits {
		switch {
		case limit.Key == "" && len(p.Limits) > 1:
			return wrong("a limit of several has no key name; name what each is for")
		case limit.Key != "" && !ValidPolicyName(limit.Key):
			return wrong("the key name %q is not 1 to 64 of a-z 0-9 _ . -", cut(limit.Key))
		case seen[limit.Key]:
			return wrong("the key name %s is given twice", limit.Key)
		case strings.TrimSpace(limit.Limit) == "":
			return wrong("an empty limit; give one such as 100/m")
		case len(limit.Limit) > longestLimit:
			return wrong("a limit of %d bytes; it has at most %d", len(limit.Limit), longestLimit)
		case strings.HasPrefix(strings.TrimSpace(limit.Limit), "@"):
			return wrong("the limit %q is a policy; a policy is made of limits such as 100/m", cut(limit.Limit))
		}
		seen[limit.Key] = true
	}
	return nil
}

// bake checks policies and answers them sorted by name, and as entries of a Lua table; "" for none.
func bake(policies []Policy) ([]Policy, string, error) {
	if len(policies) == 0 {
		return nil, "", nil
	}
	if len(policies) > MostPolicies {
		return nil, "", fmt.Errorf("functions: %d policies; a build has at most %d", len(policies), MostPolicies)
	}
	policies = clonePolicies(policies)
	slices.SortStableFunc(policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	var text strings.Builder
	for i, policy := range policies {
		if err := policy.check(); err != nil {
			return nil, "", fmt.Errorf("functions: %w", err)
		}
		if i > 0 && policies[i-1].Name == policy.Name {
			return nil, "", fmt.Errorf("functions: two policies are named %s", policy.Name)
		}
		text.WriteString("\n  " + policy.lua())
	}
	return policies, text.String() + "\n", nil
}

func clonePolicies(policies []Policy) []Policy {
	clone := slices.Clone(policies)
	for i := range clone {
		clone[i].Limits = slices.Clone(clone[i].Limits)
	}
	return clone
}

// lua writes the policy as one line of src/45_policies.lua's table; readPolicy is its inverse.
func (p Policy) lua() string {
	var fields, keys []string
	for _, limit := range p.Limits {
		fields = append(fields, luaString(limit.Limit))
		if limit.Key != "" {
			keys = append(keys, luaString(limit.Key))
		}
	}
	if len(keys) > 0 {
		fields = append(fields, "keys = { "+strings.Join(keys, ", ")+" }")
	}
	if p.Shadow {
		fields = append(fields, "shadow = true")
	}
	if p.Track {
		fields = append(fields, "track = true")
	}
	return "[" + luaString(p.Name) + "] = { " + strings.Join(fields, ", ") + " },"
}

// luaString is text as a literal of Lua. Whatever is not plainly harmless is written by its number, so that no text can
// end the literal, stand for something else in the build, or upset who reads it.
func luaString(text string) string {
	var literal strings.Builder
	literal.WriteByte('\'')
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(" /=,._+-", c) >= 0 {
			literal.WriteByte(c)
		} else {
			fmt.Fprintf(&literal, `\%03d`, c)
		}
	}
	literal.WriteByte('\'')
	return literal.String()
}

var (
	bakedLine    = regexp.MustCompile(`^  \['([^']*)'\] = \{ (.*) \},$`)
	bakedLiteral = regexp.MustCompile(`'((?:[^'\\]|\\[0-9]{3})*)'`)
	bakedKeys    = regexp.MustCompile(`, keys = \{ ([^{}]*) \}`)
)

// ErrNoPolicies is the error of ReadPolicies for a text that this package has not built.
var ErrNoPolicies = errors.New("functions: the text has no table of policies in the form that New writes")

// ReadPolicies answers the policies that a library text built by New holds, sorted by name, so that what a server runs
// can be compared with what is about to be deployed. The error is ErrNoPolicies for any other text.
func ReadPolicies(text string) ([]Policy, error) {
	_, rest, found := strings.Cut(text, "\n"+policiesBegin)
	if !found {
		return nil, ErrNoPolicies
	}
	if strings.HasPrefix(rest, "}\n") {
		return nil, nil
	}
	rest, _, found = strings.Cut(rest, "\n}\n")
	if !found || !strings.HasPrefix(rest, "\n") {
		return nil, ErrNoPolicies
	}
	var policies []Policy
	for _, line := range strings.Split(rest[1:], "\n") {
		policy, ok := readPolicy(line)
		if !ok {
			return nil, ErrNoPolicies
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
	policy := Policy{Name: unquote(match[1])}
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
	return policy, policy.check() == nil && "  "+policy.lua() == line
}

func literals(text string) []string {
	var list []string
	for _, match := range bakedLiteral.FindAllStringSubmatch(text, -1) {
		list = append(list, unquote(match[1]))
	}
	return list
}

var escaped = regexp.MustCompile(`\\[0-9]{3}`)

func unquote(literal string) string {
	return escaped.ReplaceAllStringFunc(literal, func(code string) string {
		n, err := strconv.Atoi(code[1:])
		if err != nil || n > 255 {
			return code
		}
		return string([]byte{byte(n)})
	})
}

// cut shortens a refused value for an error.
func cut(text string) string {
	const most = 60
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
