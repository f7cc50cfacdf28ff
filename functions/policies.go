package functions

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
		if err := CheckNamespace(namespace); err != nil {
			wrong(-1, false, "policy %q: %v", cut(p.Name), err)
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
