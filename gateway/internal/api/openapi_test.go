package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/internal/problem"
)

// specification is the part of OpenAPI that openapi.yaml uses. Decoding fails for any other field.
type specification struct {
	OpenAPI    string         `yaml:"openapi"`
	Info       map[string]any `yaml:"info"`
	Paths      map[string]map[string]*described
	Components struct {
		Responses map[string]*response
		Schemas   map[string]*schema
	}
}

type described struct {
	OperationID string `yaml:"operationId"`
	Summary     string
	RequestBody *struct {
		Required bool
		Content  map[string]content
	} `yaml:"requestBody"`
	Responses map[string]*response
}

type response struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     map[string]content
}

type content struct {
	Schema   *schema
	Examples map[string]struct{ Value map[string]any }
}

type schema struct {
	Ref         string `yaml:"$ref"`
	Type        any
	Format      string
	Description string
	Required    []string
	Properties  map[string]*schema
	Additional  any `yaml:"additionalProperties"`
	Items       *schema
	OneOf       []*schema `yaml:"oneOf"`
	Minimum     *int64
	Maximum     *int64
	Enum        []int64
	MinLength   *int `yaml:"minLength"`
	MinItems    *int `yaml:"minItems"`
}

func load(t *testing.T) *specification {
	t.Helper()
	var s specification
	if err := yaml.Load(document, &s, yaml.WithKnownFields()); err != nil {
		t.Fatal(err)
	}
	return &s
}

func (s *specification) response(r *response) *response {
	if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
		return s.Components.Responses[name]
	}
	return r
}

func (s *specification) schema(x *schema) *schema {
	if name, ok := strings.CutPrefix(x.Ref, "#/components/schemas/"); ok {
		return s.Components.Schemas[name]
	}
	return x
}

// describe describes a schema, in the same words as shape describes a Go type.
func (s *specification) describe(x *schema) string {
	switch x = s.schema(x); {
	case x == nil:
		return "a reference to nothing"
	case len(x.OneOf) > 0:
		var of []string
		for _, one := range x.OneOf {
			of = append(of, s.describe(one))
		}
		return strings.Join(of, " or ")
	case x.Items != nil:
		return "list of " + s.describe(x.Items)
	case x.Properties == nil:
		if more, ok := x.Additional.(map[string]any); ok {
			return fmt.Sprint("map of ", more["type"])
		}
		return fmt.Sprint(x.Type)
	}
	var fields []string
	for name, property := range x.Properties {
		if !slices.Contains(x.Required, name) {
			name += "?"
		}
		fields = append(fields, name+": "+s.describe(property))
	}
	slices.Sort(fields)
	text := "{" + strings.Join(fields, ", ") + "}"
	if x.Additional == false {
		text += " only"
	}
	return text
}

