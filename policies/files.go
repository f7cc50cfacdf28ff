package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// Read reads files, which together are one set of policies. If a file exists but is invalid, or if
// two files have policies of the same name, the error is of type Problems. If Read succeeds, the
// limits are not checked yet: File.Build and File.Check do that. If a file has problems, Read also checks the file's
// limits, so that the error contains all problems.
func Read(names ...string) (*File, error) {
	files := make([]*File, 0, len(names))
	var problems Problems
	for _, name := range names {
		content, err := yamlfile.ReadFile(name, maxBytes)
		if err != nil {
			return nil, err
		}
		file, err := Parse(name, content)
		var found Problems
		switch {
		case errors.As(err, &found):
			problems = append(problems, found...)
		case err != nil:
			return nil, err
		default:
			files = append(files, file)
		}
	}
	if len(files) == 1 && len(names) == 1 {
		return files[0], nil
	}
	all := &File{Name: strings.Join(names, ", ")}
	for _, file := range files {
		all.Policies = append(all.Policies, file.Policies...)
	}
	problems = append(problems, all.twice()...)
	if len(problems) == 0 {
		if _, err := all.build(); err != nil { // all files together have too many policies, or too large ones
			problems = Problems{{File: all.Name, Text: strings.TrimPrefix(err.Error(), "functions: ")}}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return all, nil
}

// twice returns a problem for each policy that has the name of an earlier one.
func (f *File) twice() Problems {
	var problems Problems
	first := map[string]Policy{}
	for _, p := range f.Policies {
		before, found := first[p.Name]
		if !found {
			first[p.Name] = p
			continue
		}
		problems = append(problems, Problem{File: p.file, Line: p.at.Line, Column: p.at.Column, Text: fmt.Sprintf("%s is given twice; the first is at %s:%d:%d",
			yamlfile.Shown(p.Name), before.file, before.at.Line, before.at.Column)})
	}
	return problems
}

// In returns a copy of f in which each policy's name begins with namespace and a slash, as in a
// deployment of the namespace. In does not change f. If namespace is "", it returns f itself.
func (f *File) In(namespace string) (*File, error) {
	if namespace == "" {
		return f, nil
	}
	if err := functions.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	in := &File{Name: f.Name, Policies: slices.Clone(f.Policies)}
	for i := range in.Policies {
		in.Policies[i].Name = namespace + "/" + in.Policies[i].Name
	}
	return in, nil
}
