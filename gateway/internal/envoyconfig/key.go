package envoyconfig

import (
	"strings"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// Key returns the key on the server for a descriptor of a domain: "domain|key=value|key=value".
// Special characters are percent-encoded and long values hashed, so that two descriptors never
// share a key by accident. If patterns has an element i, it replaces the value of entry i.
func Key(domain string, descriptor []*entries.RateLimitDescriptor_Entry, patterns map[int]string) string {
	var key strings.Builder
	key.WriteString(keytext.Escape(domain))
	for i, entry := range descriptor {
		value := entry.Value
		if pattern, ok := patterns[i]; ok {
			value = pattern
		}
		key.WriteByte('|')
		key.WriteString(keytext.Value(escapeName(entry.Key), value))
	}
	return key.String()
}

// escapeName is like keytext.Escape, but also escapes =, which separates the name of an entry from
// its value.
func escapeName(name string) string {
	return strings.ReplaceAll(keytext.Escape(name), "=", "%3D")
}
