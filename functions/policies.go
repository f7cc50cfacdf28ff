package functions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/luastring"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// Policy is a named limit, or a named list of limits for several keys, that is deployed with the
// library. Callers write @name instead of the limits.
//
// A Policy is a plain value. Package policies reads policies from a file and checks their limits
// with the library.
type Policy struct {
	Name   string        // "name" or "namespace/name", each of 1 to 64 characters from a-z 0-9 _ . -
	Limits []PolicyLimit // one for each key of the policy, in order; 1 to 16
	Shadow bool          // the policy never denies; replies include what it would have decided
	Track  bool          // the last key of ratelimit_take is a usage key, as with TRACK
	Canary *Canary       // other limits for a share of the keys; nil if there is no canary

	// Classes maps the names of classes to the percentage of the capacities that calls of the class keep
	// free, 0 to 100. A call that names neither a class nor a percentage belongs to the class "default", if
	// there is one. A class is 1 to 64 characters from a-z 0-9 _ . -
	Classes  map[string]int
	AnyClass bool // calls may name any class, which keeps nothing free; then Classes is empty

	// Borrow says that the first limit is a caller's guarantee, and the second a pool that all callers
	// share, as with BORROW in a call. Floor is the percentage of the pool that borrowers leave, 0 to 100.
	Borrow bool
	Floor  int

	// Penalty says how programs that limit with the policy block the keys that it denies. The library
	// tells it, and does not apply it. nil if there is none.
	Penalty *Penalty

	// Warn is the percentage of a limit, 50 to 100, from which on programs that limit with the policy warn the
	// caller of an allowed call. The library tells it, and does not apply it. 0 if there is none.
	Warn int
}

// Canary has other limits, which apply to a share of a policy's keys. A key is in the canary's
// share on all servers or on none, and stays in it if the share grows. The first key of a call
// selects the limits for the whole call.
type Canary struct {
	Limits []string // one for each limit of the policy
	Share  int      // number of keys out of 1000; 1 to 1000
	Shadow bool     // the canary never denies, regardless of Policy.Shadow
	Floor  int      // the percentage of the canary's pool that borrowers leave, for a policy with Borrow
}

// PolicyLimit is the limit of one key of a policy.
type PolicyLimit struct {
	// Key says what the limited key identifies, such as "consumer". It appears in errors and lists,
	// and is optional if the policy has a single limit.
	Key string

	Limit string // such as "100/m", at most 1024 bytes; not a policy
}

// String returns the limit, preceded by the name of its key if there is one: "consumer: 100/m".
func (l PolicyLimit) String() string { return strings.TrimPrefix(l.Key+": "+l.Limit, ": ") }

// Effect describes how a changed policy affects keys in use. Package policies determines it.
type Effect struct {
	Keys string // such as "carry over: after 50 units of 100, 50 of 100 are left"
	// Denied reports whether calls that fit the new limit fail after the change. The library denies
	// them, or returns an error because of what their keys hold, or because of the number of keys.
	Denied  bool
	Refused string // why the library rejects the new policy, or ""
}

// Percent returns the share as a percentage, such as "5%" or "0.5%".
func (c Canary) Percent() string {
	return strconv.FormatFloat(float64(c.Share)/10, 'f', -1, 64) + "%"
}

// These are the bounds of a build. A server allows half a second to load a library, and a build
// within these bounds takes far less.
const (
	MostPolicies     = 10000
	MostPolicyLimits = 16
	MostClasses      = 16

	mostText = 2 << 20 // maximum size of a library with its policies, in bytes
)

const (
	policiesMark  = "--[[@POLICIES@]]"
	policiesBegin = "local POLICIES = {"
	buildIDBegin  = "local BUILD_ID = '"
	longestLimit  = 1024
)

var policyName = regexp.MustCompile(`^[a-z0-9_.-]{1,64}$`)

// Option configures New.
type Option func(*options)

type options struct{ policies []Policy }

// WithPolicies adds policies to the library. If it is given several times, the policies accumulate.
// The source code and the build ID do not depend on the order of the policies.
func WithPolicies(policies ...Policy) Option {
	return func(o *options) { o.policies = append(o.policies, policies...) }
}

