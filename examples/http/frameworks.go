// Package frameworks uses the middleware of package httplimit with chi, echo, gin and fiber. Each exported
// function returns a server with one route, "/items/{id}", which allows each client two requests per minute.
// A browser that fetches a page before its user asks for it leaves one of them to the user.
package frameworks

import (
	"context"
	"net/http"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Items is the policy of the route. It has to be deployed.
var Items = functions.Policy{Name: "items", Limits: []functions.PolicyLimit{{Limit: "2/m"}}, Classes: map[string]int{"default": 0, "prefetch": 50}}

// class sets the class of requests that browsers send in advance. A client that does not say so gains
// nothing but the use of its own limit.
func class(r *http.Request, req *client.Request) error {
	if strings.HasPrefix(r.Header.Get("Sec-Purpose"), "prefetch") {
		req.Class = "prefetch"
	}
	return nil
}

// newLimit returns middleware that counts requests by route pattern, if they have a pattern, and by
// address. It returns an error if the server rejects the limit.
func newLimit(limiter *client.Client) (httplimit.Middleware, error) {
	limit, err := httplimit.New(limiter, "items", "@items", httplimit.Join(httplimit.Pattern(), httplimit.Address()), httplimit.WithRequest(class))
	if err != nil {
		return nil, err
	}
	return limit, limit.Check(context.Background())
}
