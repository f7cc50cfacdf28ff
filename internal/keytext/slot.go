package keytext

import (
	"fmt"
	"strings"
)

// SameSlot returns a prefix for other keys in the hash slot of key. prefix is the client's own
// prefix of every key. If the braces in prefix or key make this impossible, SameSlot returns an
// error.
func SameSlot(prefix, key string) (string, error) {
	full := prefix + key
	if _, after, ok := strings.Cut(full, "{"); ok && strings.Index(after, "}") > 0 {
		return key, nil // key has a hash tag
	}
	if strings.Contains(full, "}") || strings.Contains(prefix, "{") {
		return "", fmt.Errorf("BADKEYS no other key is certain to be in the hash slot of %q, because of its braces; give it a hash tag, such as {user:42}", full)
	}
	return "{" + full + "}", nil
}