// Fault is one reason why a policy cannot be built.
type Fault struct {
	Limit  int    // the index of the invalid limit in Limits; -1 if the fault is not in a limit
	Key    bool   // whether the fault is in the limit's key
	Canary bool   // whether the fault is in the canary; Limit is then an index of Canary.Limits
	Text   string // such as "an empty limit; give one such as 100/m"
}

// Faults returns the reasons why the policy cannot be built, or nil if it can. It does not parse
// the limits: only the library can.
func (p Policy) Faults() []Fault {
	var faults []Fault
	wrong := func(limit int, key bool, format string, args ...any) {
		faults = append(faults, Fault{Limit: limit, Key: key, Text: fmt.Sprintf(format, args...)})
	}
	name := p.Name
	if namespace, after, found := strings.Cut(p.Name, "/"); found {
		name = after
		if text := namespaceFault(namespace); text != "" {
			wrong(-1, false, "policy %q: %s", cut(p.Name), text)
		}
	}
	if !policyName.MatchString(name) {
		wrong(-1, false, "the policy name %q is not 1 to 64 of a-z 0-9 _ . -", cut(name))
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
		if text := limitFault(limit.Limit); text != "" {
			wrong(i, false, "%s", text)
		}
	}
	if p.Canary != nil {
		faults = append(faults, p.Canary.faults(len(p.Limits))...)
	}
	if len(p.Classes) > MostClasses || p.AnyClass && len(p.Classes) > 0 {
		wrong(-1, false, "policy %s has %d classes; give it at most %d, or any", cut(p.Name), len(p.Classes), MostClasses)
	}
	faults = append(faults, p.borrowFaults()...)
	if text := p.penaltyFault(); text != "" {
		wrong(-1, false, "policy %s has a penalty: %s", cut(p.Name), text)
	}
	if p.Warn != 0 && (p.Warn < 50 || p.Warn > 100) {
		wrong(-1, false, "policy %s warns at %d %%; give it a whole percentage from 50 to 100", cut(p.Name), p.Warn)
	}
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		if !policyName.MatchString(class) {
			wrong(-1, false, "the class %q is not 1 to 64 of a-z 0-9 _ . -", cut(class))
		} else if percent := p.Classes[class]; percent < 0 || percent > 100 {
			wrong(-1, false, "the class %s keeps %d %% free; give it a whole percentage from 0 to 100", class, percent)
		}
	}
	return faults
}

// borrowFaults returns the reasons why the policy cannot have a guarantee and a pool.
func (p Policy) borrowFaults() []Fault {
	var faults []Fault
	wrong := func(format string, args ...any) {
		faults = append(faults, Fault{Limit: -1, Text: fmt.Sprintf("policy %s: ", cut(p.Name)) + fmt.Sprintf(format, args...)})
	}
	floors := []int{p.Floor}
	if p.Canary != nil {
		floors = append(floors, p.Canary.Floor)
	}
	for _, floor := range floors {
		if floor < 0 || floor > 100 || floor > 0 && !p.Borrow {
			wrong("a floor of %d; give a policy with a guarantee and a pool a whole percentage from 0 to 100", floor)
		}
	}
	if !p.Borrow {
		return faults
	}
	if len(p.Limits) != 2 {
		wrong("%d limits; a guarantee and a pool are two", len(p.Limits))
	}
	if p.Shadow || p.Canary != nil && p.Canary.Shadow {
		wrong("a guarantee and a pool cannot be a shadow")
	}
	if p.AnyClass || len(p.Classes) > 0 {
		wrong("a guarantee and a pool have no classes")
	}
	return faults
}

// faults returns the reasons why the canary cannot be built. limits is the number of limits of the
// policy.
func (c Canary) faults(limits int) []Fault {
	var faults []Fault
	wrong := func(limit int, format string, args ...any) {
		faults = append(faults, Fault{Limit: limit, Canary: true, Text: fmt.Sprintf(format, args...)})
	}
	if c.Share < 1 || c.Share > 1000 {
		wrong(-1, "a canary for %d of 1000 keys; give it 1 to 1000", c.Share)
	}
	if len(c.Limits) != limits {
		wrong(-1, "the number of limits is %d and that of the canary %d; give the canary one for each", limits, len(c.Limits))
		return faults
	}
	for i, limit := range c.Limits {
		if text := limitFault(limit); text != "" {
			wrong(i, "%s", text)
		}
	}
	return faults
}

