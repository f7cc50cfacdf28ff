package functions

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"strings"
)

//go:embed vectors/*.json
var vectorFiles embed.FS

// VectorFile is one file in functions/vectors: the library's replies to calls at given times, step
// by step. The files are plain JSON, so that an implementation in any language can be tested with
// them.
type VectorFile struct {
	Name    string   `json:"-"`        // the file name without .json
	About   string   `json:"about"`    // what the file tests
	StartUS int64    `json:"start_us"` // the start of each vector, in microseconds since the epoch
	Vectors []Vector `json:"vectors"`
}

// Vector is a sequence of steps that begins with an empty keyspace. All its keys have the hash tag
// {v}.
type Vector struct {
	Name  string `json:"name"`
	Steps []Step `json:"steps"`
}

// Step is one command at a given time and its result. Exactly one of Reply, Error and ErrorPrefix
// is set.
type Step struct {
	AtUS        *int64          `json:"at_us,omitempty"`        // microseconds after the start; by default that of the previous step
	Call        []string        `json:"call"`                   // the command and its arguments
	Reply       json.RawMessage `json:"reply,omitempty"`        // an integer, a string, null, or an array of these
	Error       string          `json:"error,omitempty"`        // the complete error reply
	ErrorPrefix string          `json:"error_prefix,omitempty"` // the beginning of the error reply, if servers differ in the rest
}

// LoadVectors returns all files in functions/vectors, sorted by name.
func LoadVectors() ([]VectorFile, error) {
	names, err := fs.Glob(vectorFiles, "vectors/*.json")
	if err != nil {
		return nil, err
	}
	files := make([]VectorFile, 0, len(names))
	for _, name := range names {
		file, err := readVectors(name)
		if err != nil {
			return nil, fmt.Errorf("functions: %s: %w", name, err)
		}
		files = append(files, file)
	}
	return files, nil
}

func readVectors(name string) (VectorFile, error) {
	file := VectorFile{Name: strings.TrimSuffix(path.Base(name), ".json")}
	content, err := vectorFiles.ReadFile(name)
	if err != nil {
		return file, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return file, err
	}
	for _, vector := range file.Vectors {
		for i, step := range vector.Steps {
			if err := step.valid(); err != nil {
				return file, fmt.Errorf("vector %q, step %d: %w", vector.Name, i+1, err)
			}
		}
	}
	return file, nil
}

func (s Step) valid() error {
	expectations := 0
	for _, given := range []bool{s.Reply != nil, s.Error != "", s.ErrorPrefix != ""} {
		if given {
			expectations++
		}
	}
	if len(s.Call) == 0 || expectations != 1 {
		return fmt.Errorf("want a call and exactly one of reply, error, error_prefix")
	}
	return nil
}

// Check compares a server's reply with the step. reply is an int64, a string, nil, or a []any of
// these. err is the error reply, if it was one. Check returns nil if the reply is as expected.
func (s Step) Check(reply any, err error) error {
	switch {
	case s.Error != "" || s.ErrorPrefix != "":
		if err == nil {
			return fmt.Errorf("%s: got %v, want the error %q", s, reply, s.Error+s.ErrorPrefix)
		}
		if got := err.Error(); (s.Error != "" && got != s.Error) || !strings.HasPrefix(got, s.ErrorPrefix) {
			return fmt.Errorf("%s: got the error %q, want %q", s, got, s.Error+s.ErrorPrefix)
		}
		return nil
	case err != nil:
		return fmt.Errorf("%s: got the error %q, want %s", s, err, s.Reply)
	}
	got, err := json.Marshal(reply)
	if err != nil {
		return fmt.Errorf("%s: unreadable reply %v: %w", s, reply, err)
	}
	if !sameJSON(got, s.Reply) {
		return fmt.Errorf("%s: got %s, want %s", s, got, s.Reply)
	}
	return nil
}

// String returns the step's call, with long arguments cut.
func (s Step) String() string {
	words := make([]string, len(s.Call))
	for i, word := range s.Call {
		if len(word) > 60 {
			word = fmt.Sprintf("%s...(%d bytes)", word[:60], len(word))
		}
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \"") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	return strings.Join(words, " ")
}

func sameJSON(a, b []byte) bool {
	decode := func(raw []byte) (value any, err error) {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber() // keeps integers of 2^53 and more exact
		err = decoder.Decode(&value)
		return value, err
	}
	left, err := decode(a)
	if err != nil {
		return false
	}
	right, err := decode(b)
	return err == nil && reflect.DeepEqual(left, right)
}
