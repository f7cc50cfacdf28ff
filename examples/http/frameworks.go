// Package frameworks uses the middleware of package httplimit with chi, echo, gin and fiber. Each function returns a server
// with one route, "/items/{id}", which allows each client two requests per minute.
package frameworks

import (
	"net/http"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

// newLimit returns middleware that counts requests by route pattern, if they have a pattern, and by
// address.
func newLimit(limiter *client.Client) (func(http.Handler) http.Handler, error) {
	return httplimit.New(limiter, "items", "2/m", httplimit.Join(httplimit.Pattern(), httplimit.Address()))
}
