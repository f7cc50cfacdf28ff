package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decisionFields lists the fields of a decision in the order of the reply. The last three are not
// separate elements of the reply: with up_to, the element allowed is also called taken.
var decisionFields = []string{"allowed", "limit", "remaining", "retry_after", "reset_after", "index",
	"would_allowed", "would_retry_after", "would_index", "taken", "would_taken", "error"}

// element returns the field's index in the reply.
func (e expectation) element() int {
	return max(0, slices.Index(decisionFields, strings.Replace(e.field, "taken", "allowed", 1)))
}

// expectations decodes the field expect of a call whose verb and policy are already known.
func (s *source) expectations(n *yaml.Node, c *call) []expectation {
	names, what := decisionFields, "expect of "+c.verb
	if c.has("changed") {
		names = []string{"changed", "error"}
	}
	entries := s.entries(n, what)
	var list []expectation
	for _, f := range entries {
		name := f.key.Value
		if !slices.Contains(names, name) {
			s.unknown(f.key, what, names)
			continue
		}
		e := expectation{at: f.value, field: name}
		switch name {
		case "error":
			e.text = s.text(f.value, name)
			if len(entries) > 1 {
				s.wrong(f.key, "an error reply has no other fields; expect only the error")
			}
		case "allowed", "would_allowed":
			e.count = name == "allowed" && c.times > 1 && f.value.ShortTag() == "!!int"
			switch {
			case !e.count && s.flag(f.value, name):
				e.want = 1
			case e.count:
				if e.want = s.number(f.value, name); e.want > c.times {
					s.wrong(f.value, "allowed is %d, but there are only %d calls", e.want, c.times)
				}
			}
		case "retry_after", "reset_after", "would_retry_after":
			e.want = -1
			if name == "reset_after" || f.value.Value != "never" {
				e.want = s.duration(f.value, name).Milliseconds()
			}
		case "index", "would_index":
			e.want = s.index(f.value, name, c)
		default:
			e.want = s.number(f.value, name)
			if strings.HasSuffix(name, "taken") && !c.upTo {
				s.wrong(f.key, "%s needs a call with up_to; expect %s", name, strings.Replace(name, "taken", "allowed", 1))
			}
		}
		list = append(list, e)
	}
	return list
}

// index decodes a key's number, from 1, or its name in the policy.
func (s *source) index(n *yaml.Node, what string, c *call) int64 {
	text := s.text(n, what)
	if c.policy != nil {
		for i, limit := range c.policy.Limits {
			if limit.Key != "" && limit.Key == text {
				return int64(i + 1)
			}
		}
	}
	index, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || index < 1) && text != "" {
		s.wrong(n, "%s is %s; write the number of a key, from 1, or a key name of the policy", what, shown(text))
	}
	return index
}

// show formats a value of a field as a test would write it.
func (e expectation) show(value int64, policy *Policy) string {
	switch {
	case e.count:
		return fmt.Sprintf("%d of the calls", value)
	case strings.HasSuffix(e.field, "allowed"):
		return strconv.FormatBool(value == 1)
	case strings.HasSuffix(e.field, "_after") && value == -1:
		return "never"
	case strings.HasSuffix(e.field, "_after"):
		return spanText(value)
	case strings.HasSuffix(e.field, "index") && policy != nil && value >= 1 && value <= int64(len(policy.Limits)):
		if name := policy.Limits[value-1].Key; name != "" {
			return fmt.Sprintf("%d (%s)", value, name)
		}
	}
	return strconv.FormatInt(value, 10)
}
