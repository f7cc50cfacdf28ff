package check_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/check"
)

// TestIPv6 checks that the addresses of an IPv6 /64 count as one.
func TestIPv6(t *testing.T) {
	g := newGate(t, "192.0.2.0/24")
	for _, from := range []string{"2001:db8:1:2::1", "2001:db8:1:2:ffff::1"} {
		if answer := g.ask("GET", "/check/api/address", "X-Forwarded-For", from); answer.Code != 200 {
			t.Errorf("%s: %d %s", from, answer.Code, answer.Body)
		}
	}
	if got, want := g.keys(t), "[api|address=2001:db8:1:2::/64]"; got != want {
		t.Errorf("keys %s, want %s", got, want)
	}
}

func TestKeys(t *testing.T) {
	const uri = "X-Forwarded-Uri"
	for _, tt := range []struct {
		path  string
		lines []string
		want  string // the key after "api|", or part of the error
	}{
		{"/header:X-Api-Key", []string{"X-Api-Key", "secret"}, "header:X-Api-Key~2bb80d537b1da3e38bd30361aa855686"},
		{"/header:x-api-key", []string{"X-Api-Key", "secret"}, "header:X-Api-Key~2bb80d537b1da3e38bd30361aa855686"},
		{"/cookie:session", []string{"Cookie", "a=b; session=secret"}, "cookie:session~2bb80d537b1da3e38bd30361aa855686"},
		{"/header:X-Api-Key,address", []string{"X-Api-Key", "secret"}, "header:X-Api-Key~2bb80d537b1da3e38bd30361aa855686"},
		{"/header:X-Api-Key,cookie:session,address", nil, "address=192.0.2.1"},
		{"/path/1", []string{uri, "/items/42?page=2"}, "path/1=items"},
		{"/path/2", []string{uri, "/items/42?page=2"}, "path/2=42"},
		{"/path/2", []string{uri, "//items///42/"}, "path/2=42"},
		{"/path/3", []string{uri, "/items/42"}, "path/3=-"},
		{"/path/1", []string{uri, "/%69tems"}, "path/1=items"},
		{"/path/1", []string{uri, "/%zz|{a}"}, "path/1=%25zz%7C%7Ba%7D"},
		{"/path/1", []string{uri, "/a/../b"}, "path/1=b"},
		{"/path/1", []string{uri, "/./a/%2e%2E/b?c/../d"}, "path/1=b"},
		{"/path/1", []string{uri, "/x%2F..%2Fb"}, "path/1=b"},
		{"/path/2", []string{uri, "/a%2Fb/c"}, "path/2=b"},
		{"/path/1", []string{uri, "/../../%62"}, "path/1=b"},
		{"/path/1", []string{uri, "/a/.."}, "path/1=-"},
		{"/path/1/-/a/../%62", nil, "path/1=b"},
		{"/path/1/-/items/42", []string{uri, "/forged"}, "path/1=items"},
		{"/path/1/-/", []string{uri, "/forged"}, "path/1=-"},
		{"/path/1/-", []string{uri, "/forged"}, "path/1=-"},
		{"/address/path/1", []string{uri, "/items"}, "address=192.0.2.1|path/1=items"},
		{"/%61ddress", nil, "address=192.0.2.1"},
		{"/address/-/a%2Fb", nil, "address=192.0.2.1"},

		{"/header:X-Api-Key", nil, "no header X-Api-Key"},
		{"/header:X-Api-Key/address", nil, "no header X-Api-Key"},
		{"/cookie:session", nil, "no cookie session"},
		{"/cookie:session,address", []string{"Cookie", "session=junk; session=REAL"}, "several different values for the cookie session; send one"},
		{"/header:X-Api-Key", []string{"X-Api-Key", "one", "X-Api-Key", "two"}, "several different values for the header X-Api-Key; send one"},
		{"/path/1", nil, "no header X-Forwarded-Uri"},
		{"/path/0", nil, "the key path/0 has no number; write path/1"},
		{"/path/x", nil, "the key path/x has no number"},
		{"/path", nil, `"path" is not a key; write address, header:NAME, cookie:NAME or path/N`},
		{"/header:", nil, `"header:" is not a key`},
		{"/header:Host", nil, "Host"},
		{"/header:X,", nil, `"" is not a key`},
		{"/ip", nil, `"ip" is not a key`},
	} {
		g := newGate(t)
		answer := g.ask("GET", "/check/api"+tt.path, tt.lines...)
		if answer.Code == http.StatusBadRequest {
			var problem struct{ Detail string }
			if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || !strings.Contains(problem.Detail, tt.want) {
				t.Errorf("%s %q: %v, %s; want %s", tt.path, tt.lines, err, answer.Body, tt.want)
			}
		} else if got := g.keys(t); answer.Code != http.StatusOK || got != "[api|"+tt.want+"]" {
			t.Errorf("%s %q: %d, keys %s; want %s", tt.path, tt.lines, answer.Code, got, tt.want)
		}
	}
}

func TestAddressBehindProxies(t *testing.T) {
	forwarded := []string{"X-Forwarded-For", "203.0.113.7, 198.51.100.1"}
	for _, tt := range []struct {
		trusted []string
		want    string
	}{
		{nil, "[api|address=192.0.2.1]"},
		{[]string{"10.0.0.0/8"}, "[api|address=192.0.2.1]"},
		{[]string{"192.0.2.0/24"}, "[api|address=198.51.100.1]"},
		{[]string{"192.0.2.0/24", "198.51.100.1"}, "[api|address=203.0.113.7]"},
	} {
		g := newGate(t, tt.trusted...)
		if answer := g.ask("GET", "/check/api", forwarded...); answer.Code != http.StatusOK || g.keys(t) != tt.want {
			t.Errorf("%q: %d, keys %s, want %s", tt.trusted, answer.Code, g.keys(t), tt.want)
		}
	}
	if _, err := check.New(check.Options{TrustedProxies: []string{"ten"}}); err == nil {
		t.Error("no error for a network that is none")
	}
}

func TestMatches(t *testing.T) {
	for path, want := range map[string]bool{
		"/check/api": true, "/deny403/check/api": true, "/check/../v1/reset": true,
		"/check": false, "/checks/api": false, "/deny403/v1/take": false, "/v1/check/": false, "/": false,
	} {
		if got := check.Matches(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
