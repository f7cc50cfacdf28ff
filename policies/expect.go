package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The fields of a decision that a test can expect, with their index in the reply.
var replyFields = map[string]int{
	"allowed": 0, "limit": 1, "remaining": 2, "retry_after": 3, "reset_after": 4, "index": 5,
	"would_allowed": 6, "would_retry_after": 7, "would_index": 8,
	"taken": 0, "would_taken": 6, // of a call with up_to
}

var (
	decisionFields = []string{"allowed", "taken", "limit", "remaining", "retry_after", "reset_after", "index", "would_allowed", "would_taken", "would_retry_after", "would_index", "error"}
	countFields    = []string{"changed", "error"}
)

// countsKeys reports whether a verb's reply is a count: of keys changed, or of leases released.
func countsKeys(verb string) bool {
	return slices.Contains([]string{"reset", "block", "unblock", "release"}, verb)
}

// expectations parses expect, for a call whose verb and policy are known.
func (s *source) expectations(n *yaml.Node, c *call) []expectation {
	names := decisionFields
	if countsKeys(c.verb) {
		names = countFields
	}
	fields := s.known(n, "what to expect of "+c.verb, names...)
	var list []expectation
	for _, name := range names {
		f, ok := fields[name]
		if !ok {
			continue
		}
		e := expectation{at: f.value, field: name, text: f.value.Value}
		switch name {
		case "error":
			e.text = s.text(f.value, "the error")
			if len(fields) > 1 {
				s.wrong(f.key, "a call that ends in an error returns nothing else; expect the error alone")
			}
		case "allowed":
			if f.value.ShortTag() == "!!int" && c.times > 1 {
				e.count, e.want = true, s.number(f.value, "allowed", 0)
				if e.want > c.times {
					s.wrong(f.value, "allowed is %d, and the calls are %d", e.want, c.times)
				}
			} else {
				e.want = s.asNumber(f.value, name)
			}
		case "would_allowed":
			e.want = s.asNumber(f.value, name)
		case "retry_after", "reset_after", "would_retry_after":
			if name != "reset_after" && f.value.Value == "never" {
				e.want = -1
			} else {
				e.want = s.span(f.value, name).Milliseconds()
			}
		case "taken", "would_taken":
			if !c.upTo {
				s.wrong(f.key, "%s is how many units a call with up_to took, and this one has none; expect %s", name, strings.Replace(name, "taken", "allowed", 1))
			}
			e.want = s.number(f.value, name, 0)
		case "index", "would_index":
			e.want = s.index(f.value, name, c)
		default:
			e.want = s.number(f.value, name, 0)
		}
		list = append(list, e)
	}
	return list
}

func (s *source) asNumber(n *yaml.Node, what string) int64 {
	if s.flag(n, what) {
		return 1
	}
	return 0
}

// index parses the number of a key, from 1, or the name that the policy gives it.
func (s *source) index(n *yaml.Node, what string, c *call) int64 {
	text := s.text(n, what)
	if c.policy != nil {
		for i, limit := range c.policy.Limits {
			if limit.Key != "" && limit.Key == text {
				return int64(i + 1)
			}
		}
	}
	if _, err := strconv.Atoi(text); err != nil && text != "" {
		s.wrong(n, "%s is %s, which is neither a number nor the name of a key of the policy", what, shown(text))
		return 1
	}
	return s.number(n, what, 1)
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
