package frameworks

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

// fiberMiddleware adapts net/http middleware to fiber. fasthttp reuses a request's context for
// later requests and reads it during shutdown, so the middleware gets a new context instead.
func fiberMiddleware(middleware func(http.Handler) http.Handler) fiber.Handler {
	return adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
		limited := middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limited.ServeHTTP(w, r.WithContext(context.Background()))
		})
	})
}

// Fiber returns a server with fiber, which is not based on net/http. Its adaptor gives the
// middleware a copy of the request without a pattern, so the key is only the address. The handler
// cannot get the middleware's charge.Charge.
func Fiber(limiter *client.Client) (*fiber.App, error) {
	limit, err := httplimit.New(limiter, "items", "@items", httplimit.Address(), httplimit.WithRequest(class))
	if err != nil {
		return nil, err
	}
	if err := limit.Check(context.Background()); err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Get("/items/:id", fiberMiddleware(limit), func(c fiber.Ctx) error {
		return c.SendString("item " + c.Params("id") + "\n")
	})
	return app, nil
}
