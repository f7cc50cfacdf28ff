package rls_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// An allowed request whose policy warns has a header with the percentage that is used, and of several policies
// the largest. A denied request has none, and neither has one that takes nothing. A shadow policy beside an
// enforced limit does not count.
func TestWarning(t *testing.T) {
	b := newTestbed(t, "",
		functions.Policy{Name: "five", Limits: []functions.PolicyLimit{{Limit: "5/h"}}, Warn: 80},
		functions.Policy{Name: "ten", Limits: []functions.PolicyLimit{{Limit: "10/h"}}, Warn: 50},
		functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "2/h"}}, Warn: 80, Shadow: true},
		functions.Policy{Name: "class", Limits: []functions.PolicyLimit{{Limit: "10/h"}}, Classes: map[string]int{"default": 0, "batch": 0}},
		functions.Policy{Name: "none", Limits: []functions.PolicyLimit{{Limit: "10/h"}}})
	for _, tt := range []struct {
		hits        uint32
		descriptors []string
		want        string
	}{
		{3, []string{"policy=five user=1"}, ""},
		{1, []string{"policy=five user=1"}, "80"},
		{1, []string{"policy=five user=1"}, "100"},
		{1, []string{"policy=five user=1"}, ""}, // denied
		{9, []string{"policy=none user=1"}, ""},
		{5, []string{"policy=ten user=2", "policy=five user=2"}, "100"},
		{7, []string{"policy=ten user=3", "policy=none user=3"}, "70"},
		{2, []string{"policy=trial user=4"}, "100"},
		{1, []string{"policy=trial user=4"}, "100"},
		{6, []string{"policy=trial user=5", "policy=none user=5"}, ""},
		{6, []string{"policy=trial user=6", "policy=class class=batch user=6"}, ""}, // two calls
		{6, []string{"policy=trial user=7", "policy=ten user=7"}, "60"},
	} {
		if got := b.warning(tt.hits, tt.descriptors...); got != tt.want {
			t.Errorf("%d hits of %v: warning %q, want %q", tt.hits, tt.descriptors, got, tt.want)
		}
	}
}

// A rule that only tries a policy warns nobody.
func TestWarningOfRules(t *testing.T) {
	b := newTestbed(t, `
domain: web
descriptors:
- {key: trial, shadow_mode: true, rate_limit: {limit: "@ten"}}
- {key: quota, quota_mode: true, rate_limit: {limit: "@ten"}}
- {key: rule, rate_limit: {limit: "@ten"}}
`, functions.Policy{Name: "ten", Limits: []functions.PolicyLimit{{Limit: "10/h"}}, Warn: 50})
	for rule, want := range map[string]string{"trial": "", "quota": "", "rule": "60"} {
		if got := b.warning(6, rule+"=1"); got != want {
			t.Errorf("%s: warning %q, want %q", rule, got, want)
		}
	}
}

// warning returns the X-RateLimit-Warning of a response, or "".
func (b *testbed) warning(hits uint32, descriptors ...string) string {
	b.t.Helper()
	response, err := b.client.ShouldRateLimit(b.t.Context(), request(hits, descriptors...))
	require(b.t, err)
	for _, header := range response.ResponseHeadersToAdd {
		if header.Key == "X-RateLimit-Warning" {
			return header.Value
		}
	}
	return ""
}
