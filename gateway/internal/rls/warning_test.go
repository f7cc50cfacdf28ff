package rls_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// An allowed request whose policy warns has a header with the percentage that is used, and of several policies
// the largest. A denied request has none, and neither has one that takes nothing.
func TestWarning(t *testing.T) {
	b := newTestbed(t, "",
		functions.Policy{Name: "five", Limits: []functions.PolicyLimit{{Limit: "5/h"}}, Warn: 80},
		functions.Policy{Name: "ten", Limits: []functions.PolicyLimit{{Limit: "10/h"}}, Warn: 50},
		functions.Policy{Name: "none", Limits: []functions.PolicyLimit{{Limit: "10/h"}}})
	warning := func(hits uint32, descriptors ...string) string {
		t.Helper()
		response, err := b.client.ShouldRateLimit(t.Context(), request(hits, descriptors...))
		require(t, err)
		for _, header := range response.ResponseHeadersToAdd {
			if header.Key == "X-RateLimit-Warning" {
				return header.Value
			}
		}
		return ""
	}
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
	} {
		if got := warning(tt.hits, tt.descriptors...); got != tt.want {
			t.Errorf("%d hits of %v: warning %q, want %q", tt.hits, tt.descriptors, got, tt.want)
		}
	}
}
