package functions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/luastring"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

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
