package httplimit

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func addressOf(t testing.TB, remote string, lines []string, opts ...AddressOption) (string, error) {
	t.Helper()
	whole := func(a *addresses) error { // the whole address, unless opts set a network
		a.ipv6Bits = cmp.Or(a.ipv6Bits, 128)
		return nil
	}
	key := Address(append(slices.Clone(opts), whole)...)
	if key.key.Err != nil {
		t.Fatal(key.key.Err)
	}
	r := &http.Request{RemoteAddr: remote, Header: http.Header{}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	found, err := key.key.Of(r)
	return strings.TrimPrefix(found, "address="), err
}

func TestAddress(t *testing.T) {
	xff := func(values ...string) []string {
		for i := range values {
			values[i] = "X-Forwarded-For: " + values[i]
		}
		return values
	}
	long := strings.Repeat("9", 10_000)
	proxies := WithTrustedProxies("X-Forwarded-For", "10.0.0.0/8", "2001:db8:ffff::/48", "198.51.100.7")
	for _, tt := range []struct {
		name   string
		remote string
		lines  []string
		opts   []AddressOption
		want   string
	}{
		{"the peer", "203.0.113.7:1234", nil, nil, "203.0.113.7"},
		{"without a port", "203.0.113.7", nil, nil, "203.0.113.7"},
		{"IPv6", "[2001:db8::7]:1234", nil, nil, "2001:db8::7"},
		{"a zone", "[fe80::7%eth0]:1234", nil, nil, "fe80::7"},
		{"a mapped address", "[::ffff:203.0.113.7]:1234", nil, nil, "203.0.113.7"},
		{"a header and no proxy", "203.0.113.7:1234", xff("192.0.2.1"), nil, "203.0.113.7"},
		{"a header of no proxy of ours", "203.0.113.7:1234", xff("192.0.2.1"), []AddressOption{proxies}, "203.0.113.7"},
		{"both fields, only one read", "10.0.0.1:1", []string{"X-Forwarded-For: 203.0.113.7", "Forwarded: for=192.0.2.1"}, []AddressOption{proxies}, "203.0.113.7"},

		{"one proxy", "10.0.0.1:1", xff("203.0.113.7"), []AddressOption{proxies}, "203.0.113.7"},
		{"an address as the network", "198.51.100.7:1", xff("203.0.113.7"), []AddressOption{proxies}, "203.0.113.7"},
		{"forged to the left", "10.0.0.1:1", xff("192.0.2.1, 203.0.113.7"), []AddressOption{proxies}, "203.0.113.7"},
		{"forged as one of ours", "10.0.0.1:1", xff("10.0.0.9, 203.0.113.7"), []AddressOption{proxies}, "203.0.113.7"},
		{"three proxies", "10.0.0.1:1", xff("192.0.2.1, 203.0.113.7, 2001:db8:ffff::1,10.1.1.1"), []AddressOption{proxies}, "203.0.113.7"},
		{"over several lines", "10.0.0.1:1", xff("192.0.2.1", "203.0.113.7", "10.2.2.2, 10.1.1.1"), []AddressOption{proxies}, "203.0.113.7"},
		{"all trusted", "10.0.0.1:1", xff("10.2.2.2, 10.1.1.1"), []AddressOption{proxies}, "10.2.2.2"},
		{"a mapped proxy", "[::ffff:10.0.0.1]:1", xff("203.0.113.7, ::ffff:10.1.1.1"), []AddressOption{proxies}, "203.0.113.7"},
		{"a proxy with a zone", "[2001:db8:ffff::1%eth0]:1", xff("fe80::7%25eth1, fe80::8%x"), []AddressOption{proxies}, "fe80::8"},
		{"a port", "10.0.0.1:1", xff("203.0.113.7:4711"), []AddressOption{proxies}, "203.0.113.7"},
		{"a port with zeros", "10.0.0.1:1", xff("203.0.113.7:00080"), []AddressOption{proxies}, "203.0.113.7"},
		{"mapped, in hexadecimal, with a port", "10.0.0.1:1", xff("[::FFFF:cb00:7107]:080"), []AddressOption{proxies}, "203.0.113.7"},
		{"mapped, with a zone", "10.0.0.1:1", xff("::ffff:203.0.113.7%eth0"), []AddressOption{proxies}, "203.0.113.7"},
		{"IPv6 with a port", "10.0.0.1:1", xff("[2001:db8::7]:4711"), []AddressOption{proxies}, "2001:db8::7"},
		{"IPv6 in brackets", "10.0.0.1:1", xff("[2001:db8::7]"), []AddressOption{proxies}, "2001:db8::7"},
		{"mapped in brackets", "10.0.0.1:1", xff("[::ffff:203.0.113.7]"), []AddressOption{proxies}, "203.0.113.7"},
		{"no header", "10.0.0.1:1", nil, []AddressOption{proxies}, "10.0.0.1"},
		{"an empty header", "10.0.0.1:1", xff(""), []AddressOption{proxies}, "10.0.0.1"},
		{"rubbish where a proxy wrote", "10.0.0.1:1", xff("203.0.113.7, unknown, 10.1.1.1"), []AddressOption{proxies}, "10.1.1.1"},
		{"rubbish to the left", "10.0.0.1:1", xff(long + ",\x00\r\n,203.0.113.7"), []AddressOption{proxies}, "203.0.113.7"},
		{"a long entry", "10.0.0.1:1", xff(long), []AddressOption{proxies}, "10.0.0.1"},
		{"a long zone", "10.0.0.1:1", xff("fe80::1%" + long), []AddressOption{proxies}, "10.0.0.1"},
		{"IPv4 in brackets", "10.0.0.1:1", xff("[203.0.113.7]"), []AddressOption{proxies}, "10.0.0.1"},
		{"many of ours", "10.0.0.1:1", xff("203.0.113.7" + strings.Repeat(",10.1.1.1", 63)), []AddressOption{proxies}, "203.0.113.7"},
		{"too many of ours", "10.0.0.1:1", xff("203.0.113.7" + strings.Repeat(",10.1.1.1", 64)), []AddressOption{proxies}, "10.1.1.1"},
		{"a Unix socket", "@", xff("203.0.113.7"), []AddressOption{WithTrustedProxies("X-Forwarded-For", "unix:")}, "203.0.113.7"},

		{"a /64", "[2001:db8:1:2:3:4:5:6]:1", nil, []AddressOption{WithIPv6Prefix(64)}, "2001:db8:1:2::/64"},
		{"a /64 of IPv4", "203.0.113.7:1", nil, []AddressOption{WithIPv6Prefix(64)}, "203.0.113.7"},
		{"a /64 of a mapped address", "[::ffff:203.0.113.7]:1", nil, []AddressOption{WithIPv6Prefix(64)}, "203.0.113.7"},
		{"a /128", "[2001:db8::7]:1", nil, []AddressOption{WithIPv6Prefix(128)}, "2001:db8::7"},
	} {
		got, err := addressOf(t, tt.remote, tt.lines, tt.opts...)
		if err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

func TestAddressByForwarded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{"for=203.0.113.7"}, "203.0.113.7"},
		{"with more", []string{`by=10.0.0.1; FOR="203.0.113.7:80" ;proto=https;host="a,b"`}, "203.0.113.7"},
		{"IPv6", []string{`for="[2001:db8::7]:4711"`}, "2001:db8::7"},
		{"IPv6 with a zone", []string{`for="[fe80::7%eth0]"`}, "fe80::7"},
		{"from the right", []string{"for=192.0.2.1, for=203.0.113.7;by=10.0.0.2, for=10.0.0.2"}, "203.0.113.7"},
		{"over lines", []string{"for=192.0.2.1", "for=203.0.113.7, for=10.0.0.2"}, "203.0.113.7"},
		{"a comma in quotes", []string{`for=203.0.113.7;host="x, for=192.0.2.1"`}, "203.0.113.7"},
		{"a quote in quotes", []string{`for=203.0.113.7;host="x\", for=192.0.2.1"`}, "203.0.113.7"},
		{"a backslash in quotes", []string{`for=192.0.2.1;host="x\\", for=203.0.113.7`}, "203.0.113.7"},
		{"a quote in quotes, and one more to the left", []string{`for=192.0.2.1, for=203.0.113.7;host="x\"y"`}, "203.0.113.7"},
		{"a backslash in quotes at the end", []string{`for=192.0.2.1, for=203.0.113.7;host="x\\"`}, "203.0.113.7"},
		{"for in quotes", []string{`for=203.0.113.7;host="x;for=192.0.2.1"`}, "203.0.113.7"},
		{"an open quote to the left", []string{`for=192.0.2.1;host="x, for=203.0.113.7`}, "203.0.113.7"},
		{"unknown", []string{"for=203.0.113.7, for=unknown"}, "10.0.0.1"},
		{"hidden", []string{"for=203.0.113.7, for=_hidden"}, "10.0.0.1"},
		{"no for", []string{"for=203.0.113.7, by=10.0.0.2"}, "10.0.0.1"},
		{"for twice", []string{"for=203.0.113.7;for=192.0.2.1"}, "10.0.0.1"},
		{"empty", []string{""}, "10.0.0.1"},
		{"a lone quote", []string{`for="`}, "10.0.0.1"},
		{"long", []string{"for=" + strings.Repeat(`"\`, 5000)}, "10.0.0.1"},
		{"X-Forwarded-For is not read", nil, "10.0.0.1"},
	} {
		lines := []string{"X-Forwarded-For: 198.51.100.1"}
		for _, line := range tt.lines {
			lines = append(lines, "Forwarded: "+line)
		}
		got, err := addressOf(t, "10.0.0.1:1", lines, WithTrustedProxies("forwarded", "10.0.0.0/8"))
		if err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

// Without WithIPv6Prefix, the addresses of an IPv6 /64 count as one, because one client usually has that
// many. An IPv4 address counts alone, in every spelling.
func TestAddressesOfOneClient(t *testing.T) {
	for remote, want := range map[string]string{
		"[2001:db8:1:2::7]:1":                  "address=2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff:ffff:ffff:ffff]:2": "address=2001:db8:1:2::/64",
		"[2001:db8:1:3::7]:1":                  "address=2001:db8:1:3::/64",
		"[fe80::7%eth0]:1":                     "address=fe80::/64",
		"203.0.113.7:1":                        "address=203.0.113.7",
		"[::ffff:203.0.113.7]:1":               "address=203.0.113.7",
	} {
		if got, err := Address().key.Of(&http.Request{RemoteAddr: remote}); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", remote, got, err, want)
		}
	}
}

// Reading the header of a request does not modify it.
func TestAddressLeavesTheHeader(t *testing.T) {
	r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {"1.1.1.1, 10.0.0.3", "10.0.0.2, 10.0.0.1"}}}
	if _, err := Address(WithTrustedProxies("X-Forwarded-For", "10.0.0.0/8")).key.Of(r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Header["X-Forwarded-For"], " / "); got != "1.1.1.1, 10.0.0.3 / 10.0.0.2, 10.0.0.1" {
		t.Error(got)
	}
}

func TestNoAddress(t *testing.T) {
	for _, tt := range []struct {
		remote string
		lines  []string
		opts   []AddressOption
		want   string
	}{
		{"@", nil, nil, `the connection is from "@", which is not an address; over a Unix socket, give WithTrustedProxies("X-Forwarded-For", "unix:")`},
		{"", []string{"X-Forwarded-For: 203.0.113.7"}, []AddressOption{WithTrustedProxies("X-Forwarded-For", "10.0.0.0/8")}, `the connection is from ""`},
		{"@", nil, []AddressOption{WithTrustedProxies("X-Forwarded-For", "unix:")}, "the proxy at the Unix socket sent no address in X-Forwarded-For"},
		{"@", []string{"Forwarded: for=unknown"}, []AddressOption{WithTrustedProxies("Forwarded", "unix:")}, "sent no address in Forwarded"},
	} {
		if got, err := addressOf(t, tt.remote, tt.lines, tt.opts...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q %q: %q, %v, want %s", tt.remote, tt.lines, got, err, tt.want)
		}
	}
}

// FuzzAddress checks that clients cannot influence the address. Text to the left of our proxy's
// entry, or within text that the proxy quoted, changes nothing. If our proxy wrote nothing, the
// result is still an address in canonical form.
func FuzzAddress(f *testing.F) {
	for _, text := range []string{
		"", "1.2.3.4", "::1", "[::1]:80", "fe80::1%eth0", "::ffff:1.2.3.4", "for=1.2.3.4", `for="[::1]:80";by=x, for=_x`,
		`for="`, `\"`, `"\\\"`, ",", ";", "10.0.0.1, 10.0.0.2", "for=10.0.0.1", "unknown", "%", "[", "[]", "1.2.3.4:", "::ffff:10.0.0.1%x", "x;for=1.2.3.4",
	} {
		f.Add(text)
	}
	trust, trustForwarded := WithTrustedProxies("X-Forwarded-For", "10.0.0.0/8"), WithTrustedProxies("Forwarded", "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tt := range []struct {
			name, wrote string
			opts        []AddressOption
		}{
			{"X-Forwarded-For", "203.0.113.7", []AddressOption{trust}},
			{"Forwarded", `for="203.0.113.7:80";by="10.0.0.1"`, []AddressOption{trustForwarded}},
			{"Forwarded", `for=203.0.113.7;host="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`, []AddressOption{trustForwarded}},
		} {
			for _, lines := range [][]string{{tt.name + ": " + text + ", " + tt.wrote}, {tt.name + ": " + text, tt.name + ": " + tt.wrote}} {
				if got, err := addressOf(t, "10.0.0.1:1", lines, tt.opts...); err != nil || got != "203.0.113.7" {
					t.Errorf("%q: %q, %v", lines, got, err)
				}
			}
			got, err := addressOf(t, "10.0.0.1:1", []string{tt.name + ": " + text}, tt.opts...)
			addr, parsed := netip.ParseAddr(got)
			if err != nil || parsed != nil || addr.String() != got || addr.Zone() != "" || addr.Is4In6() {
				t.Errorf("%s: %q: %q, %v", tt.name, text, got, err)
			}
		}
	})
}
