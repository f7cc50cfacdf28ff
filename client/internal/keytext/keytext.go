// Package keytext writes what a caller sends into the key of a limit, so that no value passes for a part of another key, or
// moves it in a cluster.
package keytext

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// longestPlain is the most bytes of a value that stand in a key as they are.
const longestPlain = 128

// Value is "name=value", with a hash in place of a long value. The name is written as [Escape] does.
func Value(name, value string) string {
	if len(value) > longestPlain {
		return name + "~" + digest(value)
	}
	return name + "=" + Escape(value)
}

// Secret is "kind:name~" and a hash of the value, which may be a secret.
func Secret(kind, name, value string) string { return kind + ":" + Escape(name) + "~" + digest(value) }

func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// Escape writes what would separate parts of a key, or be a hash tag of a cluster, as in a URL; no two texts become equal.
func Escape(text string) string {
	const special = "%|{}"
	if !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f || strings.ContainsRune(special, c) }) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == 0x7f || strings.IndexByte(special, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
