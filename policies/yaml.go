package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// mostBytes is the size limit of a file; ten thousand policies take half of it.
const mostBytes = 2 << 20

// mostProblems is the number of problems after which reading stops.
const mostProblems = 50

// readFile reads a file of at most mostBytes, and hardly more than that of a larger one.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w; name another file", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w; name another file", err)
	}
	return content, nil
}

// mostValues stops the reading of a file whose aliases expand to more values than a file without
// aliases can have.
const mostValues = mostBytes

// source is a file that is being parsed, with the problems found so far.
type source struct {
	name     string
	problems Problems
	values   int // values that were parsed; a value behind an alias counts each time
}

func (s *source) wrong(at *yaml.Node, format string, args ...any) {
	if !s.full() {
		s.problems = append(s.problems, Problem{s.name, at.Line, at.Column, fmt.Sprintf(format, args...)})
	}
}

// full reports whether to stop parsing and collecting problems.
func (s *source) full() bool { return len(s.problems) >= mostProblems || s.values > mostValues }

// enter counts the values in a mapping or a list before they are parsed, and reports whether to
// parse them.
func (s *source) enter(n *yaml.Node) bool {
	if !s.full() && s.values+len(n.Content) > mostValues {
		s.wrong(n, "with its aliases the file has more than %d values; write out less of it by aliases", mostValues)
	}
	s.values += len(n.Content)
	return !s.full()
}

func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(s.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return s.problems
}

// document returns the single YAML document of a file. If there is none, it records the problem and
// returns nil.
func (s *source) document(content []byte, example string) *yaml.Node {
	if at, text := unreadable(content); text != "" {
		s.wrong(at, "%s", text)
		return nil
	}
	var document yaml.Node
	if err := yaml.Load(content, &document); err != nil {
		s.explain(err, content, example)
		return nil
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		s.wrong(&yaml.Node{}, "no YAML document; begin with %s", example)
		return nil
	}
	return document.Content[0]
}

// unreadable finds what a YAML file cannot contain: another encoding, control characters, too many
// bytes.
func unreadable(content []byte) (at *yaml.Node, text string) {
	at = &yaml.Node{}
	switch {
	case len(content) > mostBytes:
		return at, fmt.Sprintf("the file is larger than %d MiB; is it the right one?", mostBytes>>20)
	case bytes.HasPrefix(content, []byte("\xff\xfe")), bytes.HasPrefix(content, []byte("\xfe\xff")),
		len(content) > 1 && (content[0] == 0 || content[1] == 0):
		return at, "the file is UTF-16 or UTF-32 text; save it as UTF-8"
	}
	at.Line, at.Column = 1, 1
	for rest := content; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8; save the file as UTF-8", rest[0])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			return at, fmt.Sprintf("the control character 0x%02x; YAML has none", r)
		case at.Column == 1 && bytes.HasPrefix(rest, []byte("%TAG")):
			return at, "the directive %TAG, which nothing in this file needs; remove the line"
		case r == '\n':
			at.Line, at.Column = at.Line+1, 0
		}
		at.Column++
		rest = rest[size:]
	}
	return at, ""
}

// explain records an error of the YAML parser in plain words.
func (s *source) explain(err error, content []byte, example string) {
	var failure *yaml.LoadError
	if !errors.As(err, &failure) {
		s.wrong(&yaml.Node{}, "not YAML: %v", err)
		return
	}
	at := &yaml.Node{Line: failure.Mark.Line, Column: failure.Mark.Column}
	text := strings.TrimPrefix(failure.Message, "yaml: ")
	switch {
	case strings.HasPrefix(text, "no documents"):
		text = "the file is empty; begin with " + example
	case strings.Contains(text, "found multiple"):
		text = "more than one YAML document; remove what follows the line ---"
	case strings.HasPrefix(text, "found character that cannot start any token"):
		switch c := characterAt(content, at); c {
		case "\t":
			text = "a tab in the indentation; YAML takes spaces"
		default:
			text = fmt.Sprintf("a text cannot begin with %s; put it in quotes, or leave the character out", c)
		}
	case strings.HasPrefix(text, "did not find expected key"):
		text = "the indentation fits no line above, or a text needs quotes"
	case strings.HasPrefix(text, "mapping values are not allowed"):
		text = "a field where none can be: the indentation is wrong, or a text with a colon needs quotes"
	case failure.ContextMsg != "":
		text = fmt.Sprintf("%s, %s that begins in line %d", text, failure.ContextMsg, failure.ContextMark.Line)
	}
	s.wrong(at, "%s", text)
}

func characterAt(content []byte, at *yaml.Node) string {
	lines := bytes.Split(content, []byte("\n"))
	if at.Line < 1 || at.Line > len(lines) {
		return "this character"
	}
	characters := []rune(strings.TrimPrefix(string(lines[at.Line-1]), "\ufeff"))
	if at.Column < 1 || at.Column > len(characters) {
		return "this character"
	}
	return string(characters[at.Column-1])
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

// field is an entry of a mapping.
type field struct {
	key   *yaml.Node
	value *yaml.Node
}

// fields returns the entries of a mapping in order, without duplicates. what names the mapping in
// an error.
func (s *source) fields(n *yaml.Node, what string) []field {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		s.wrong(n, "%s is %s; it has to be a mapping, field: value", what, kind(n))
		return nil
	}
	if !s.enter(n) {
		return nil
	}
	var list []field
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content) && !s.full(); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			s.wrong(key, "a name in %s is %s; it has to be a text", what, kind(key))
			continue
		}
		if before, twice := first[key.Value]; twice {
			s.wrong(key, "%s is given twice in %s; the first is in line %d", shown(key.Value), what, before.Line)
			continue
		}
		first[key.Value] = key
		list = append(list, field{key, value})
	}
	return list
}

// known returns the fields of a mapping by name, and refuses any that are not in names.
func (s *source) known(n *yaml.Node, what string, names ...string) map[string]field {
	found := map[string]field{}
	for _, f := range s.fields(n, what) {
		if !slices.Contains(names, f.key.Value) {
			s.wrong(f.key, "unknown field %s; %s has %s", shown(f.key.Value), what, strings.Join(names, ", "))
			continue
		}
		found[f.key.Value] = f
	}
	return found
}

// items returns the entries of a list.
func (s *source) items(n *yaml.Node, what string) []*yaml.Node {
	n = resolve(n)
	if n.Kind != yaml.SequenceNode {
		s.wrong(n, "%s is %s; it has to be a list", what, kind(n))
		return nil
	}
	if !s.enter(n) {
		return nil
	}
	list := make([]*yaml.Node, len(n.Content))
	for i, item := range n.Content {
		list[i] = resolve(item)
	}
	return list
}

// text returns a scalar as it is written. For anything else it records a problem and returns "".
func (s *source) text(n *yaml.Node, what string) string {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		s.wrong(n, "%s is %s; it has to be a text", what, kind(n))
		return ""
	}
	return n.Value
}

// flag returns true or false.
func (s *source) flag(n *yaml.Node, what string) bool {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		s.wrong(n, "%s is %s; write true or false", what, kind(n))
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// kind describes a node, for an error.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.ShortTag() == "!!null" {
			return "empty"
		}
		return shown(n.Value)
	}
	return "not readable"
}

// shown quotes a value in one line, truncated if it is long.
func shown(value string) string {
	const most = 60
	if len(value) > most {
		return fmt.Sprintf("%q (%d bytes)", value[:most]+"...", len(value))
	}
	return fmt.Sprintf("%q", value)
}
