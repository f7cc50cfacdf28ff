package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/keytext"
	"slices"
)

// An AddressOption configures how [Address] finds the client's address.
type AddressOption func(*addresses) error

const xForwardedFor, forwarded = "X-Forwarded-For", "Forwarded"

type addresses struct {
	trusted     []netip.Prefix
	trustedUnix bool
	field       string // the header field of the trusted proxies, in canonical form
	ipv6Bits    int
}

// WithTrustedProxies lists the proxies in front of the server, as networks or addresses: "10.0.0.0/8",
// "2001:db8::1", and "unix:" for proxies that connect over a Unix socket. field is the header field in
// which they write addresses: "X-Forwarded-For" or "Forwarded" (RFC 7239). The other field is never
// read: a proxy forwards it unchanged, and the client may have forged it. The field from any other
// sender is ignored. If WithTrustedProxies is given several times, with the same field, all of the
// networks count.
func WithTrustedProxies(field string, networks ...string) AddressOption {
	return func(a *addresses) error {
		name := http.CanonicalHeaderKey(field)
		switch {
		case name != xForwardedFor && name != forwarded:
			return fmt.Errorf("WithTrustedProxies: %q is not a field that is read; give X-Forwarded-For or Forwarded, then the networks", field)
		case a.field != "" && a.field != name:
			return fmt.Errorf("WithTrustedProxies: both %s and %s are given; a proxy writes one of them, and a client can forge the other", a.field, name)
		}
		a.field = name
		for _, text := range networks {
			if text == "unix:" {
				a.trustedUnix = true
				continue
			}
			network, err := netip.ParsePrefix(text)
			if addr, err2 := netip.ParseAddr(text); err2 == nil && addr.Zone() == "" {
				network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			switch {
			case err != nil:
				return fmt.Errorf("WithTrustedProxies: %q is not a network; write an address, unix: or one such as 10.0.0.0/8", text)
			case network.Addr().Is4In6():
				return fmt.Errorf("WithTrustedProxies: %q is an IPv4 network written as IPv6; write it as IPv4, such as 10.0.0.0/8", text)
			}
			a.trusted = append(a.trusted, network)
		}
		return nil
	}
}

// WithIPv6Prefix sets the prefix length of the IPv6 networks that count as one address. The default is
// 64, because a household or a rented machine usually has at least a /64, and could otherwise use a
// new address for each request. Some have a /56 or a /48. With 128, each address counts alone.
func WithIPv6Prefix(bits int) AddressOption {
	return func(a *addresses) error {
		if a.ipv6Bits != 0 {
			return fmt.Errorf("WithIPv6Prefix is given twice, as %d and as %d; give it once", a.ipv6Bits, bits)
		}
		a.ipv6Bits = bits
		return keytext.CheckBits("WithIPv6Prefix", bits)
	}
}

// Address counts each request by the address of its client: "address=203.0.113.7", or, for IPv6, by
// its /64 network: "address=2001:db8:1:2::/64" ([WithIPv6Prefix]). Without options this is the address
// of the connection ([http.Request.RemoteAddr]).
//
// Behind proxies, use [WithTrustedProxies]. Address then reads their field from its right end,
// where the nearest proxy writes, up to the first address that is not a trusted proxy. Entries
// further left come from the client and are ignored. If an entry cannot be parsed, the request is
// counted under the address of the proxy that wrote it.
//
// Ports and IPv6 zones are removed, and an IPv4 address written as IPv6 (::ffff:203.0.113.7)
// becomes the IPv4 address.
func Address(opts ...AddressOption) Key {
	a := &addresses{}
	for _, opt := range opts {
		if opt == nil {
			return unusable(errors.New("an option of Address is nil; leave it out"))
		}
		if err := opt(a); err != nil {
			return unusable(err)
		}
	}
	a.ipv6Bits = cmp.Or(a.ipv6Bits, keytext.IPv6Bits)
	return Key{keytext.Key[*http.Request]{Of: func(r *http.Request) (string, error) {
		addr, err := a.client(r)
		if err != nil {
			return "", err
		}
		return "address=" + keytext.Network(addr, a.ipv6Bits), nil
	}}}
}

// mostProxies bounds the number of entries that are read. Real chains have fewer trusted proxies.
const mostProxies = 64

func (a *addresses) client(r *http.Request) (netip.Addr, error) {
	addr, known := parseAddr(r.RemoteAddr)
	if known && !a.trusts(addr) {
		return addr, nil
	}
	if !known && !a.trustedUnix {
		return addr, fmt.Errorf("httplimit.Address: the connection is from %q, which is not an address; over a Unix socket, give WithTrustedProxies(\"X-Forwarded-For\", \"unix:\")", r.RemoteAddr)
	}
	read := parseAddr
	if a.field == forwarded {
		read = parseForwarded
	}
	lines := r.Header[a.field]
	for range mostProxies {
		if len(lines) == 0 {
			break
		}
		rest, entry, more := cutLast(lines[len(lines)-1], ',', a.field == forwarded)
		if more {
			lines = append(lines[:len(lines)-1:len(lines)-1], rest)
		} else {
			lines = lines[:len(lines)-1]
		}
		next, ok := read(strings.Trim(entry, " \t"))
		if !ok {
			break
		}
		if addr, known = next, true; !a.trusts(addr) {
			break
		}
	}
	if !known {
		return addr, fmt.Errorf("httplimit.Address: the proxy at the Unix socket sent no address in %s; have it do so", a.field)
	}
	return addr, nil
}

func (a *addresses) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(a.trusted, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// cutLast cuts text around its last separator, or, if quotes is true, around the last one outside
// quotes. It reads from the right, so that a client cannot hide what a proxy wrote by opening a
// quote and never closing it.
func cutLast(text string, separator byte, quotes bool) (rest, last string, more bool) {
	quoted := false
	for i := len(text) - 1; i >= 0; i-- {
		switch {
		case quotes && text[i] == '"' && !escaped(text, i):
			quoted = !quoted
		case text[i] == separator && !quoted:
			return text[:i], text[i+1:], true
		}
	}
	return "", text, false
}

// escaped reports whether an odd number of backslashes precedes byte i.
func escaped(text string, i int) bool {
	n := 0
	for i--; i >= 0 && text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// parseForwarded parses the address in an element of Forwarded, as in
// `for="[2001:db8::1]:4711";proto=https`.
func parseForwarded(element string) (addr netip.Addr, ok bool) {
	for more := true; more; {
		var pair string
		element, pair, more = cutLast(element, ';', true) // other pairs, such as host, may contain text from the client
		name, value, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if ok {
			return addr, false // the element has two addresses
		}
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		if addr, ok = parseAddr(value); !ok {
			return addr, false
		}
	}
	return addr, ok
}

// longestAddr exceeds the length of any address with a port and a zone.
const longestAddr = 128

// parseAddr parses an address, with or without a port and brackets. It removes the zone, and
// converts an IPv4 address written as IPv6 to the IPv4 address.
func parseAddr(text string) (netip.Addr, bool) {
	if len(text) > longestAddr {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		if strings.HasSuffix(text, "]") {
			text += ":0" // ParseAddrPort accepts brackets, but requires a port
		}
		with, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = with.Addr()
	}
	return addr.WithZone("").Unmap(), true
}
