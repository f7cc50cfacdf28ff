package api

import (
	"reflect"
	"strings"
	"testing"
)

// TestExamples checks that an error about any field shows an example of it, and that the example is
// right.
func TestExamples(t *testing.T) {
	tested := 0
	for name, op := range operations {
		if op.request != nil {
			tested++
			exampled(t, name, "", op.request)
		}
	}
	if tested < 10 {
		t.Errorf("%d operations have a request", tested)
	}
}

func exampled(t *testing.T, operation, path string, of reflect.Type) {
	t.Helper()
	for i := range of.NumField() {
		name, required := nameOf(of.Field(i))
		at := join(path, name)
		err := fields(path, []byte(`{"`+name+`":null}`), reflect.New(of).Elem())
		if err == nil || strings.Count(err.Error(), `, such as "`) != 1 || !strings.HasSuffix(err.Error(), `, such as `+examples[at]) {
			t.Errorf("%s: %v; want an example of %s", operation, err, at)
		}
		err = fields(path, []byte("{"+examples[at]+"}"), reflect.New(of).Elem())
		if err != nil && !strings.Contains(err.Error(), " is missing; ") {
			t.Errorf("%s: the example of %s: %v", operation, at, err)
		}
		err = fields(path, []byte("{}"), reflect.New(of).Elem())
		if required && (err == nil || !strings.Contains(err.Error(), " is missing; ") || !strings.Contains(err.Error(), "; give it, such as ")) {
			t.Errorf("%s without %s: %v", operation, at, err)
		}
		if of.Field(i).Type == reflect.TypeFor[*onceRequest]() {
			exampled(t, operation, at, of.Field(i).Type.Elem())
		}
	}
}
