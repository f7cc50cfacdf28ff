// Package respmap reads maps in Redis replies.
package respmap

// Of returns the fields of a reply that is a map. The reply is a map in RESP3, and a list of
// alternating names and values in RESP2 or from the library. Of returns nil for any other reply. If a
// name occurs twice, Of returns the last value.
func Of(reply any) map[string]any {
	switch reply := reply.(type) {
	case map[any]any:
		fields := make(map[string]any, len(reply))
		for name, value := range reply {
			if name, ok := name.(string); ok {
				fields[name] = value
			}
		}
		return fields
	case []any:
		if len(reply)%2 != 0 {
			return nil
		}
		fields := make(map[string]any, len(reply)/2)
		for i := 0; i < len(reply); i += 2 {
			name, ok := reply[i].(string)
			if !ok {
				return nil
			}
			fields[name] = reply[i+1]
		}
		return fields
	}
	return nil
}
