package policies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// Read reads files, which together are one set of policies. If a file exists but is invalid, or if
// two files have policies of the same name, the error is of type Mistakes. If Read succeeds, the
// limits are not checked yet: File.Build and File.Findings do that. If a file has problems, Read also checks the file's
// limits, so that the error contains all problems.
func Read(names ...string) (*File, error) {
	files := make([]*File, 0, len(names))
	var problems Mistakes
	for _, name := range names {
		if name == "" {
			return nil, errors.New(`the name of a policies file is ""; write one such as policies.yaml`)
		}
		content, err := yamlfile.ReadFile(name, maxBytes)
		if err != nil {
			return nil, err
		}
		file, err := Parse(name, content)
		var found Mistakes
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
	for i, file := range files {
		all.Policies = append(all.Policies, file.Policies...)
		if i == 0 {
			all.Namespace = file.Namespace
		} else if file.Namespace != all.Namespace {
			problems = append(problems, Mistake{File: file.Name, Line: 1, Column: 1, Text: fmt.Sprintf("%s, and %s %s; files that are read together must belong to one namespace",
				belongs(file.Namespace), files[0].Name, belongs(all.Namespace))})
		}
	}
	problems = append(problems, all.twice()...)
	if len(problems) == 0 {
		if _, err := all.build(); err != nil { // all files together have too many policies, or too large ones
			problems = Mistakes{{File: all.Name, Text: strings.TrimPrefix(err.Error(), "functions: ")}}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return all, nil
}

func belongs(namespace string) string {
	if namespace == "" {
		return "names no namespace"
	}
	return "belongs to the namespace " + namespace
}

// twice returns a problem for each policy that has the name of an earlier one.
func (f *File) twice() Mistakes {
	var problems Mistakes
	first := map[string]Policy{}
	for _, p := range f.Policies {
		before, found := first[p.Name]
		if !found {
			first[p.Name] = p
			continue
		}
		problems = append(problems, Mistake{File: p.file, Line: p.at.Line, Column: p.at.Column, Text: fmt.Sprintf("%s is given twice; the first is at %s:%d:%d",
			yamlfile.Shown(p.Name), before.file, before.at.Line, before.at.Column)})
	}
	return problems
}

// In returns a copy of f in which each policy's name begins with namespace and a slash, as in a
// deployment of the namespace. If namespace is "", In uses the one that the files name. If they
// name none, In returns f itself. In does not change f. It returns an error if the files name another
// namespace.
func (f *File) In(namespace string) (*File, error) {
	if f.Namespace != "" && namespace != "" && namespace != f.Namespace {
		return nil, fmt.Errorf("%s belongs to the namespace %s, not to %s; leave out the namespace, or name the files of %s", f.Name, f.Namespace, namespace, namespace)
	}
	if namespace = cmp.Or(namespace, f.Namespace); namespace == "" {
		return f, nil
	}
	if err := functions.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	in := &File{Name: f.Name, Namespace: namespace, Policies: slices.Clone(f.Policies)}
	for i := range in.Policies {
		in.Policies[i].Name = namespace + "/" + in.Policies[i].Name
	}
	return in, nil
}
