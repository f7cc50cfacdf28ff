package frameworks

import (
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
)

// Fiber is not built on net/http. Its adaptor shows the middleware a copy of the request, without a pattern, and the
// handler does not find the middleware's [httplimit.Charge].
func Fiber(limiter *client.Client) (*fiber.App, error) {
	limit, err := httplimit.New(limiter, "items", "2/m", httplimit.Address())
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Get("/items/:id", adaptor.HTTPMiddleware(limit), func(c fiber.Ctx) error {
		return c.SendString("item " + c.Params("id") + "\n")
	})
	return app, nil
}
