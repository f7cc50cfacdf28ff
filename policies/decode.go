package policies

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// The decoder of package yaml reports an alias at its anchor, accepts merge keys and yes for true,
// and names Go types in errors. The decoder in this file decodes the nodes that package yaml
// parses.

// entry is one entry of a mapping.
type entry struct{ key, value *yaml.Node }

// decode decodes a mapping into a struct, and returns the mapping's entries by key. Problems refer
// to the mapping as what. A field's tag is its key, or several keys of which only one may be given.
func (s *source) decode(n *yaml.Node, what string, into any) map[string]entry {
	fields := reflect.ValueOf(into).Elem()
	var keys []string
	fieldOf := map[string]int{}
	for i := range fields.NumField() {
		for _, key := range strings.Fields(fields.Type().Field(i).Tag.Get("yaml")) {
			keys = append(keys, key)
			fieldOf[key] = i
		}
	}
	given := map[string]entry{}
	first := make([]string, fields.NumField())
	for _, e := range s.entries(n, what) {
		key := e.key.Value
		i, known := fieldOf[key]
		switch {
		case !known:
			s.unknown(e.key, what, keys)
		case first[i] != "":
			s.wrong(e.key, "%s has %s and %s; keep one of them", what, first[i], key)
		default:
			first[i], given[key] = key, e
			s.value(e.value, key, fields.Field(i).Addr().Interface())
		}
	}
	return given
}

// value decodes a node into a variable of one of a few types.
func (s *source) value(n *yaml.Node, what string, into any) {
	switch into := into.(type) {
	case **yaml.Node:
		*into = n
	case *string:
		*into = s.text(n, what)
	case *bool:
		*into = s.flag(n, what)
	case *int64:
		*into = s.number(n, what)
	case *time.Duration:
		*into = s.duration(n, what)
	case *[]*yaml.Node:
		*into = s.items(n, what)
	case *[]int64: // a number, or a list of them
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = s.items(n, what)
		}
		for _, item := range items {
			*into = append(*into, s.number(item, what))
		}
	default:
		panic(fmt.Sprintf("policies: a field of type %T", into))
	}
}

// unknown records a key that the mapping must not have.
func (s *source) unknown(key *yaml.Node, what string, keys []string) {
	s.wrong(key, "unknown field %s; %s has %s", shown(key.Value), what, strings.Join(keys, ", "))
}

// entries returns the entries of a mapping in order, without duplicates.
func (s *source) entries(n *yaml.Node, what string) []entry {
	var list []entry
	first := map[string]*yaml.Node{}
	for pair := range slices.Chunk(s.contents(n, yaml.MappingNode, what, "a mapping, field: value"), 2) {
		key := pair[0]
		before, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			s.wrong(key, "a field name in %s is %s; it has to be a text", what, kind(key))
		case twice:
			s.wrong(key, "%s is given twice in %s; the first is in line %d", shown(key.Value), what, before.Line)
		default:
			first[key.Value] = key
			list = append(list, entry{key, pair[1]})
		}
	}
	return list
}

// items returns the items of a list.
func (s *source) items(n *yaml.Node, what string) []*yaml.Node {
	return s.contents(n, yaml.SequenceNode, what, "a list")
}

// contents returns the nodes in a mapping or a list, with aliases resolved. If n is of another
// kind, or if the file would then have too many values, contents records a problem.
func (s *source) contents(n *yaml.Node, of yaml.Kind, what, want string) []*yaml.Node {
	if n.Kind != of {
		s.wrong(n, "%s is %s; it has to be %s", what, kind(n), want)
		return nil
	}
	if !s.full() && s.values+len(n.Content) > maxValues {
		s.wrong(n, "aliases expand the file to more than %d values; use fewer aliases", maxValues)
	}
	if s.values += len(n.Content); s.full() {
		return nil
	}
	list := make([]*yaml.Node, len(n.Content))
	for i, item := range n.Content {
		list[i] = resolve(item)
	}
	return list
}

// text returns a scalar as it is written.
func (s *source) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || null(n) {
		s.wrong(n, "%s is %s; it has to be a text", what, kind(n))
		return ""
	}
	return n.Value
}

func (s *source) flag(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		s.wrong(n, "%s is %s; write true or false", what, kind(n))
	}
	return strings.EqualFold(n.Value, "true")
}

// largest is 2^53, the largest number that the library accepts.
const largest = 1 << 53

// number returns a whole number in decimal digits.
func (s *source) number(n *yaml.Node, what string) int64 {
	number, err := strconv.ParseUint(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || number > largest {
		s.wrong(n, "%s is %s; give a whole number from 0 to %d", what, kind(n), largest)
	}
	return int64(number)
}

func (s *source) duration(n *yaml.Node, what string) time.Duration {
	text := s.text(n, what)
	d, err := span.Parse(text)
	if err != nil && n.Kind == yaml.ScalarNode && !null(n) {
		s.wrong(n, "%s: %v", what, err)
	}
	return d
}

// resolve follows an alias. The node keeps the position of the alias, because that is the line to
// correct.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode || n.Alias == nil {
		return n
	}
	target := *n.Alias
	target.Line, target.Column = n.Line, n.Column
	return &target
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kind describes a node, for a problem.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case null(n):
		return "empty"
	}
	return shown(n.Value)
}

// shown quotes a value in one line, truncated if it is long.
func shown(value string) string {
	const most = 60
	if len(value) > most {
		return fmt.Sprintf("%q (%d bytes)", value[:most]+"...", len(value))
	}
	return fmt.Sprintf("%q", value)
}
