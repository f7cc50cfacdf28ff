// Package key makes keys as packages httplimit and grpclimit write them, so that a program or an
// operator finds the key of one caller:
//
//	limiter.Override(ctx, "1000/m", time.Hour, key.Header("api", "X-Api-Key", apiKey))
//
// The first argument of each function is the name of the middleware or the interceptor. A value that is
// secret or long is in the key as a hash.
package key

import (
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// ErrMissing is the error that the function of an httplimit.Func or a grpclimit.Func must return if
// the request or the call lacks the value for the key. The sender then gets 400 Bad Request or
// INVALID_ARGUMENT with the text of the error, or FirstOf tries the next key. Any other error is
// treated as an error of the server: no decision is made.
var ErrMissing = keytext.ErrMissing

// Header returns the key of httplimit.Header for a value: Header("api", "X-Api-Key", "k1") is
// "api|header:X-Api-Key~" and 32 hexadecimal digits.
func Header(name, header, value string) string {
	return name + "|" + keytext.Hashed("header", textproto.CanonicalMIMEHeaderKey(header), value)
}

// Cookie returns the key of httplimit.Cookie for a value.
func Cookie(name, cookie, value string) string {
	return name + "|" + keytext.Hashed("cookie", cookie, keytext.Cookie(value))
}

// Metadata returns the key of grpclimit.Metadata for a value.
func Metadata(name, metadata, value string) string {
	return name + "|" + keytext.Hashed("metadata", strings.ToLower(metadata), value)
}

// Address returns the key of httplimit.Address with its default options: Address("api", addr) is
// "api|address=203.0.113.7" or, for an IPv6 address, its /64 network.
func Address(name string, addr netip.Addr) string {
	return name + "|address=" + keytext.Network(addr.Unmap().WithZone(""), keytext.IPv6Bits)
}

// Func returns the key of httplimit.Func and grpclimit.Func for a result of their function:
// Func("api", "tenant", "acme") is "api|tenant=acme".
func Func(name, label, value string) string {
	return name + "|" + keytext.Value(keytext.Escape(label), value)
}
