package httplimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

func TestFields(t *testing.T) {
	const both client.Limit = "10/s burst=20, 100/h"
	burst := httplimit.Policy{Name: "burst", Limit: both, Quota: 20, Window: 2 * time.Second}
	hourly := httplimit.Policy{Name: "hourly", Limit: both, Quota: 100, Window: time.Hour}
	plain := httplimit.Policy{Name: "minute", Limit: "100/m", Quota: 100, Window: time.Minute}
	for _, tt := range []struct {
		name           string
		limit          client.Limit
		cost           int64
		policies       []httplimit.Policy
		policy, limit2 string
	}{
		{"no window is known", "100/m", 1, nil, `"api";q=100`, `"api";r=99;t=1`},
		{"r in t no faster than the limit", "100/m", 1, []httplimit.Policy{plain}, `"minute";q=100;w=60`, `"minute";r=99;t=60`},
		{"nor later on", "100/m", 75, []httplimit.Policy{plain}, `"minute";q=100;w=60`, `"minute";r=25;t=45`},
		{"the first rate decides", both, 1, []httplimit.Policy{burst, hourly}, `"burst";q=20;w=2, "hourly";q=100;w=3600`, `"burst";r=19;t=36`},
		{"a policy of another limit", "100/m", 1, []httplimit.Policy{burst}, `"api";q=100`, `"api";r=99;t=1`},
		{"a quota out of date", "100/m", 1, []httplimit.Policy{{Name: "minute", Limit: "100/m", Quota: 60, Window: time.Minute}}, `"api";q=100`, `"api";r=99;t=1`},
		{"a window of less than a second", "5/100ms", 1, []httplimit.Policy{{Name: "fast", Limit: "5/100ms", Quota: 5, Window: 100 * time.Millisecond}}, `"fast";q=5;w=1`, `"fast";r=4;t=1`},
		{"the largest", "fixed_window 9007199254740991/d", 1, nil, `"api";q=999999999999999`, `"api";r=999999999999999;t=86400`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter, _ := newLimiter(t)
			cost := func(_ *http.Request, req *client.Request) error { req.Costs = []int64{tt.cost}; return nil }
			response := serve(newHandler(t, limiter, tt.limit, httplimit.Address(), ok, httplimit.WithPolicies(tt.policies...), httplimit.WithRequest(cost)), get("/"))
			checkStatus(t, response, http.StatusOK)
			checkField(t, response, "RateLimit-Policy", tt.policy)
			checkField(t, response, "RateLimit", tt.limit2)
			for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
				if _, err := httpsfv.UnmarshalList(response.Header.Values(name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// With several rates, the fields name the rate with the fewest units left.
func TestFieldsOfTheRateThatBinds(t *testing.T) {
	limiter, server := newLimiter(t)
	const both client.Limit = "10/s burst=20, 30/h"
	handler := newHandler(t, limiter, both, httplimit.Address(), ok, httplimit.WithPolicies(
		httplimit.Policy{Name: "burst", Limit: both, Quota: 20, Window: 2 * time.Second},
		httplimit.Policy{Name: "hourly", Limit: both, Quota: 30, Window: time.Hour}))
	for range 20 {
		checkStatus(t, serve(handler, get("/")), http.StatusOK)
	}
	server.Advance(2 * time.Second)
	checkField(t, serve(handler, get("/")), "RateLimit", `"hourly";r=9;t=2518`)
}
