package frameworks

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Chi returns a server with chi, which accepts net/http middleware unchanged. It adds the
// middleware with With, not with Use, because Use would run it before routing, when the route's
// pattern is not known yet.
func Chi(limiter *client.Client) (http.Handler, error) {
	limit, err := newLimit(limiter)
	if err != nil {
		return nil, err
	}
	router := chi.NewRouter()
	router.With(limit).Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "item", chi.URLParam(r, "id"))
	})
	return router, nil
}
