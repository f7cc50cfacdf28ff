package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

type jsonLines struct {
	clock  clock
	times  []string
	fields []string
	names  [][]string // possible names of each field
}

func newJSONLines(fields []string, called map[string]string) *jsonLines {
	j := &jsonLines{times: namesOf("time", called), fields: fields}
	for _, field := range fields {
		j.names = append(j.names, namesOf(field, called))
	}
	return j
}

func (j *jsonLines) parse(line []byte, values [][]byte) (int64, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return 0, fmt.Errorf("at byte %d: not a JSON object: %w", syntax.Offset, err)
		}
		return 0, fmt.Errorf("not a JSON object: %s", quoted(line))
	}
	when := firstOf(object, j.times)
	if when == nil {
		return 0, fmt.Errorf("no field %s; name the one that has the time, as in --field time=when", strings.Join(j.times, ", "))
	}
	at, err := j.clock.read(when)
	if err != nil {
		return 0, err
	}
	for i, field := range j.fields {
		values[i] = normalized(field, firstOf(object, j.names[i]))
	}
	return at, nil
}

// firstOf looks up the names in order, and returns the first nonempty value as text.
func firstOf(object map[string]json.RawMessage, names []string) []byte {
	for _, name := range names {
		if value := text(find(object, name)); len(value) > 0 {
			return value
		}
	}
	return nil
}

// find looks up a name, first as it is and then as a path into nested objects, such as request.uri.
func find(object map[string]json.RawMessage, name string) json.RawMessage {
	if raw, ok := object[name]; ok {
		return raw
	}
	outer, inner, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	raw, ok := object[outer]
	if !ok {
		return nil
	}
	var within map[string]json.RawMessage
	if json.Unmarshal(raw, &within) != nil {
		return nil
	}
	return find(within, inner)
}

// text returns a string, a number or a boolean as text. For a list it returns the first element,
// because some servers log headers as lists.
func text(raw json.RawMessage) []byte {
	raw = bytes.TrimLeft(raw, "[ \t\r\n") // skip opening brackets, to get to the first element of a list
	switch {
	case len(raw) == 0 || strings.IndexByte("]{n", raw[0]) >= 0:
		return nil
	case raw[0] != '"':
		if end := bytes.IndexAny(raw, "], \t\r\n"); end >= 0 {
			raw = raw[:end]
		}
		return raw
	}
	end, escapes := 1, false
	for ; raw[end] != '"'; end++ {
		if raw[end] == '\\' {
			escapes = true
			end++
		}
	}
	if !escapes {
		return raw[1:end]
	}
	var s string
	if json.Unmarshal(raw[:end+1], &s) != nil {
		return nil
	}
	return []byte(s)
}
