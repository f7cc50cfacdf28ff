package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/internal/span"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// decisionFields lists the names of a decision's fields. The first nine are the elements of the
// reply, in order. In a call with up_to, taken and would_taken are the units in the elements
// allowed and would_allowed. error is an error reply.
var decisionFields = []string{"allowed", "limit", "remaining", "retry_after", "reset_after", "index",
	"would_allowed", "would_retry_after", "would_index", "taken", "would_taken", "error"}

// eachFields lists the fields that EACH adds for each key, in the order of the reply, followed by
// taken.
var eachFields = append(slices.Clone(decisionFields[:5]), "taken")

// element returns the index of the field in the reply or, for an expectation of one key, in that
// key's EACH element.
func (e expectation) element() int {
	return max(0, slices.Index(decisionFields, strings.Replace(e.field, "taken", "allowed", 1)))
}

// expectations decodes the field "expect" of a call. The caller has already set c's verb and
// policy.
func (s *source) expectations(n *yaml.Node, c *call) []expectation {
	names := decisionFields
	switch {
	case c.has("changed"):
		names = []string{"changed", "error"}
	case c.has("each"):
		names = append(slices.Clone(names), "each")
	}
	return s.fields(n, "expect of "+c.verb, names, c, "")
}

// fields decodes the expectations of a whole decision, or of one key if key is not empty.
func (s *source) fields(n *yaml.Node, what string, names []string, c *call, key string) []expectation {
	entries := s.Entries(n, what)
	var list []expectation
	for _, f := range entries {
		name := f.Key.Value
		if !slices.Contains(names, name) {
			s.Unknown(f.Key, what, names)
			continue
		}
		e := expectation{at: f.Value, field: name, key: key}
		switch name {
		case "each":
			list = append(list, s.each(f.Value, c)...)
			continue
		case "error":
			e.text = s.Text(f.Value, name)
			if len(entries) > 1 {
				s.Wrong(f.Key, "an error reply has no other fields; expect only the error")
			}
		case "allowed", "would_allowed":
			e.count = name == "allowed" && key == "" && c.times > 1 && f.Value.ShortTag() == "!!int"
			switch {
			case !e.count && s.Flag(f.Value, name):
				e.want = 1
			case e.count:
				if e.want = s.Number(f.Value, name); e.want > c.times {
					s.Wrong(f.Value, "allowed is %d, but there are only %d calls", e.want, c.times)
				}
			}
		case "retry_after", "reset_after", "would_retry_after":
			e.want = -1
			if name == "reset_after" || f.Value.Value != "never" {
				e.want = s.Duration(f.Value, name).Milliseconds()
			}
		case "index", "would_index":
			e.want = s.index(f.Value, name, c)
		default:
			e.want = s.Number(f.Value, name)
			if strings.HasSuffix(name, "taken") && !c.upTo {
				s.Wrong(f.Key, "%s needs a call with up_to; expect %s", name, strings.Replace(name, "taken", "allowed", 1))
			}
		}
		list = append(list, e)
	}
	return list
}

// each decodes the expectations for single keys: a mapping from a key's number or name to its
// fields.
func (s *source) each(n *yaml.Node, c *call) []expectation {
	var list []expectation
	for _, k := range s.Entries(n, "each") {
		index := s.index(k.Key, "a key of each", c)
		if c.policy != nil && index > int64(len(c.policy.Limits)) {
			s.Wrong(k.Key, "each has key %d, and the policy %s has %d", index, c.policy.Name, len(c.policy.Limits))
		}
		what := "each " + k.Key.Value
		for _, e := range s.fields(k.Value, what, eachFields, c, k.Key.Value) {
			e.index = index
			list = append(list, e)
		}
	}
	return list
}

// index decodes a reference to a key: its number, counted from 1, or its name in the policy.
func (s *source) index(n *yaml.Node, what string, c *call) int64 {
	text := s.Text(n, what)
	if c.policy != nil {
		for i, limit := range c.policy.Limits {
			if limit.Key != "" && limit.Key == text {
				return int64(i + 1)
			}
		}
	}
	index, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || index < 1) && text != "" {
		s.Wrong(n, "%s is %s; write the number of a key, from 1, or a key name of the policy", what, yamlfile.Shown(text))
	}
	return index
}

// path returns the field as a test writes it, with dots between keys.
func (e expectation) path() string {
	if e.key != "" {
		return "each." + e.key + "." + e.field
	}
	return e.field
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
		return span.Text(time.Duration(value) * time.Millisecond)
	case strings.HasSuffix(e.field, "index") && policy != nil && value >= 1 && value <= int64(len(policy.Limits)):
		if name := policy.Limits[value-1].Key; name != "" {
			return fmt.Sprintf("%d (%s)", value, name)
		}
	}
	return strconv.FormatInt(value, 10)
}
