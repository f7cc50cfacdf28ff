// Package names counts the exported names of a package, so that a test can hold it to a bound.
package names

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Of returns the names that `go doc -all` shows at top level for the package in dir, sorted:
// constants, variables, functions, types, and methods as Type.Method. Fields of structs and methods
// of interfaces are not names of their own.
func Of(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	add := func(prefix string, idents ...*ast.Ident) {
		for _, id := range idents {
			if id.IsExported() {
				names = append(names, prefix+id.Name)
			}
		}
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if of := receiver(d); d.Recv == nil {
					add("", d.Name)
				} else if ast.IsExported(of) {
					add(of+".", d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add("", s.Name)
					case *ast.ValueSpec:
						add("", s.Names...)
					}
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// receiver returns the name of the type that a method belongs to, or "".
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name
		default:
			return ""
		}
	}
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
