package client_test

import (
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// A policy warns from its percentage of the binding limit on, and a denied call gets no warning. Before half of
// the limit is used, nothing is asked, and then once a minute.
func TestWarning(t *testing.T) {
	limit := func(texts ...string) (limits []functions.PolicyLimit) {
		for i, text := range texts {
			limits = append(limits, functions.PolicyLimit{Key: string(rune('a' + i)), Limit: text})
		}
		return limits
	}
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "none", Limits: limit("10/h")},
		functions.Policy{Name: "eighty", Limits: limit("10/h"), Warn: 80},
		functions.Policy{Name: "full", Limits: limit("3/h"), Warn: 100},
		functions.Policy{Name: "two", Limits: limit("10/h", "4/h"), Warn: 75},
		functions.Policy{Name: "shadow", Limits: limit("2/h"), Shadow: true, Warn: 50},
		functions.Policy{Name: "classes", Limits: limit("10/h"), Classes: map[string]int{"batch": 50}, Warn: 80},
	)))
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		for name, tt := range map[string]struct {
			req  client.Request
			want []int
		}{
			"a limit":          {client.For("1", "10/h", 9), []int{0}},
			"without warn":     {client.For("2", "@none", 9), []int{0}},
			"one by one":       {client.For("3", "@eighty"), []int{0, 0, 0, 0, 0, 0, 0, 80, 90, 100, 0}},
			"rounded down":     {client.For("4", "@full"), []int{0, 0, 100, 0}},
			"several keys":     {client.Request{Keys: []string{"5", "6"}, Limits: []client.Limit{"@two"}}, []int{0, 0, 75, 100, 0}},
			"several policies": {client.Request{Keys: []string{"7", "8"}, Limits: []client.Limit{"@none", "@full"}}, []int{0, 0, 100, 0}},
			"a shadow":         {client.For("11", "@shadow"), []int{50, 100, 100}},
			"a class":          {client.Request{Keys: []string{"9"}, Limits: []client.Limit{"@classes"}, Class: "batch"}, []int{0, 0, 80, 90, 100, 0}},
		} {
			for i, want := range tt.want {
				res := must[client.Result](t)(c.Take(t.Context(), tt.req))
				if got := c.Warning(t.Context(), tt.req, res); got != want {
					t.Errorf("%s, call %d: %d of %d are left, warning %d; want %d", name, i+1, res.Remaining, res.Limit, got, want)
				}
			}
		}
		if got := v.seen("info"); got != 6 { // one for each policy
			t.Errorf("%d calls of info, want 6", got)
		}
		few := client.For("10", "@eighty", 4)
		time.Sleep(time.Hour)
		res := must[client.Result](t)(c.Take(t.Context(), few))
		if got := c.Warning(t.Context(), few, res); got != 0 || v.seen("info") != 6 {
			t.Errorf("warning %d of 4 used after %d calls of info, want 0 and 6", got, v.seen("info"))
		}
		res = must[client.Result](t)(c.Take(t.Context(), few))
		if got := c.Warning(t.Context(), few, res); got != 80 || v.seen("info") != 7 {
			t.Errorf("warning %d of 8 used after %d calls of info, want 80 and 7", got, v.seen("info"))
		}
	}, embedded.WithLibrary(build.Text()))
}
