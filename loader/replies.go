package loader

import "strings"

// Replies are parsed here rather than by go-redis's typed commands, because those refuse unknown
// fields and newer servers add fields.

// fields parses a reply that is a map or a list of alternating fields and values. It returns nil
// for any other reply.
func fields(reply any) map[string]any {
	switch v := reply.(type) {
	case map[any]any:
		m := make(map[string]any, len(v))
		for name, value := range v {
			if s, ok := name.(string); ok {
				m[s] = value
			}
		}
		return m
	case []any:
		if len(v)%2 != 0 {
			return nil
		}
		m := make(map[string]any, len(v)/2)
		for i := 0; i < len(v); i += 2 {
			s, ok := v[i].(string)
			if !ok {
				return nil
			}
			m[s] = v[i+1]
		}
		return m
	}
	return nil
}

// text returns field's value if it is a string, else "".
func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// info parses a reply to INFO.
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
