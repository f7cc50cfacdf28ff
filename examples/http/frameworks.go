// Package frameworks uses the middleware of package httplimit with chi, echo, gin and fiber. Each exported
// function returns a server with one route, "/items/{id}", which allows each client two requests per minute.
package frameworks

import (
	"context"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

// newLimit returns middleware that counts requests by route pattern, if they have a pattern, and by
// address. It returns an error if the server rejects the limit.
func newLimit(limiter *client.Client) (httplimit.Middleware, error) {
	limit, err := httplimit.New(limiter, "items", "2/m", httplimit.Join(httplimit.Pattern(), httplimit.Address()))
	if err != nil {
		return nil, err
	}
	return limit, limit.Check(context.Background())
}
