// Package keytext encodes values from requests for use in keys. No value can make a key equal to
// another key, or change the key's hash slot in a cluster.
package keytext

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// longestPlain is the maximum length in bytes of a value that a key contains in full. Longer values
// are hashed.
const longestPlain = 128

// Value returns "name=value", or "name" with a hash if the value is long. The name must already be
// escaped by [Escape].
func Value(name, value string) string {
	if len(value) > longestPlain {
		return name + "~" + digest(value)
	}
	return name + "=" + Escape(value)
}

func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// Escape percent-encodes characters that would separate parts of a key or form a hash tag, and bytes
// that are not UTF-8, which nobody can type. Different strings have different results.
func Escape(text string) string {
	const special = "%|{}"
	if !strings.ContainsFunc(text, func(c rune) bool {
		return c < ' ' || c == 0x7f || c == utf8.RuneError || strings.ContainsRune(special, c)
	}) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		c, n := utf8.DecodeRuneInString(text)
		if c < ' ' || c == 0x7f || c == utf8.RuneError && n == 1 || strings.ContainsRune(special, c) {
			fmt.Fprintf(&b, "%%%02X", text[0])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// IPv6Bits is the default size of the IPv6 networks that count as one address.
const IPv6Bits = 64

// CheckBits returns an error if bits is not the size of an IPv6 network. maker is the function to
// name in the error.
func CheckBits(maker string, bits int) error {
	if bits < 1 || bits > 128 {
		return fmt.Errorf("%s(%d); give the size of a network, from 1 to 128, such as 64", maker, bits)
	}
	return nil
}

// Network returns addr as text. For an IPv6 address and ipv6Bits below 128, it returns the network
// with a prefix of ipv6Bits bits.
func Network(addr netip.Addr, ipv6Bits int) string {
	if addr.Is6() && ipv6Bits < 128 {
		return netip.PrefixFrom(addr, ipv6Bits).Masked().String()
	}
	return addr.String()
}

// Pooled returns the keys of a policy with a guarantee and a pool. key is the key of the caller under
// the policy, such as tenant|id=7, and pool names the pool. Both keys have the pool's as their hash
// tag, so in a cluster they are on one server.
func Pooled(key, pool string) (guarantee, shared string) {
	policy, caller, _ := strings.Cut(key, "|")
	shared = "{" + policy + "|" + Value("pool", pool) + "}"
	return shared + "|" + caller, shared
}
