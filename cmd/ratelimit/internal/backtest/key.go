package backtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Key defines which requests are counted together, such as client, client/24 or user+path/1.
type Key struct {
	text  string
	parts []part
}

type part struct {
	field    string
	segments int // number of leading path segments that count; 0 if all do
	v4, v6   int // prefix lengths of IPv4 and IPv6 networks; 0 if the whole address counts
}

// String returns the key as it was written.
func (k Key) String() string { return k.text }

// ParseKey parses a key. It accepts any field name, because the log's fields are not known yet.
func ParseKey(text string) (Key, error) {
	key := Key{text: text}
	for _, word := range strings.Split(text, "+") {
		name, sizes, sized := strings.Cut(word, "/")
		p := part{field: name}
		var err error
		switch {
		case name == "":
			err = fmt.Errorf("a field has no name")
		case !sized:
		case name == "path":
			p.segments, err = within(sizes, 100)
		case name == "client":
			v4, v6, both := strings.Cut(sizes, "/")
			if p.v4, err = within(v4, 32); err == nil {
				p.v6 = 64
				if both {
					p.v6, err = within(v6, 128)
				}
			}
		default:
			err = fmt.Errorf("the field %s has no parts; client/24 and path/1 have", name)
		}
		if err != nil {
			return Key{}, fmt.Errorf("the key %q cannot be read: %w; write fields joined by +, as in client, client/24/64, user+path/1", text, err)
		}
		key.parts = append(key.parts, p)
	}
	return key, nil
}

func within(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

func fieldsOf(keys []Key) []string {
	var fields []string
	for _, key := range keys {
		for _, p := range key.parts {
			if !slices.Contains(fields, p.field) {
				fields = append(fields, p.field)
			}
		}
	}
	return fields
}

// appendTo appends a request's key to b. values are the values of fields in the request. appendTo
// returns false if the request lacks a field of the key.
func (k Key) appendTo(b []byte, fields []string, values [][]byte) ([]byte, bool) {
	for i, p := range k.parts {
		value := values[slices.Index(fields, p.field)]
		if len(value) == 0 {
			return b, false
		}
		if i > 0 {
			b = append(b, '+')
		}
		switch {
		case p.field == "client":
			b = p.appendClient(b, value)
		case p.segments > 0:
			b = append(b, firstSegments(value, p.segments)...)
		default:
			b = append(b, value...)
		}
	}
	return b, true
}

// appendClient appends an address, or its network, in canonical form. Any other value, such as a
// host name, is appended unchanged.
func (p part) appendClient(b, value []byte) []byte {
	addr, err := netip.ParseAddr(string(value))
	if err != nil {
		withPort, err := netip.ParseAddrPort(string(value))
		if err != nil {
			return append(b, value...)
		}
		addr = withPort.Addr()
	}
	addr = addr.Unmap().WithZone("")
	bits := p.v6
	if addr.Is4() {
		bits = p.v4
	}
	if bits == 0 {
		return addr.AppendTo(b)
	}
	network, _ := addr.Prefix(min(bits, addr.BitLen()))
	return network.AppendTo(b)
}

func firstSegments(path []byte, n int) []byte {
	for i := range path {
		if i > 0 && path[i] == '/' {
			if n--; n == 0 {
				return path[:i]
			}
		}
	}
	return path
}

// table numbers the keys from 1 in the order in which they first occur.
type table struct {
	numbers map[string]uint32
	names   []string
	counts  []uint32 // requests of each key
	units   []int64  // sum of the costs of each key's requests; empty if all requests so far cost 1
	scratch []byte
}

// longestName is the maximum number of bytes stored for a key. A longer key is stored as its
// beginning and a digest.
const longestName = 128

// number returns the number of a key, and adds the key if it is new.
func (t *table) number(name []byte) uint32 {
	if len(name) > longestName {
		sum := sha256.Sum256(name)
		name = fmt.Appendf(bytes.Clone(name[:longestName-40]), "... (%d bytes, %x)", len(name), sum[:8])
	}
	if n, ok := t.numbers[string(name)]; ok {
		return n
	}
	kept := string(name)
	t.names = append(t.names, kept)
	t.counts = append(t.counts, 0)
	n := uint32(len(t.names))
	t.numbers[kept] = n
	return n
}

func (t *table) count(key uint32, cost int64) {
	if cost != 1 || t.units != nil {
		for len(t.units) < len(t.counts) {
			t.units = append(t.units, int64(t.counts[len(t.units)]))
		}
		t.units[key-1] = plus(t.units[key-1], cost)
	}
	t.counts[key-1]++
}

func (t *table) unitsOf(key uint32) int64 {
	if t.units == nil {
		return int64(t.counts[key-1])
	}
	return t.units[key-1]
}

// came returns the number of keys that have at least one request. The other keys occur only in
// dropped lines.
func (t *table) came() (n int64) {
	for _, count := range t.counts {
		if count > 0 {
			n++
		}
	}
	return n
}
