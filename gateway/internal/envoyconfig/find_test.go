package envoyconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
)

// folder writes files, given as alternating names and contents, and returns their folder.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		require(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
	}
	return dir
}

func load(t *testing.T, content string) *envoyconfig.Config {
	t.Helper()
	config := must[*envoyconfig.Config](t)(envoyconfig.Load(folder(t, "config.yaml", content), false))
	return config
}

// descriptor parses "key=value key=value".
func descriptor(text string) (list []*entries.RateLimitDescriptor_Entry) {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		list = append(list, &entries.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return list
}

const tree = `
domain: web
descriptors:
  - key: tier
    value: gold
    descriptors:
      - key: path
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: path
        value: /login
        rate_limit: {unit: second, requests_per_unit: 10}
  - key: address
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: address
    value: 10.0.0.1
    rate_limit: {unit: MINUTE, requests_per_unit: 30}
  - key: address
    value: 10.0.0.2
  - key: address
    value: 192.168.*
    rate_limit: {unit: hour, requests_per_unit: 40}
  - key: address
    value: 192.168.1.*
    rate_limit: {unit: hour, requests_per_unit: 50}
  - key: middle
    value: a*b
    rate_limit: {unit: day, requests_per_unit: 60}
  - key: both
    value: x
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - key: more
        value: y
        rate_limit: {unit: day, requests_per_unit: 25}
  - key: banned
    rate_limit: {unit: month, requests_per_unit: 0}
  - key: monthly
    rate_limit: {unit: month, requests_per_unit: 7}
  - key: weekly
    rate_limit: {unit: week, requests_per_unit: 8}
  - key: yearly
    rate_limit: {unit: year, requests_per_unit: 9}
  - key: free
    rate_limit: {unlimited: true}
  - key: two
    rate_limit: {limit: "10/s burst=20, 1000/h"}
  - key: named
    rate_limit: {limit: "@api", name: named}
  - key: files
    value: top/*
    share_threshold: true
    descriptors:
      - key: files
        value: low/*
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 300}
      - key: kind
        rate_limit: {unit: minute, requests_per_unit: 301}
`

// TestFind checks the rule and the key of each descriptor. The cases come from the tests of
// envoyproxy/ratelimit.
func TestFind(t *testing.T) {
	config := load(t, tree)
	if config.Rules() != 18 {
		t.Errorf("%d rules, want 18", config.Rules())
	}
	for _, tt := range []struct{ descriptor, limit, key string }{
		{"", "", ""},
		{"tier=silver", "", ""},
		{"tier=gold", "", ""},               // fewer entries than the rule
		{"address=1.2.3.4 other=x", "", ""}, // more entries than the rule
		{"both=x more=z", "", ""},           // the rule for both=x alone does not apply
		{"unknown=x", "", ""},
		{"address=10.0.0.2", "", ""}, // a descriptor without rate_limit exempts a value
		{"address=x_10.0.0.1", "fixed_window 20/m align=clock", "web|address=x_10.0.0.1"},
		{"tier=gold path=/", "fixed_window 5/s align=clock", "web|tier=gold|path=/"},
		{"tier=gold path=/login", "fixed_window 10/s align=clock", "web|tier=gold|path=/login"},
		{"address=1.2.3.4", "fixed_window 20/m align=clock", "web|address=1.2.3.4"},
		{"address=10.0.0.1", "fixed_window 30/m align=clock", "web|address=10.0.0.1"},
		{"address=192.168.1.1", "fixed_window 40/h align=clock", "web|address=192.168.1.1"}, // the first wildcard in the file
		{"address=", "fixed_window 20/m align=clock", "web|address="},
		{"middle=aab", "", ""}, // a * in the middle is not a wildcard
		{"middle=a*b", "fixed_window 60/d align=clock", "web|middle=a*b"},
		{"both=x", "fixed_window 15/d align=clock", "web|both=x"},
		{"both=x more=y", "fixed_window 25/d align=clock", "web|both=x|more=y"},
		{"banned=x", "0/s", "web|banned=x"},
		{"monthly=x", "fixed_window 7/mo align=clock", "web|monthly=x"},
		{"weekly=x", "fixed_window 8/w align=clock", "web|weekly=x"},
		{"yearly=x", "fixed_window 9/y align=clock", "web|yearly=x"},
		{"two=x", "10/s burst=20, 1000/h", "web|two=x"},
		{"named=x", "@api", "web|named=x"},
		{"files=top/a files=low/b", "fixed_window 300/m align=clock", "web|files=top/*|files=low/*"},
		{"files=top/a kind=b", "fixed_window 301/m align=clock", "web|files=top/*|kind=b"},
		{"files=top/a files=high/b", "", ""},
	} {
		rule, key := config.Find("web", descriptor(tt.descriptor))
		limit := ""
		if rule != nil {
			limit = string(rule.Limit)
		}
		if limit != tt.limit || key != tt.key {
			t.Errorf("%q: limit %q, key %q; want %q, %q", tt.descriptor, limit, key, tt.limit, tt.key)
		}
	}
	if rule, _ := config.Find("web", descriptor("free=x")); rule == nil || !rule.Unlimited || rule.Limit != "" {
		t.Errorf("the unlimited rule is %+v", rule)
	}
	if rule, _ := config.Find("other", descriptor("address=1.2.3.4")); rule != nil || config.Known("other") || !config.Known("web") {
		t.Errorf("a rule for an unknown domain: %+v", rule)
	}
}

// TestKeysDiffer checks that different descriptors have different keys, for any names and values.
func TestKeysDiffer(t *testing.T) {
	list := [][]*entries.RateLimitDescriptor_Entry{
		{{Key: "a_b", Value: "c"}},
		{{Key: "a", Value: "b_c"}},
		{{Key: "a=b", Value: "c"}},
		{{Key: "a", Value: "b=c"}},
		{{Key: "a", Value: "b|c=d"}},
		{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}},
		{{Key: "a|b", Value: "c"}},
		{{Key: "a", Value: "{b}"}},
		{{Key: "a", Value: "%7Bb%7D"}},
		{{Key: "a", Value: strings.Repeat("x", 200)}},
		{{Key: "a", Value: strings.Repeat("x", 201)}},
		{{Key: "a", Value: ""}},
		{{Key: "", Value: "a"}},
	}
	seen := map[string]int{}
	for i, entry := range list {
		key := envoyconfig.Key("web", entry, nil)
		if before, ok := seen[key]; ok {
			t.Errorf("descriptors %d and %d share the key %q", before, i, key)
		}
		seen[key] = i
		if strings.ContainsAny(key, "{}") || len(key) > 400 {
			t.Errorf("the key of descriptor %d is %q", i, key)
		}
	}
}
