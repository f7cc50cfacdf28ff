package functions

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"strings"
)

//go:embed vectors/*.json vectors/policies/*.json
var vectorFiles embed.FS

// VectorFile is one file in functions/vectors. It specifies the library's replies to calls at given
// times, step by step. The files are plain JSON, so that an implementation in any language can be
// tested with them.
type VectorFile struct {
	Name     string   `json:"-"`                  // the file name without .json
	About    string   `json:"about"`              // what the vectors test
	StartUS  int64    `json:"start_us"`           // the start of each vector, in microseconds since the epoch
	Policies []Policy `json:"policies,omitempty"` // the policies of the library, for LoadPolicyVectors
	Vectors  []Vector `json:"vectors"`
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
	AtUS        *int64          `json:"at_us,omitempty"`        // microseconds after the start; by default, as in the previous step
	Call        []string        `json:"call"`                   // the command and its arguments
	Reply       json.RawMessage `json:"reply,omitempty"`        // an integer, a string, null, or an array of these
	Error       string          `json:"error,omitempty"`        // the complete error reply
	ErrorPrefix string          `json:"error_prefix,omitempty"` // the beginning of the error reply, if servers differ in the rest
}

// LoadVectors returns the vectors that every library must satisfy, with or without policies, sorted
// by file name.
func LoadVectors() ([]VectorFile, error) { return loadVectors("vectors/*.json") }

// LoadPolicyVectors returns the vectors for libraries with policies. The replies in a file
// require a library with the file's Policies.
func LoadPolicyVectors() ([]VectorFile, error) { return loadVectors("vectors/policies/*.json") }

func loadVectors(pattern string) ([]VectorFile, error) {
	names, err := fs.Glob(vectorFiles, pattern)
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
	if len(file.Vectors) == 0 {
		return file, errors.New("no vectors")
	}
	for _, vector := range file.Vectors {
		if len(vector.Steps) == 0 {
			return file, fmt.Errorf("vector %q: no steps", vector.Name)
		}
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

// StepError describes the first wrong reply to a vector.
type StepError struct {
	Step    int   // index of the step, from 1
	AfterUS int64 // its time, in microseconds after the start
	Err     error // the error from Step.Compare
}

func (e *StepError) Error() string {
	return fmt.Sprintf("step %d, at %d µs: %v", e.Step, e.AfterUS, e.Err)
}

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }

// Run makes the vector's calls at their times, on a server without keys. setTime sets the server's
// clock. call sends a command, and returns the reply and the error for Step.Compare. The error of Run
// comes from setTime, or is a *StepError for the first wrong reply. Run skips the steps after a
// wrong reply, because they depend on it.
func (v Vector) Run(startUS int64, setTime func(us int64) error, call func(words ...string) (any, error)) error {
	after := int64(0)
	if err := setTime(startUS); err != nil {
		return err
	}
	for i, step := range v.Steps {
		if step.AtUS != nil {
			after = *step.AtUS
			if err := setTime(startUS + after); err != nil {
				return err
			}
		}
		if err := step.Compare(call(step.Call...)); err != nil {
			return &StepError{i + 1, after, err}
		}
	}
	return nil
}

// Compare compares a server's reply with the step. reply is an int64, a string, nil, or a []any of
// these. err is the error reply, or nil if the server sent none. Compare returns nil if the reply is
// as expected.
func (s Step) Compare(reply any, err error) error {
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
