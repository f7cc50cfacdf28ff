package yamlfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MostMistakes is the maximum number of problems to report. If there are more, reading stops, and
// an additional problem says that more follow.
const MostMistakes = 50

// ReadFile returns the content of a file, or the first mostBytes+1 bytes if the file is larger than
// mostBytes.
func ReadFile(name string, mostBytes int) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w; name another file", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, int64(mostBytes)+1))
	if err != nil {
		return nil, fmt.Errorf("%w; name another file", err)
	}
	return content, nil
}

// Source is a file being parsed, with the problems found so far.
type Source struct {
	Name      string // for messages
	MostBytes int    // the size limit of the YAML file
	Mistakes  Mistakes
	values    int // number of parsed values; each use of an alias counts
}

// Wrong records a problem at the position of a node. After MostMistakes problems, it records only
// one more.
func (s *Source) Wrong(at *yaml.Node, format string, args ...any) {
	if !s.Full() {
		s.Mistakes = append(s.Mistakes, Mistake{s.Name, at.Line, at.Column, fmt.Sprintf(format, args...)})
	}
}

// Full reports whether to stop parsing because there are too many problems or values. The limit on
// values is MostBytes, because only a file with aliases has more values than bytes.
func (s *Source) Full() bool { return len(s.Mistakes) > MostMistakes || s.values > s.MostBytes }

// Err returns the problems as a value of type Mistakes, or nil if there are none.
func (s *Source) Err() error {
	if len(s.Mistakes) == 0 {
		return nil
	}
	return s.Sorted()
}

// Sorted returns the problems in the order of their positions. If there are too many, the last one
// only says that more follow.
func (s *Source) Sorted() Mistakes {
	slices.SortStableFunc(s.Mistakes, func(a, b Mistake) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	if len(s.Mistakes) > MostMistakes {
		s.Mistakes[MostMistakes].Text = "more problems follow; correct the others first"
	}
	return s.Mistakes
}

// Document returns the single YAML document of a file. If the file does not have exactly one
// document, it records a problem and returns nil. The problem suggests beginning the file like
// example.
func (s *Source) Document(content []byte, example string) *yaml.Node {
	if at, text := unreadable(content, s.MostBytes); text != "" {
		s.Wrong(at, "%s", text)
		return nil
	}
	var document yaml.Node
	if err := yaml.Load(content, &document); err != nil {
		s.explain(err, example)
		return nil
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		s.Wrong(&yaml.Node{}, "no YAML document; begin with %s", example)
		return nil
	}
	return document.Content[0]
}

// unreadable reports why content is rejected before it is parsed, and where: it is not UTF-8, has
// a control character or a %TAG directive, or is longer than mostBytes. text is "" if nothing is
// wrong.
func unreadable(content []byte, mostBytes int) (at *yaml.Node, text string) {
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
			return at, fmt.Sprintf("the control character 0x%02x is not allowed", r)
		case at.Column == 1 && bytes.HasPrefix(rest, []byte("%TAG")):
			return at, "the directive %TAG is not allowed; remove the line"
		case r == '\n':
			at.Line, at.Column = at.Line+1, 0
		}
		at.Column++
		rest = rest[size:]
	}
	return at, ""
}

// explain records an error from the YAML parser in plain words.
func (s *Source) explain(err error, example string) {
	var failure *yaml.LoadError
	if !errors.As(err, &failure) {
		s.Wrong(&yaml.Node{}, "not YAML: %v", err)
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
		text = "a value cannot begin here with a tab, @, ` or %; indent with spaces, and put such a value in quotes"
	case strings.HasPrefix(text, "did not find expected key"):
		text = "the indentation does not match a line above, or a value needs quotes"
	case strings.HasPrefix(text, "mapping values are not allowed"):
		text = "a field is not allowed here; check the indentation, and put values with a colon in quotes"
	case failure.ContextMsg != "":
		text = fmt.Sprintf("%s, %s that begins in line %d", text, failure.ContextMsg, failure.ContextMark.Line)
	}
	s.Wrong(at, "%s", text)
}
