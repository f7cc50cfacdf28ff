// Package frameworks puts the middleware of package httplimit in front of routes of chi, echo, gin and fiber. Each function
// makes a server with one route, "/items/{id}", that each client may ask twice a minute.
package frameworks

import (
	"net/http"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

// newLimit is the same for all whose routes are known to net/http.
func newLimit(limiter *client.Client) (func(http.Handler) http.Handler, error) {
	return httplimit.New(limiter, "items", "2/m", httplimit.Join(httplimit.Pattern(), httplimit.Address()))
}
