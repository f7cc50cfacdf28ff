// Package names counts the exported names of a package, so that a test can hold it to a bound.
package names

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Of returns the names that `go doc -all` shows at top level for the package in dir, sorted:
// constants, variables, functions, types, and methods as Type.Method. Fields of structs and methods
// of interfaces are not names of their own.
func Of(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	p, err := doc.NewFromFiles(files, parsed, dir)
	if err != nil {
		return nil, err
	}
	var names []string
	add := func(prefix string, values []*doc.Value, functions []*doc.Func) {
		for _, v := range values {
			names = append(names, v.Names...)
		}
		for _, f := range functions {
			names = append(names, prefix+f.Name)
		}
	}
	add("", slices.Concat(p.Consts, p.Vars), p.Funcs)
	for _, t := range p.Types {
		names = append(names, t.Name)
		add("", slices.Concat(t.Consts, t.Vars), t.Funcs)
		add(t.Name+".", nil, t.Methods)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == "_" }), nil // doc's name for what is not exported
}

// AtMost fails the test if the package in dir has more than most exported names; see [Of]. It logs
// the names.
func AtMost(t *testing.T, dir string, most int) {
	t.Helper()
	names, err := Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d exported names: %s", len(names), strings.Join(names, ", "))
	if len(names) == 0 || len(names) > most {
		t.Errorf("%s has %d exported names, and at least 1 and at most %d are allowed", dir, len(names), most)
	}
}