// limitFault returns why a build cannot contain the limit, or "".
func limitFault(limit string) string {
	switch text := strings.TrimSpace(limit); {
	case text == "":
		return "an empty limit; give one such as 100/m"
	case len(limit) > longestLimit:
		return fmt.Sprintf("a limit of %d bytes; it has at most %d", len(limit), longestLimit)
	case text[0] == '@':
		return fmt.Sprintf("the limit %q is a policy; a policy is made of limits such as 100/m", cut(text))
	}
	return ""
}

// check returns the first of the faults as an error, or nil.
func (p Policy) check() error {
	faults := p.Faults()
	if len(faults) == 0 {
		return nil
	}
	text := faults[0].Text
	if faults[0].Limit >= 0 || faults[0].Canary {
		text = "policy " + p.Name + ": " + text
	}
	return errors.New("functions: " + text)
}

// bake checks policies, and returns them sorted by name. The second result is the entries of a Lua
// table, or "" if there are no policies. Once the entries exceed room bytes, bake only adds up their
// sizes, for the error.
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

// tooLarge returns an error that names the largest policies. sizes holds the size of each policy, and
// total is the size of the source code, in bytes.
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
		if canary := clone[i].Canary; canary != nil {
			clone[i].Canary = &Canary{slices.Clone(canary.Limits), canary.Share, canary.Shadow, canary.Floor}
		}
		clone[i].Classes = maps.Clone(clone[i].Classes)
		if penalty := clone[i].Penalty; penalty != nil {
			clone[i].Penalty = new(*penalty)
		}
	}
	return clone
}

// appendLua appends the policy as a one-line entry of the table in src/40_policies.lua. readPolicy
// is its inverse.
func (p Policy) appendLua(b []byte) []byte {
	limits, keys := make([]string, len(p.Limits)), make([]string, len(p.Limits))
	for i, limit := range p.Limits {
		limits[i], keys[i] = limit.Limit, limit.Key
	}
	b = append(luastring.Append(append(b, '['), p.Name), "] = { "...)
	b = appendLiterals(b, limits)
	if strings.Join(keys, "") != "" {
		b = append(appendLiterals(append(b, ", keys = { "...), keys), " }"...)
	}
	if c := p.Canary; c != nil {
		b = appendLiterals(append(b, ", canary = { "...), c.Limits)
		b = fmt.Appendf(b, ", share = %d", c.Share)
		if c.Shadow {
			b = append(b, ", shadow = true"...)
		}
		if p.Borrow {
			b = fmt.Appendf(b, ", borrow = %d", c.Floor)
		}
		b = append(b, " }"...)
	}
	if p.Borrow {
		b = fmt.Appendf(b, ", borrow = %d", p.Floor)
	}
	if p.Shadow {
		b = append(b, ", shadow = true"...)
	}
	if p.Track {
		b = append(b, ", track = true"...)
	}
	if t := p.Penalty; t != nil {
		b = fmt.Appendf(b, ", penalty = { %d, %d, %d }", t.First.Milliseconds(), t.Max.Milliseconds(), t.Forget.Milliseconds())
	}
	if p.Warn != 0 {
		b = fmt.Appendf(b, ", warn = %d", p.Warn)
	}
	if p.AnyClass {
		b = append(b, ", classes = true"...)
	} else if len(p.Classes) > 0 {
		b = append(b, ", classes = {"...)
		for i, class := range slices.Sorted(maps.Keys(p.Classes)) {
			b = append(b, strings.Repeat(",", min(i, 1))+" ["...)
			b = fmt.Appendf(append(luastring.Append(b, class), ']'), " = %d", p.Classes[class])
		}
		b = append(b, " }"...)
	}
	return append(b, " },"...)
}

func appendLiterals(b []byte, list []string) []byte {
	for i, text := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = luastring.Append(b, text)
	}
	return b
}