// shape describes the JSON form of a Go type. If request is true, t is the type of a request body,
// in which unknown fields are errors.
func shape(t reflect.Type, request bool) string {
	switch {
	case t == reflect.TypeFor[costs]():
		return "integer or list of integer"
	case t.Kind() == reflect.Pointer:
		return shape(t.Elem(), request)
	case t.Kind() == reflect.Slice:
		return "list of " + shape(t.Elem(), request)
	case t.Kind() == reflect.Map:
		return "map of " + shape(t.Elem(), request)
	case t.Kind() != reflect.Struct:
		return map[reflect.Kind]string{reflect.Bool: "boolean", reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer"}[t.Kind()]
	}
	var fields []string
	for _, field := range reflect.VisibleFields(t) {
		if field.Anonymous {
			continue
		}
		name, required := nameOf(field)
		if !required {
			name += "?"
		}
		fields = append(fields, name+": "+shape(field.Type, request))
	}
	slices.Sort(fields)
	text := "{" + strings.Join(fields, ", ") + "}"
	if request {
		text += " only"
	}
	return text
}

func TestDocumentHasEveryField(t *testing.T) {
	s := load(t)
	paths := slices.Sorted(maps.Keys(s.Paths))
	want := []string{Prefix + "openapi.yaml"}
	for name := range operations {
		want = append(want, Prefix+name)
	}
	if slices.Sort(want); !slices.Equal(paths, want) {
		t.Errorf("the document has the paths %q, the handler %q", paths, want)
	}
	for name, op := range operations {
		methods := s.Paths[Prefix+name]
		if given := strings.ToUpper(strings.Join(slices.Sorted(maps.Keys(methods)), ", ")); given != op.methods() {
			t.Errorf("%s: the document has %s, the handler %s", name, given, op.methods())
		}
		for method, d := range methods {
			if got, want := s.describe(s.response(d.Responses["200"]).Content["application/json"].Schema), shape(op.reply, false); got != want {
				t.Errorf("the reply to %s %s is\n%s in the document and\n%s in the handler", method, name, got, want)
			}
			for status, r := range d.Responses {
				switch {
				case status == "200":
					continue
				case status == "429": // a denial, which is a reply
					if got, want := s.describe(r.Content["application/json"].Schema), shape(op.reply, false); got != want {
						t.Errorf("the reply %s to %s %s is\n%s in the document and\n%s in the handler", status, method, name, got, want)
					}
					continue
				}
				if got, want := s.describe(s.response(r).Content["application/problem+json"].Schema), shape(reflect.TypeFor[problem.Details](), false); got != want {
					t.Errorf("the reply %s to %s %s is\n%s in the document and\n%s in the handler", status, method, name, got, want)
				}
			}
			if method == "get" {
				continue
			}
			if got, want := s.describe(d.RequestBody.Content["application/json"].Schema), shape(op.request, true); got != want {
				t.Errorf("the request of %s %s is\n%s in the document and\n%s in the handler", method, name, got, want)
			}
			if required := d.RequestBody.Required; required != (name != "info") {
				t.Errorf("%s: required is %v", name, required)
			}
		}
	}
}

// limitsOf matches the first limit of a request.
var limitsOf = regexp.MustCompile(`("limits?":\[?)"[^"]*"(.*)`)

// TestDocumentHasEveryStatus checks that each example in openapi.yaml gets a decision. It also
// checks that openapi.yaml lists the statuses that requests get, and no others.
func TestDocumentHasEveryStatus(t *testing.T) {
	s := load(t)
	for name, op := range operations {
		for method, d := range s.Paths[Prefix+name] {
			up, down := newHandler(t, newLimiter(t)), newHandler(t, stopped(t))
			got := map[string]bool{}
			var body string
			try := func(h http.Handler, body string, header ...string) {
				t.Helper()
				status := fmt.Sprint(send(t, h, strings.ToUpper(method), name, body, header...).Code)
				if got[status] = true; d.Responses[status] == nil {
					t.Errorf("%s %s %.100s: %s is not in the document", method, name, body, status)
				}
			}
			if d.RequestBody != nil {
				examples := d.RequestBody.Content["application/json"].Examples
				for _, title := range slices.Sorted(maps.Keys(examples)) {
					example := examples[title]
					if name == "commit" {
						example.Value["reservation_id"] = reserved(t, up)
					}
					text, err := json.Marshal(example.Value)
					if err != nil {
						t.Fatal(err)
					}
					if answer := send(t, up, "POST", name, string(text)); answer.Code != http.StatusOK {
						t.Errorf("%s, %s: %d %s", name, title, answer.Code, answer.Body)
					}
					body = cmp.Or(body, string(text))
				}
				try(up, "{")
				try(up, strings.Repeat(" ", mostBytes+1))
				try(up, body, "Sec-Fetch-Site", "cross-site")
			}
			if op.admin {
				try(up, body, "Authorization", "Bearer wrong")
			}
			try(up, body)
			try(down, body)
			switch name {
			case "reserve":
				try(up, strings.Replace(body, `"amount":1500`, `"amount":150000`, 1))
			case "commit":
				try(up, `{"reservation_id":"none","actual":1}`)
			}
			if text := limitsOf.ReplaceAllString(body, `${1}"@none"${2}`); text != body {
				try(up, text)
			}
			if want := slices.Sorted(maps.Keys(d.Responses)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
				t.Errorf("%s %s: statuses %v, the document has %v (request %v)", method, name, slices.Sorted(maps.Keys(got)), want, op.request)
			}
		}
	}
}

func TestDocumentIsServed(t *testing.T) {
	answer := send(t, newHandler(t, newLimiter(t)), "GET", "openapi.yaml", "")
	if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/yaml" || answer.Body.String() != string(document) {
		t.Errorf("%d %v, %d bytes", answer.Code, answer.Header(), answer.Body.Len())
	}
}
