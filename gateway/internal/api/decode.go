package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// decode sets the fields of a struct from a JSON object. Unlike package encoding/json, it accepts
// names only in their exact spelling. It refuses unknown and repeated names, null, empty strings,
// and numbers with a decimal point or an exponent. The JSON must be UTF-8 without unpaired surrogates,
// because otherwise invalid sequences in two keys could decode to the same character.
func decode(body []byte, request any) error {
	if !utf8.Valid(body) {
		return bad("the body is not UTF-8; encode it as UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	var object json.RawMessage
	if err := d.Decode(&object); errors.Is(err, io.EOF) {
		return bad(`the body is empty; send a JSON object such as {"keys":["user:42"],"limits":["100/m"]}`)
	} else if err != nil {
		return bad("the body is not JSON (%v); send a JSON object", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the JSON object; send one object")
	}
	return fields("", object, reflect.ValueOf(request).Elem())
}

// fields sets the fields of a struct from an object. path is the path of the object, or "" for the
// whole request.
func fields(path string, object json.RawMessage, into reflect.Value) error {
	if object[0] != '{' {
		return bad("%s is %s; send a JSON object", at(path), shown(object))
	}
	names := map[string]int{}
	var list []string
	for i := range into.NumField() {
		name, _ := nameOf(into.Type().Field(i))
		names[name] = i
		list = append(list, name)
	}
	d := json.NewDecoder(bytes.NewReader(object))
	_, _ = d.Token() // skip the brace; Token returns no errors here, because the object is valid JSON
	given := map[string]bool{}
	for d.More() {
		token, _ := d.Token()
		name, _ := token.(string)
		var value json.RawMessage
		_ = d.Decode(&value)
		i, known := names[name]
		switch {
		case !known:
			return bad("%s has an unknown field %s; the fields are %s", at(path), printable.Key(remedy.Cut(name)), strings.Join(list, ", "))
		case given[name]:
			return bad("%s has the field %s twice; keep one", at(path), name)
		}
		given[name] = true
		if err := set(join(path, name), value, into.Field(i)); err != nil {
			return exemplified(join(path, name), err)
		}
	}
	for i := range into.NumField() {
		if name, required := nameOf(into.Type().Field(i)); required && !given[name] {
			return exemplified(join(path, name), bad("the field %s is missing; the fields are %s; give it", join(path, name), strings.Join(list, ", ")))
		}
	}
	return nil
}

func nameOf(field reflect.StructField) (name string, required bool) {
	name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name, option != "omitempty"
}

func set(path string, value json.RawMessage, into reflect.Value) error {
	switch into.Interface().(type) {
	case bool:
		if text := string(value); text == "true" || text == "false" {
			into.SetBool(text == "true")
			return nil
		}
		return bad("%s is %s; write true or false", path, shown(value))
	case whole:
		n, err := number(path, "BADARGS", value)
		into.SetInt(n)
		return err
	case costs:
		return setCosts(path, value, into)
	case *onceRequest:
		into.Set(reflect.New(into.Type().Elem()))
		return fields(path, value, into.Elem())
	}
	if into.Kind() == reflect.String {
		return setText(path, value, into)
	}
	items, ok := list(value)
	if !ok {
		return bad("%s is %s; write a list", path, shown(value))
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		if err := setText(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func setText(path string, value json.RawMessage, into reflect.Value) error {
	var text string
	if json.Unmarshal(value, &text) != nil || string(value) == "null" {
		return bad("%s is %s; write a string", path, shown(value))
	}
	if halved(value) {
		return bad("%s is %s, with half of a surrogate pair; write both halves", path, shown(value))
	}
	if text == "" {
		return bad("%s is empty; give at least one character, or leave the field out", path)
	}
	into.SetString(text)
	return nil
}

// halved reports whether a valid JSON string contains an unpaired surrogate. All unpaired
// surrogates would decode to the same character.
func halved(value []byte) bool {
	unit := func(i int) rune {
		if i+6 > len(value) || value[i] != '\\' || value[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(value[i+2:i+6]), 16, 16)
		return rune(n)
	}
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		if r := unit(i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, unit(i+6)) == utf8.RuneError {
				return true
			}
			i += 10
		}
		i++ // skip the escaped character, which may itself be a backslash
	}
	return false
}

func setCosts(path string, value json.RawMessage, into reflect.Value) error {
	items, ok := list(value)
	if !ok {
		items = []json.RawMessage{value}
	}
	all := make(costs, len(items))
	for i, item := range items {
		var err error
		if all[i], err = number(path, "BADCOST", item); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return bad("%s is an empty list; leave the field out for a cost of 1", path)
	}
	into.Set(reflect.ValueOf(all))
	return nil
}

// number parses a whole number. Its error contains path and reason.
func number(path, reason string, value json.RawMessage) (int64, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, &invalid{http.StatusBadRequest, reason, fmt.Sprintf("%s is %s; write a whole number of at most 2^53 in digits", path, shown(value))}
	}
	return n, nil
}

func list(value json.RawMessage) (items []json.RawMessage, ok bool) {
	return items, value[0] == '[' && json.Unmarshal(value, &items) == nil
}

func at(path string) string { return cmp.Or(path, "the request") }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// shown returns a value in printable form, cut to 60 bytes, for an error message.
func shown(value json.RawMessage) string { return printable.Line(remedy.Cut(string(value))) }

func bad(format string, args ...any) error {
	return &invalid{http.StatusBadRequest, "BADARGS", fmt.Sprintf(format, args...)}
}
