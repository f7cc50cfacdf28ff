package loader

import "strings"

// This file parses replies itself, because the typed commands of go-redis reject unknown fields and
// newer servers add fields.

// stringOf returns field's value if it is a string, else "".
func stringOf(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

func info(reply any) map[string]string {
	s, _ := reply.(string)
	m := map[string]string{}
	for line := range strings.Lines(s) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