var errNoPolicies = errors.New("functions: the text has no table of policies in the form that New writes")

// ReadPolicies returns the policies in a library's source code, sorted by name. A caller can
// compare them with the policies that it is about to deploy. If New did not build the code,
// ReadPolicies returns an error.
func ReadPolicies(text string) ([]Policy, error) {
	_, table, _, ok := cutPolicies(text)
	if !ok {
		return nil, errNoPolicies
	}
	if table == "" {
		return nil, nil
	}
	var policies []Policy
	for _, line := range strings.Split(table, "\n") {
		policy, ok := readPolicy(line)
		if !ok {
			return nil, errNoPolicies
		}
		policies = append(policies, policy)
	}
	return policies, nil
}

// readPolicy returns the policy in a line that appendLua wrote. It ignores the separators between
// values, but then rejects any line that appendLua would write in another way.
func readPolicy(line string) (Policy, bool) {
	name, rest := literals(strings.TrimPrefix(line, "  ["))
	limits, rest := literals(strings.TrimPrefix(rest, "] = { "))
	policy := Policy{Name: strings.Join(name, "")}
	for _, limit := range limits {
		policy.Limits = append(policy.Limits, PolicyLimit{Limit: limit})
	}
	if after, ok := strings.CutPrefix(rest, "keys = { "); ok {
		keys, end := literals(after)
		for i, key := range keys[:min(len(keys), len(limits))] {
			policy.Limits[i].Key = key
		}
		rest = strings.TrimPrefix(strings.TrimPrefix(end, " }"), ", ")
	}
	if after, ok := strings.CutPrefix(rest, "canary = { "); ok {
		limits, end := literals(after)
		share, end, _ := strings.Cut(end, " }")
		share, floor, _ := strings.Cut(share, ", borrow = ")
		share, shadow := strings.CutSuffix(share, ", shadow = true")
		number, _ := strconv.Atoi(strings.TrimPrefix(share, "share = "))
		policy.Canary, rest = &Canary{limits, number, shadow, 0}, strings.TrimPrefix(end, ", ")
		policy.Canary.Floor, _ = strconv.Atoi(floor)
	}
	if after, ok := strings.CutPrefix(rest, "borrow = "); ok {
		floor, _, _ := strings.Cut(strings.TrimSuffix(after, " },"), ",")
		policy.Borrow, rest = true, after
		policy.Floor, _ = strconv.Atoi(floor)
	}
	rest, classes, _ := strings.Cut(rest, "classes = ")
	policy.Shadow, policy.Track = strings.Contains(rest, "shadow"), strings.Contains(rest, "track")
	var ms [3]time.Duration
	if _, penalty, found := strings.Cut(rest, "penalty = { "); found {
		_, _ = fmt.Sscanf(penalty, "%d, %d, %d", &ms[0], &ms[1], &ms[2])
		policy.Penalty = &Penalty{ms[0] * time.Millisecond, ms[1] * time.Millisecond, ms[2] * time.Millisecond}
	}
	if _, warn, found := strings.Cut(rest, "warn = "); found {
		_, _ = fmt.Sscanf(warn, "%d", &policy.Warn)
	}
	policy.AnyClass = strings.HasPrefix(classes, "true")
	for _, class := range strings.Split(classes, " [")[1:] {
		name, percent := literals(class)
		percent, _, _ = strings.Cut(strings.TrimPrefix(percent, "] = "), ",")
		number, _ := strconv.Atoi(strings.TrimSuffix(percent, " } }"))
		if policy.Classes == nil {
			policy.Classes = map[string]int{}
		}
		policy.Classes[strings.Join(name, "")] = number
	}
	return policy, policy.check() == nil && string(policy.appendLua([]byte("  "))) == line
}

// literals returns the values of the Lua string literals at the beginning of text, and the rest of
// text. It skips a comma and a space after each literal.
func literals(text string) (list []string, rest string) {
	for {
		value, rest, ok := luastring.Cut(text)
		if !ok {
			return list, text
		}
		list, text = append(list, value), strings.TrimPrefix(rest, ", ")
	}
}

// cut shortens a rejected value for an error.
func cut(text string) string { return printable.Cut(text, 60) }
