package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// A policy warns callers from its percentage on. Beside another limit, the larger percentage is told.
func TestWarning(t *testing.T) {
	limiter, _ := newLimiter(t,
		functions.Policy{Name: "five", Limits: []functions.PolicyLimit{{Limit: "5/h"}}, Warn: 80},
		functions.Policy{Name: "ten", Limits: []functions.PolicyLimit{{Limit: "10/h"}}, Warn: 50})
	five := newHandler(t, limiter, "@five", httplimit.Address(), ok)
	for i, want := range []string{"", "", "", "80", "100", ""} {
		response := serve(five, get("/"))
		if checkField(t, response, "X-RateLimit-Warning", want); (response.StatusCode == http.StatusOK) != (i < 5) {
			t.Errorf("request %d: status %d", i+1, response.StatusCode)
		}
	}
	both := must[httplimit.Middleware](t)(httplimit.New(limiter, "both", "@ten", httplimit.Address()))(newHandler(t, limiter, "@five", httplimit.Header("X-User"), ok))
	for _, want := range []string{"", "", "", "80", "100"} {
		request := get("/")
		request.Header.Set("X-User", "1")
		checkField(t, serve(both, request), "X-RateLimit-Warning", want)
	}
}
