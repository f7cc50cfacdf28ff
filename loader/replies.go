package loader

import "strings"

// Replies are read here rather than by go-redis's typed commands: those refuse a field that they do not know, and newer
// servers add fields.

// fields reads a reply of field, value, field, value, or a map; nil where it is neither.
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

// text is field's value if it is text, else "".
func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// info reads what INFO returns.
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
