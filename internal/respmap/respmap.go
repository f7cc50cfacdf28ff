// Package respmap reads maps in Redis replies.
package respmap

// Of returns the fields of a reply that is a map. RESP3 sends a map as such; RESP2 and the library
// send a list that alternates names and values. Of returns nil for any other reply. If a name
// occurs twice, the last value counts.
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
