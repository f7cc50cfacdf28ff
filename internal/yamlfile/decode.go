package yamlfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// This file decodes the nodes that package yaml parses. The decoder of package yaml is not
// suitable: it reports an alias at the position of its anchor, accepts merge keys and yes for true,
// and names Go types in errors.

// Entry is one entry of a mapping.
type Entry struct{ Key, Value *yaml.Node }

// Decode decodes a mapping into a struct, and returns the mapping's entries by key. The parameter
// what names the mapping in problems, and into points to the struct. The tag yaml of a struct field
// is the field's key, or a list of alternative keys.
func (s *Source) Decode(n *yaml.Node, what string, into any) map[string]Entry {
	fields := reflect.ValueOf(into).Elem()
	var keys []string
	fieldOf := map[string]int{}
	for i := range fields.NumField() {
		for _, key := range strings.Fields(fields.Type().Field(i).Tag.Get("yaml")) {
			keys = append(keys, key)
			fieldOf[key] = i
		}
	}
	given := map[string]Entry{}
	first := make([]string, fields.NumField())
	for _, e := range s.Entries(n, what) {
		key := e.Key.Value
		i, known := fieldOf[key]
		switch {
		case !known:
			s.Unknown(e.Key, what, keys)
		case first[i] != "":
			s.Wrong(e.Key, "%s has %s and %s; keep one of them", what, first[i], key)
		default:
			first[i], given[key] = key, e
			s.value(e.Value, key, fields.Field(i).Addr().Interface())
		}
	}
	return given
}

// value decodes a node. into points to the variable for the result, and the parameter what names the
// value in problems.
func (s *Source) value(n *yaml.Node, what string, into any) {
	switch into := into.(type) {
	case **yaml.Node:
		*into = n
	case *string:
		*into = s.Text(n, what)
	case *bool:
		*into = s.Flag(n, what)
	case *int64:
		*into = s.Number(n, what)
	case *time.Duration:
		*into = s.Duration(n, what)
	case *[]*yaml.Node:
		*into = s.Items(n, what)
	case *[]int64: // a number, or a list of them
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = s.Items(n, what)
		}
		for _, item := range items {
			*into = append(*into, s.Number(item, what))
		}
	default:
		panic(fmt.Sprintf("yamlfile: a field of type %T", into))
	}
}

// Unknown records a key that the mapping must not have.
func (s *Source) Unknown(key *yaml.Node, what string, keys []string) {
	s.Wrong(key, "unknown field %s; %s has %s", Shown(key.Value), what, strings.Join(keys, ", "))
}

// Entries returns the entries of a mapping in order, without duplicates.
func (s *Source) Entries(n *yaml.Node, what string) []Entry {
	var list []Entry
	first := map[string]*yaml.Node{}
	for pair := range slices.Chunk(s.Contents(n, yaml.MappingNode, what, "a mapping, field: value"), 2) {
		key := pair[0]
		before, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			s.Wrong(key, "a field name in %s is %s; it has to be a text", what, Kind(key))
		case twice:
			s.Wrong(key, "%s is given twice in %s; the first is in line %d", Shown(key.Value), what, before.Line)
		default:
			first[key.Value] = key
			list = append(list, Entry{key, pair[1]})
		}
	}
	return list
}

// Items returns the items of a list.
func (s *Source) Items(n *yaml.Node, what string) []*yaml.Node {
	return s.Contents(n, yaml.SequenceNode, what, "a list")
}

// Contents returns the nodes in n, with aliases resolved. kind is the kind that n must have: a
// mapping or a list. Contents records a problem if n has another kind, or if the YAML file expands
// to too many values. The text of a problem uses what as the name of n, and want as the
// description of the required kind.
func (s *Source) Contents(n *yaml.Node, kind yaml.Kind, what, want string) []*yaml.Node {
	if n.Kind != kind {
		s.Wrong(n, "%s is %s; it has to be %s", what, Kind(n), want)
		return nil
	}
	if !s.Full() && s.values+len(n.Content) > s.MostBytes {
		s.Wrong(n, "aliases expand the file to more than %d values; use fewer aliases", s.MostBytes)
	}
	if s.values += len(n.Content); s.Full() {
		return nil
	}
	list := make([]*yaml.Node, len(n.Content))
	for i, item := range n.Content {
		list[i] = resolve(item)
	}
	return list
}

// Text returns the text of a scalar as written.
func (s *Source) Text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || Null(n) {
		s.Wrong(n, "%s is %s; it has to be a text", what, Kind(n))
		return ""
	}
	return n.Value
}

// Flag returns the value of a scalar that must be true or false.
func (s *Source) Flag(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		s.Wrong(n, "%s is %s; write true or false", what, Kind(n))
	}
	return strings.EqualFold(n.Value, "true")
}

// largest is 2^53, the largest number that the library accepts.
const largest = 1 << 53

// Number returns the value of a scalar that must be a whole number in decimal digits.
func (s *Source) Number(n *yaml.Node, what string) int64 {
	number, err := strconv.ParseUint(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || number > largest {
		s.Wrong(n, "%s is %s; give a whole number from 0 to %d", what, Kind(n), largest)
	}
	return int64(number)
}

// Duration returns the value of a scalar that must be a duration, such as 1m30s.
func (s *Source) Duration(n *yaml.Node, what string) time.Duration {
	text := s.Text(n, what)
	d, err := span.Parse(text)
	if err != nil && n.Kind == yaml.ScalarNode && !Null(n) {
		s.Wrong(n, "%s: %v", what, err)
	}
	return d
}

// resolve follows an alias. The returned node has the position of the alias, because that is the
// line to correct.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode || n.Alias == nil {
		return n
	}
	target := *n.Alias
	target.Line, target.Column = n.Line, n.Column
	return &target
}

// Null reports whether a node is null or empty.
func Null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Kind returns a description of a node's kind, for error messages.
func Kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case Null(n):
		return "empty"
	}
	return Shown(n.Value)
}

// Shown returns a value in quotes, on one line. It truncates a long value.
func Shown(value string) string {
	const most = 60
	if len(value) > most {
		return fmt.Sprintf("%q (%d bytes)", printable.Cut(value, most), len(value))
	}
	return fmt.Sprintf("%q", value)
}
